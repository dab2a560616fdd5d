package slugv1

import "google.golang.org/protobuf/proto"

// Command is what a slug can be asked to do or to tell.
//
//sumtype:decl
type Command interface {
	proto.Message
	slugCommand()
}

func (*ClaimSlug) slugCommand()   {}
func (*ReleaseSlug) slugCommand() {}
func (*ResolveSlug) slugCommand() {}

// Event is what happened to a slug.
//
//sumtype:decl
type Event interface {
	proto.Message
	slugEvent()
}

func (*SlugClaimed) slugEvent()  {}
func (*SlugReleased) slugEvent() {}
