package entity

import "google.golang.org/protobuf/proto"

// Timer is a command that an entity receives at a time. A kind's Timers function lists those that wait in a state: a
// timer that appears in the state after a decision is set, one that disappears is cancelled, both in one batch with the
// events. The platform sends the command once At has passed, until the entity's state no longer lists the timer. So the
// due command's rule must remove the timer from the state or move it to a later time.
//
// A repetition of the due command can arrive after the state has moved on. A rule for which that matters puts the ID,
// and for a timer that is set again under the same ID also the due time, into Message, and ignores a stale one.
type Timer struct {
	// ID is distinct among the timers of the entity. It must not contain a zero byte.
	ID string
	// At is when the command is due, in milliseconds since the Unix epoch.
	At int64
	// Message is the command.
	Message proto.Message
}

// Task is work outside the rules that an entity waits for: a driver's, a mail server's. A kind's Tasks function lists
// those that are open in a state: a task that appears in the state after a decision is started, one that disappears is
// cancelled. The task's executor answers with a command that carries the task's ID, and whose rule removes the task from
// the state. An executor may run the same task more than once, after a crash or a change of ownership.
type Task struct {
	// Kind selects the executor.
	Kind string
	// ID is distinct among the tasks of the entity of one Kind. Neither may contain a zero byte.
	ID string
	// Message tells the executor what to do. It holds no secret: it is stored.
	Message proto.Message
}
