package entity

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Rules describe one kind of entity: S is its state, C the sealed set of its commands and E that of its events. The
// functions are pure; Name, Zero, Decide, Evolve and Reply are required.
type Rules[S, C, E proto.Message] struct {
	// Name is the kind's name, the first part of its streams' names.
	Name string
	// Owner is the kind of the entity that this one belongs to; empty: it belongs to none. The owner's actor supervises
	// it, and the owner's Check authorizes every command that is sent to it, in order with the owner's own changes.
	// Its identity is the owner's, or begins with the owner's and a slash.
	Owner string
	// Version is the version of the rules, at least 1: it changes when Evolve makes another state of the same events.
	// Snapshots of another version are ignored.
	Version uint64
	// Zero returns the state before the first event.
	Zero func(identity string) S
	// Access returns who may send a command; nil: the platform alone may send any.
	Access func(C) Access
	// Check refuses a call whose principal does not have what need says of the entity: its own commands, and those of
	// the entities that it owns. It may be nil where no command and no list needs it.
	Check func(call Call, s S, need Need) error
	// Decide turns a command that has been authorized into events, or refuses it. No events and no error: the state is
	// already as the command asks, or the command is a query.
	Decide func(Call, S, C) ([]E, error)
	// Evolve returns the state after an event, and leaves its argument alone. It cannot fail: the event happened.
	Evolve func(S, E) S
	// Reply returns the answer to a command; s is the state after the events.
	Reply func(call Call, s S, c C, events []E) proto.Message
	// Rows returns the entries of lists that a command changes; nil: none. They are committed with the events.
	Rows func(call Call, before, after S, c C, events []E) []Row
	// Lists are the entity's lists, by name.
	Lists map[string]List
	// Timers and Tasks return the timers that wait in a state, and the tasks that are open in it; nil: none. They are
	// called after each decision with events.
	Timers func(s S) []Timer
	Tasks  func(s S) []Task
	// React returns the commands that follow from an event of the entity with that identity; nil: nothing follows from
	// any event of the kind. It is a function of its arguments alone, which it leaves as they are. The runtime calls it
	// more than once for an event.
	React func(identity string, e E) []Reaction
	// EffectLists names lists in which each entity has a row that may have had timers, tasks or StateRows before the rules
	// declared them. The runtime has these entities write their missing rows once.
	EffectLists []string
	// StateRows returns the list rows that follow from a state alone and that earlier rules may not have written; nil: none.
	StateRows func(s S) []Row
	// Retention is how long the outcome of a command that carries an id is remembered; 0: CommandRetention.
	Retention time.Duration
}

// CommandRetention is how long an entity recognises a repeated command by its id, unless its kind says otherwise.
const CommandRetention = 48 * time.Hour

// Kind is a kind of entity as the runtime sees it, with the types of its messages erased. Rules make it; it is a value
// that is never changed.
type Kind struct {
	Name, Owner string
	Version     uint64
	Retention   time.Duration
	Lists       map[string]List

	// IsCommand and IsEvent report whether a message is in the kind's sealed sets.
	IsCommand, IsEvent func(proto.Message) bool
	// Zero returns the state before the first event.
	Zero func(identity string) proto.Message
	// Evolve returns the state after an event; ok is false where the event is not one of the kind's.
	Evolve func(state, event proto.Message) (_ proto.Message, ok bool)
	// Carry carries a command out against a state. It authorizes the command, unless the kind has an owner, whose rules
	// do that. Errors: *Error.
	Carry func(call Call, state, command proto.Message) (Outcome, error)
	// Access returns who may send a command. Errors: invalid_request where the command is not one of the kind's.
	Access func(command proto.Message) (Access, error)
	// Check refuses a call that does not have what need says of the entity with that state.
	Check func(call Call, state proto.Message, need Need) error
	// Timers and Tasks return those of a state; nil: the kind has none.
	Timers func(state proto.Message) []Timer
	Tasks  func(state proto.Message) []Task
	// React returns the commands that follow from an event, in an order that never changes; nil: nothing follows from
	// any event of the kind. An event of another kind has none.
	React func(identity string, event proto.Message) []Reaction
	// EffectIndexes names the indexes of Rules.EffectLists, whose values begin with the entity's identity and a zero byte.
	EffectIndexes []string
	// StateRows returns the list rows that follow from a state alone; nil: the kind declares none.
	StateRows func(state proto.Message) []Row
}

// Outcome is what a command came to.
type Outcome struct {
	Events []proto.Message
	State  proto.Message
	Reply  proto.Message
	Rows   []Row
}

// List is one of an entity's lists, whose rows lie in the journal's indexes.
type List struct {
	// Need is what the caller needs of the entity to read it.
	Need Need
	// Match reports whether a row fits what is searched for; nil: the list cannot be searched.
	Match func(row []byte, search string) bool
	// Most is the longest page; 0: 100.
	Most int
}

// AuthorizeAndDecide decides a command as the runtime does: it authorizes it first, unless the kind has an owner, whose
// rules do that.
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

// Kind returns the kind that the rules describe.
func (r Rules[S, C, E]) Kind() Kind {
	k := Kind{
		Name: r.Name, Owner: r.Owner, Version: max(r.Version, 1), Lists: r.Lists, Retention: r.retention(),
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
		Carry: r.carry,
		Access: func(command proto.Message) (Access, error) {
			c, err := r.command(command)
			if err != nil {
				return Access{}, err
			}
			return r.access(c), nil
		},
		Check: func(call Call, state proto.Message, need Need) error { return r.check(call, state.(S), need) },
	}
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
	if r.StateRows != nil {
		k.StateRows = func(state proto.Message) []Row { return r.StateRows(state.(S)) }
	}
	for _, list := range r.EffectLists {
		k.EffectIndexes = append(k.EffectIndexes, ListIndex(list))
	}
	return k
}

func (r Rules[S, C, E]) retention() time.Duration {
	if r.Retention > 0 {
		return r.Retention
	}
	return CommandRetention
}

func (r Rules[S, C, E]) command(m proto.Message) (C, error) {
	c, ok := m.(C)
	if !ok {
		return c, Errorf(InvalidRequest, "%s is not a command of %s", nameOf(m), r.Name)
	}
	return c, nil
}

func nameOf(m proto.Message) protoreflect.Name { return m.ProtoReflect().Descriptor().Name() }

func (r Rules[S, C, E]) carry(call Call, state, command proto.Message) (Outcome, error) {
	c, err := r.command(command)
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
