package entity

import (
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/proto"

	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Rules describe one kind of entity: S is its state, C the sealed set of its commands, and E the sealed set of its
// events. The functions are pure. Name, Zero, Decide, Evolve and Reply are required.
type Rules[S, C, E proto.Message] struct {
	// Name is the name of the kind, the first part of the names of its streams.
	Name string
	// Owner is the kind of the entity that owns an entity of this kind; empty if there is none. The identity of an owned
	// entity equals the identity of its owner, or has the form <owner>/<id>. The owner's actor supervises the
	// entity, and the owner's Check authorizes each command for it, in order with the owner's own changes.
	Owner string
	// Version is the version of the rules, at least 1. It must be increased when Evolve derives another state from the same
	// events. Snapshots of other versions are ignored.
	Version uint64
	// Zero returns the state before the first event.
	Zero func(identity string) S
	// Access returns the access to a command. nil: only the platform may send commands.
	Access func(C) Access
	// Check returns an error unless the principal of the call satisfies a need. It decides for the entity and for the
	// entities that it owns. It may be nil if no command and no list has a need.
	Check func(call Call, s S, need Need) error
	// Role returns the role of a principal, for a kind that owns others: it is the Role of their calls. nil: they have none.
	Role func(call Call, s S) workspacev1.Role
	// Waits reports whether the answer to a query must wait, because the state does not answer it yet. The runtime decides the
	// query again after each change of the state, until it need not wait or its sender gives up. It is false for a query that
	// Decide refuses. nil: no query waits.
	Waits func(call Call, s S, c C) bool
	// Timeline describes the events that members read and follow. nil: the kind has no timeline.
	Timeline *Timeline[S, C, E]
	// Decide turns an authorized command into events, or returns an error. No events and no error mean that the state is
	// already as the command requires, or that the command is a query.
	Decide func(Call, S, C) ([]E, error)
	// Evolve returns the state after an event. It must not change its arguments. It cannot fail, because the event
	// happened.
	Evolve func(S, E) S
	// Reply returns the answer to a command; s is the state after the events.
	Reply func(call Call, s S, c C, events []E) proto.Message
	// Rows returns the list rows that a command changes, which are committed with its events. nil: no rows.
	Rows func(call Call, before, after S, c C, events []E) []Row
	// Lists are the lists of the entity, by name.
	Lists map[string]List
	// Timers and Tasks return the pending timers and the open tasks of a state. They are called after each decision that
	// has events. nil: the kind has none.
	Timers func(s S) []Timer
	Tasks  func(s S) []Task
	// Pauses has the longest time between the setting of a timer and its due time, by the ID of the timer. A timer that is due later, because
	// the clock was ahead when it was set, is delivered when a member begins to own the entity: see HasPassed. A timer without a pause is
	// delivered at its due time only.
	Pauses map[string]time.Duration
	// React returns the commands that follow from an event of the entity with that identity. It must depend on its
	// arguments alone and not change them: the runtime calls it more than once for an event. nil: no commands follow from
	// any event.
	React func(identity string, e E) []Reaction
	// EffectLists names lists in which an entity has a row if it may have had timers, tasks or StateRows before a version
	// of the rules declared them. The runtime makes these entities write their missing rows once.
	EffectLists []string
	// StateRows returns the list rows that depend on the state alone and that earlier rules may not have written. nil:
	// none.
	StateRows func(s S) []Row
	// Erases reports whether the state after an event does not depend on the events before it, and readers may not read them any
	// more: the journal then removes them. nil: no event does.
	Erases func(e E) bool
	// Exposed are the events that change what the edge serves, or whom: an app, the way to it, or the access of its visitors. Unexposed
	// are all other events of the kind. Both are nil for a kind that the edge does not use.
	Exposed, Unexposed []E
	// Retention is how long the reply to a command with an id is stored; 0: CommandRetention.
	Retention time.Duration
}

// A Timeline describes those events of an entity that members read page by page (wirev1.ReadTimeline) and follow as a stream.
type Timeline[S, C, E proto.Message] struct {
	// Need is the need of a reader, which the owner checks.
	Need Need
	// Visible returns an error unless the principal of the call may read the timeline in a state. It is called for each page, and
	// for each follower again whenever the state or the follower's role has changed.
	Visible func(call Call, s S) error
	// IsRow reports whether events of a type are rows of the timeline. It gets an empty one.
	IsRow func(E) bool
	// Passes reports whether a command is only passed on to the followers, without a decision. Such a command is neither recorded
	// nor repeated; only the platform sends it. nil: none is.
	Passes func(C) bool
}

// CommandRetention is the Retention of kinds that set none.
const CommandRetention = 48 * time.Hour

// Kind describes a kind of entity to the runtime; its functions take any message, unlike the functions of Rules. Rules
// create a Kind. A Kind is never changed.
type Kind struct {
	Name, Owner string
	Version     uint64
	Retention   time.Duration
	Lists       map[string]List
	// Exposes has for the name of each event of the kind whether the event is one of Rules.Exposed; nil: the edge uses nothing of the kind.
	Exposes map[string]bool

	// IsCommand and IsEvent report whether a message is a command or an event of the kind.
	IsCommand, IsEvent func(proto.Message) bool
	// Zero returns the state before the first event.
	Zero func(identity string) proto.Message
	// Evolve returns the state after an event. ok is false if the event is not one of the kind.
	Evolve func(state, event proto.Message) (_ proto.Message, ok bool)
	// Carry decides a command and applies its events. It authorizes the command first, unless the kind has an owner, which
	// authorizes it. Errors: *Error.
	Carry func(call Call, state, command proto.Message) (Outcome, error)
	// Access returns the access to a command. Errors: invalid_request if the command is not one of the kind.
	Access func(command proto.Message) (Access, error)
	// Check returns an error unless the principal of the call satisfies a need.
	Check func(call Call, state proto.Message, need Need) error
	// Role, Waits and Timeline are as in Rules. nil: the kind has none.
	Role     func(call Call, state proto.Message) workspacev1.Role
	Waits    func(call Call, state, command proto.Message) bool
	Timeline *Timeline[proto.Message, proto.Message, proto.Message]
	// Pauses is as in Rules.
	Pauses map[string]time.Duration
	// Timers and Tasks return the pending timers and the open tasks of a state. nil: the kind has none.
	Timers func(state proto.Message) []Timer
	Tasks  func(state proto.Message) []Task
	// React returns the commands that follow from an event, always in the same order; none for an event of another kind.
	// nil: no commands follow from any event.
	React func(identity string, event proto.Message) []Reaction
	// Erases is as in Rules; false for an event of another kind. nil: no event erases others.
	Erases func(event proto.Message) bool
	// EffectIndexes names the indexes of Rules.EffectLists. Their values begin with the entity's identity and a zero byte.
	EffectIndexes []string
	// StateRows returns the list rows that depend on the state alone. nil: the kind has none.
	StateRows func(state proto.Message) []Row
}

// Outcome is the result of a command: its events, the state after them, the answer and the list rows that change.
type Outcome struct {
	Events []proto.Message
	State  proto.Message
	Reply  proto.Message
	Rows   []Row
}

// List describes one list of an entity. Its rows are stored in an index of the journal, see ListIndex.
type List struct {
	// Need is the need that a reader of the list has to satisfy.
	Need Need
	// Match reports whether a row matches a search text. nil: the list cannot be searched.
	Match func(row []byte, search string) bool
	// Of names another list; the rows of this list refer to rows of Of: a page has the row of Of that has the key which Key returns,
	// in the place of the reference. A reference to a row that does not exist is left out. Empty: the rows are no references.
	Of  string
	Key func(row []byte) (string, error)
	// Visible reports whether a reader sees a row. The filter is the filter of the request, and Role in the call the reader's
	// role. It fails if the filter is invalid. nil: every reader sees every row.
	Visible func(call Call, row, filter []byte) (bool, error)
	// Most is the greatest number of rows in a page; 0: 100.
	Most int
}

// Row is a change of one row of a list, committed in one batch with the events that cause it. Pages list the rows of one
// entity in the order of their keys.
type Row struct {
	List string
	Key  string
	// Message is the content of the row; nil removes the row.
	Message proto.Message
}

// ListIndex returns the name of the journal's index that holds the rows of a list.
func ListIndex(list string) string { return "list." + list }

// AscendingKey returns a key that sorts by n, lowest first. DescendingKey returns one that sorts by n, highest first.
func AscendingKey(n uint64) string  { return string(binary.BigEndian.AppendUint64(nil, n)) }
func DescendingKey(n uint64) string { return AscendingKey(^n) }

// AuthorizeAndDecide authorizes a command and decides it. It does not authorize commands of a kind with an owner: the owner
// has authorized them. Errors: the errors of Access.Authorize and of Decide.
func (r Rules[S, C, E]) AuthorizeAndDecide(call Call, s S, c C) ([]E, error) {
	if r.Owner == "" {
		if err := r.access(c).Authorize(call.Principal, func(need Need) error { return r.check(call, s, need) }); err != nil {
			return nil, err
		}
	}
	return r.Decide(call, s, c)
}

func (r Rules[S, C, E]) access(c C) Access {
	if r.Access == nil {
		return PlatformOnly()
	}
	return r.Access(c)
}

func (r Rules[S, C, E]) check(call Call, s S, need Need) error {
	if r.Check == nil {
		return errPlatformOnly
	}
	return r.Check(call, s, need)
}

// Kind returns the descriptor of the kind for the runtime.
func (r Rules[S, C, E]) Kind() Kind {
	k := Kind{
		Name: r.Name, Owner: r.Owner, Version: max(r.Version, 1), Lists: r.Lists, Retention: r.retention(), Pauses: r.Pauses,
		IsCommand: func(m proto.Message) bool { _, ok := m.(C); return ok },
		IsEvent:   func(m proto.Message) bool { _, ok := m.(E); return ok },
		Zero:      func(identity string) proto.Message { return r.Zero(identity) },
		Evolve: func(state, event proto.Message) (proto.Message, bool) {
			e, ok := event.(E)
			if !ok {
				return state, false
			}
			return r.Evolve(state.(S), e), true
		},
		Carry: r.execute,
		Access: func(command proto.Message) (Access, error) {
			c, err := r.asCommand(command)
			if err != nil {
				return Access{}, err
			}
			return r.access(c), nil
		},
		Check:   func(call Call, state proto.Message, need Need) error { return r.check(call, state.(S), need) },
		Exposes: r.exposes(),
	}
	r.describeReading(&k)
	if r.Timers != nil {
		k.Timers = func(state proto.Message) []Timer { return r.Timers(state.(S)) }
	}
	if r.Tasks != nil {
		k.Tasks = func(state proto.Message) []Task { return r.Tasks(state.(S)) }
	}
	if r.React != nil {
		k.React = func(identity string, event proto.Message) []Reaction {
			e, ok := event.(E)
			if !ok {
				return nil
			}
			return r.React(identity, e)
		}
	}
	if r.Erases != nil {
		k.Erases = func(event proto.Message) bool {
			e, ok := event.(E)
			return ok && r.Erases(e)
		}
	}
	if r.StateRows != nil {
		k.StateRows = func(state proto.Message) []Row { return r.StateRows(state.(S)) }
	}
	for _, list := range r.EffectLists {
		k.EffectIndexes = append(k.EffectIndexes, ListIndex(list))
	}
	return k
}

// describeReading sets Role, Waits and Timeline.
func (r Rules[S, C, E]) describeReading(k *Kind) {
	if r.Role != nil {
		k.Role = func(call Call, state proto.Message) workspacev1.Role { return r.Role(call, state.(S)) }
	}
	if r.Waits != nil {
		k.Waits = func(call Call, state, command proto.Message) bool {
			c, ok := command.(C)
			return ok && r.Waits(call, state.(S), c)
		}
	}
	t := r.Timeline
	if t == nil {
		return
	}
	k.Timeline = &Timeline[proto.Message, proto.Message, proto.Message]{
		Need:    t.Need,
		Visible: func(call Call, state proto.Message) error { return t.Visible(call, state.(S)) },
		IsRow:   func(m proto.Message) bool { e, ok := m.(E); return ok && t.IsRow(e) },
		Passes: func(m proto.Message) bool {
			c, ok := m.(C)
			return ok && t.Passes != nil && t.Passes(c)
		},
	}
}

// exposes returns Kind.Exposes.
func (r Rules[S, C, E]) exposes() map[string]bool {
	if r.Exposed == nil {
		return nil
	}
	names := map[string]bool{}
	for _, e := range r.Unexposed {
		names[MessageName(e)] = false
	}
	for _, e := range r.Exposed {
		names[MessageName(e)] = true
	}
	return names
}

func (r Rules[S, C, E]) retention() time.Duration {
	if r.Retention > 0 {
		return r.Retention
	}
	return CommandRetention
}

func (r Rules[S, C, E]) asCommand(m proto.Message) (C, error) {
	c, ok := m.(C)
	if !ok {
		return c, UnknownCommand(r.Name, m)
	}
	return c, nil
}

// execute implements Kind.Carry.
func (r Rules[S, C, E]) execute(call Call, state, command proto.Message) (Outcome, error) {
	c, err := r.asCommand(command)
	if err != nil {
		return Outcome{}, err
	}
	before := state.(S)
	events, err := r.AuthorizeAndDecide(call, before, c)
	if err != nil {
		return Outcome{}, err
	}
	after := before
	out := Outcome{Events: make([]proto.Message, len(events))}
	for i, e := range events {
		out.Events[i] = e
		after = r.Evolve(after, e)
	}
	out.State, out.Reply = after, r.Reply(call, after, c, events)
	if r.Rows != nil {
		out.Rows = r.Rows(call, before, after, c, events)
	}
	return out, nil
}
