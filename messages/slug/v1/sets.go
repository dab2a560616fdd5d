package slugv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a slug.
//
//sumtype:decl
type Command interface {
	proto.Message
	slugCommand()
}

func (*ClaimSlug) slugCommand()   {}
func (*ReleaseSlug) slugCommand() {}
func (*ResolveSlug) slugCommand() {}

// Event is the sealed set of the events of a slug.
//
//sumtype:decl
type Event interface {
	proto.Message
	slugEvent()
}

func (*SlugClaimed) slugEvent()  {}
func (*SlugReleased) slugEvent() {}
