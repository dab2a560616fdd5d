package entity

import "google.golang.org/protobuf/proto"

// Source is the event that a reaction's command follows from.
//
// A stream carries out the commands of one source stream in the order of Version and Index, and remembers how far it has
// come: a command at or below that mark has no further effect. A sender therefore sends the commands for one target one
// after the other, and repeats them with the same Version and Index.
type Source struct {
	// Partition, Stream, Version and Sequence are the event's; Stream is its kind, a slash and its identity.
	Partition uint16
	Stream    string
	Version   uint64
	Sequence  uint64
	// Index numbers the commands that follow from the event.
	Index uint32
}

// Reaction is a command that follows from an event, with what depends on its outcome. The reactions to an event are a
// function of the event alone: after a failure they are computed again, and must be the same in the same order.
type Reaction struct {
	Command
	// Condition, if set, is sent before Command, and neither Command nor Otherwise is sent if it is refused for good.
	// It changes nothing, and asks the entity of the event whether the event still stands.
	Condition *Command
	// Otherwise, if set, is sent if Command is refused for good.
	Otherwise *Command
}

// Send returns the reaction that sends a command unconditionally, on behalf of the platform.
func Send(kind, identity string, m proto.Message) Reaction {
	return Reaction{Command: Command{Kind: kind, Identity: identity, Message: m}}
}
