package entity

import "google.golang.org/protobuf/proto"

// Source identifies the event that caused the command of a reaction.
//
// A target entity applies the commands of one source stream in the order of Version and Index, and stores the last pair
// that it applied: a command at or below that mark has no further effect. A sender must therefore send the commands for
// one target one at a time, and must repeat a command with the same Version and Index.
type Source struct {
	// Stream is the kind of the event's entity, a slash and its identity. Version is the event's version in that stream,
	// Sequence its position in the feed of Partition.
	Partition uint16
	Stream    string
	Version   uint64
	Sequence  uint64
	// Index is the position of the command among the commands that follow from the event.
	Index uint32
}

// Reaction is a command that follows from an event. The reactions to an event are a function of the event alone: after a
// failure they are computed again, and must be the same in the same order.
type Reaction struct {
	Command
	// Condition, if set, is sent before Command to the entity of the event, to confirm that the event still applies. It is
	// a query. If the entity refuses it for good, neither Command nor Otherwise is sent.
	Condition *Command
	// Otherwise, if set, is sent if the target refuses Command for good.
	Otherwise *Command
}

// Send returns a reaction that sends a message unconditionally, with the platform as sender.
func Send(kind, identity string, m proto.Message) Reaction {
	return Reaction{Command: Command{Kind: kind, Identity: identity, Message: m}}
}

// Timer is a command that an entity receives at a set time. The Timers function of a kind lists the timers that are
// pending in a state. A timer that a decision adds to that list is set, one that it removes is cancelled; the rows of both
// are committed in one batch with the events.
//
// The platform sends the command after At has passed, and repeats it until the state no longer lists the timer. The rule
// that handles the command must therefore remove the timer from the state or move At to a later time. A repetition can
// arrive after the state has moved on. A rule that must detect a stale command puts the timer's ID into Message, and for
// a timer that is set again under the same ID also its due time.
type Timer struct {
	// ID is unique among the timers of the entity. It must not contain a zero byte.
	ID string
	// At is the time at which the command is due, in milliseconds since the Unix epoch.
	At int64
	// Message is the command.
	Message proto.Message
}

// Task is work outside the rules, such as a call of a driver or of a mail server. The Tasks function of a kind lists the
// tasks that are open in a state. A task that a decision adds to that list is started, one that it removes is cancelled.
// The executor completes a task with a command that carries the task's ID; the rule for that command removes the task from
// the state. After a crash or a change of ownership an executor may run the same task again.
type Task struct {
	// Kind selects the executor.
	Kind string
	// ID is unique among the tasks of the entity of one Kind. Neither Kind nor ID may contain a zero byte.
	ID string
	// Message is the input of the executor. It is stored, so it must not contain a secret.
	Message proto.Message
}
