package emailv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of an email address.
//
//sumtype:decl
type Command interface {
	proto.Message
	emailCommand()
}

func (*ClaimEmail) emailCommand()    {}
func (*ResolveEmail) emailCommand()  {}
func (*AddInvitation) emailCommand() {}

// Event is the sealed set of the events of an email address.
//
//sumtype:decl
type Event interface {
	proto.Message
	emailEvent()
}

func (*EmailClaimed) emailEvent()    {}
func (*InvitationAdded) emailEvent() {}
