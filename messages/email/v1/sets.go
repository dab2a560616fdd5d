package emailv1

import "google.golang.org/protobuf/proto"

// Command is what an address can be asked to do or to tell.
//
//sumtype:decl
type Command interface {
	proto.Message
	emailCommand()
}

func (*ClaimEmail) emailCommand()    {}
func (*ResolveEmail) emailCommand()  {}
func (*AddInvitation) emailCommand() {}

// Event is what happened to an address.
//
//sumtype:decl
type Event interface {
	proto.Message
	emailEvent()
}

func (*EmailClaimed) emailEvent()    {}
func (*InvitationAdded) emailEvent() {}
