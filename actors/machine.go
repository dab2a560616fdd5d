package actors

import (
	"fmt"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// machine is one entity's rules with the state that they have come to. It lives inside one actor.
type machine interface {
	// recall learns the state from what is durable, and returns the stream's version and that of its snapshot.
	recall(v persistence.View, p persistence.Partition, s persistence.Stream) (version, kept uint64, err error)
	// decide carries a command out against the state, which moves on at once.
	decide(call entity.Call, command proto.Message) (decision, error)
	// snapshot is the state as of the version last decided, or nil where the kind keeps none. The result may be
	// encoded later, while the state has moved on.
	snapshot() proto.Message
	// committed tells that a decision is durable; in the order of the decisions.
	committed(d decision)
}

// decision is what a command came to. One without events and changes alters nothing.
type decision struct {
	events  []persistence.Event
	changes []persistence.Change
	reply   proto.Message
}

func (d decision) empty() bool { return len(d.events) == 0 && len(d.changes) == 0 }

// Rules are a kind's pure functions; see package entity.
type Rules[S, C, E proto.Message] struct {
	Kind   string
	Zero   func(identity string) S
	Decide func(entity.Call, S, C) ([]E, error)
	Evolve func(S, E) S
	Reply  func(entity.Call, S, C, []E) proto.Message
	// Rows are the entries of lists that a command changes, beside its events or without any; may be nil.
	Rows func(call entity.Call, before, after S, c C, events []E) []entity.Row
	// Timers are those that wait in a state, and Tasks those that are open in it; see entity.Timer and entity.Task. They
	// are called after each decision with events. May be nil.
	Timers func(s S) []entity.Timer
	Tasks  func(s S) []entity.Task
}

// Kind is a sort of entity that shards can activate.
type Kind struct {
	name    string
	machine func(identity string) machine
	// guard tells whether a principal may do what needs something of what belongs to the entity.
	guard func(m machine, call entity.Call, need entity.Need) error
	// lists are the entity's, by name.
	lists map[string]List
	// parts are kinds that live inside the entity's actor, by name, each with a stream of its own.
	parts map[string]part
}

// part is a kind inside another's actor.
type part struct {
	machine func(identity string) machine
	// need is what the sender of a message needs; ok is false where only the platform may send it.
	need  func(proto.Message) (need entity.Need, ok bool)
	lists map[string]List
	// reads tells messages that are answered from a view, off the actor, by answer.
	reads  func(proto.Message) bool
	answer func(place, proto.Message) (proto.Message, error)
}

// place is where an entity's rows are read.
type place struct {
	view      persistence.View
	partition persistence.Partition
	stream    persistence.Stream
	identity  string
}

// Define makes a kind of pure rules.
func Define[S, C, E proto.Message](r Rules[S, C, E]) Kind {
	return Kind{name: r.Kind, machine: func(identity string) machine {
		return &ruled[S, C, E]{rules: r, identity: identity, state: r.Zero(identity)}
	}}
}

// Guard makes an entity the guard of what belongs to it.
func Guard[S, C, E proto.Message](r Rules[S, C, E], allow func(entity.Call, S, entity.Need) error) Kind {
	k := Define(r)
	k.guard = func(m machine, call entity.Call, need entity.Need) error {
		return allow(call, m.(*ruled[S, C, E]).state, need)
	}
	return k
}

// WithLists gives a guarded kind lists to be walked.
func (k Kind) WithLists(lists map[string]List) Kind {
	k.lists = lists
	return k
}

// WithPart makes another kind, of the same identities, live in the entity's actor. need is what the sender of a message
// needs of the entity; ok is false where only the platform may send it.
func (k Kind) WithPart(other Kind, need func(proto.Message) (_ entity.Need, ok bool)) Kind {
	parts := maps.Clone(k.parts)
	if parts == nil {
		parts = map[string]part{}
	}
	parts[other.name] = part{
		machine: other.machine, need: need, lists: other.lists,
		reads: func(proto.Message) bool { return false },
	}
	k.parts = parts
	return k
}

// ruled is the machine of pure rules.
type ruled[S, C, E proto.Message] struct {
	rules    Rules[S, C, E]
	identity string
	state    S
	// effects are those of state that have rows; nil before the first recall, and for kinds without.
	effects *stateEffects
}

func (r *ruled[S, C, E]) recall(v persistence.View, p persistence.Partition, s persistence.Stream) (version, kept uint64, err error) {
	r.state, r.effects = r.rules.Zero(r.identity), nil
	snapshot, err := v.Snapshot(p, s)
	if err != nil {
		return 0, 0, err
	}
	if snapshot.Version > 0 {
		if err := proto.Unmarshal(snapshot.State, r.state); err != nil {
			return 0, 0, fmt.Errorf("snapshot of %s: %w", s, err)
		}
	}
	version = snapshot.Version
	for event, err := range v.Read(p, s, version+1, persistence.Ascending) {
		if err != nil {
			return 0, 0, err
		}
		e, err := decode[E](event)
		if err != nil {
			return 0, 0, err
		}
		r.state = r.rules.Evolve(r.state, e)
		version = event.Version
	}
	if r.rules.Timers != nil || r.rules.Tasks != nil {
		r.effects = r.effectsOf(r.state)
		if err := r.effects.keepStored(v, p); err != nil {
			return 0, 0, err
		}
	}
	return version, snapshot.Version, nil
}

func (r *ruled[S, C, E]) decide(call entity.Call, command proto.Message) (decision, error) {
	c, ok := command.(C)
	if !ok {
		return decision{}, entity.Errorf(entity.InvalidRequest, "a %s takes no %s", r.rules.Kind, command.ProtoReflect().Descriptor().Name())
	}
	events, err := r.rules.Decide(call, r.state, c)
	if err != nil {
		return decision{}, err
	}
	d := decision{events: make([]persistence.Event, 0, len(events))}
	state := r.state
	for _, e := range events {
		stored, err := encode(call, e)
		if err != nil {
			return decision{}, err
		}
		d.events = append(d.events, stored)
		state = r.rules.Evolve(state, e)
	}
	d.reply = r.rules.Reply(call, state, c, events)
	if r.rules.Rows != nil {
		if d.changes, err = changes(r.identity, r.rules.Rows(call, r.state, state, c, events)); err != nil {
			return decision{}, err
		}
	}
	if (r.rules.Timers != nil || r.rules.Tasks != nil) && len(events) > 0 {
		after := r.effectsOf(state)
		more, err := effectChanges(r.rules.Kind, r.identity, call.At(), r.effects, after)
		if err != nil {
			return decision{}, err
		}
		d.changes, r.effects = append(d.changes, more...), after
	}
	r.state = state
	return d, nil
}

func (r *ruled[S, C, E]) effectsOf(state S) *stateEffects {
	var timers []entity.Timer
	var tasks []entity.Task
	if r.rules.Timers != nil {
		timers = r.rules.Timers(state)
	}
	if r.rules.Tasks != nil {
		tasks = r.rules.Tasks(state)
	}
	return effectsOf(r.rules.Kind, r.identity, timers, tasks)
}

// snapshot is safe to encode later, since Evolve leaves its argument alone.
func (r *ruled[S, C, E]) snapshot() proto.Message { return r.state }

func (r *ruled[S, C, E]) committed(decision) {}

func encode(call entity.Call, e proto.Message) (persistence.Event, error) {
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(e)
	if err != nil {
		return persistence.Event{}, fmt.Errorf("event %s: %w", entity.MessageName(e), err)
	}
	return persistence.Event{
		Name:    entity.MessageName(e),
		Payload: payload,
		At:      call.Now,
		Actor:   actorOf(call),
	}, nil
}

// actorOf is who the journal says did it.
func actorOf(call entity.Call) string {
	if user := call.Principal.GetUserId(); user != "" {
		return user
	}
	return entity.Actor(call.Principal)
}

func decode[E proto.Message](event persistence.Event) (E, error) {
	var zero E
	m, err := entity.Message(event.Name, event.Payload)
	if err != nil {
		return zero, err
	}
	e, ok := m.(E)
	if !ok {
		return zero, fmt.Errorf("event %s does not belong to the stream %s", event.Name, event.Stream)
	}
	return e, nil
}

// now has the precision that the journal keeps.
func now(clock func() time.Time) time.Time { return clock().Truncate(time.Millisecond) }
