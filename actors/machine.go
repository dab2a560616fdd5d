package actors

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	"github.com/atelier-run/atelier/persistence"
)

// machine is one entity's rules with the state that they have come to. It lives inside one actor.
type machine interface {
	// recall learns the state from what is durable, and returns the stream's version and that of its snapshot.
	recall(v persistence.View, p persistence.Partition, s persistence.Stream) (version, kept uint64, err error)
	// decide carries a command out against the state, which moves on at once.
	decide(call entity.Call, command proto.Message) (decision, error)
	// check refuses a call that does not have what need says of the entity.
	check(call entity.Call, need entity.Need) error
	// declare returns the rows of timers and tasks that the state has and the journal has not, and the list rows that
	// follow from the state. at is the time of the rows, in milliseconds since the Unix epoch.
	declare(at int64) ([]persistence.Change, error)
	// snapshot returns the state as of the version last decided, or nil where the kind keeps no snapshots. The result
	// may be encoded later, while the state has moved on.
	snapshot() proto.Message
	// committed is called for each decision that is durable, just before it is answered; in the order of the decisions,
	// those that alter nothing included.
	committed(d decision)
}

// decision is what a command came to. One without events and changes alters nothing.
type decision struct {
	events  []persistence.Event
	changes []persistence.Change
	reply   proto.Message
	// note is the machine's own, for committed.
	note any
}

func (d decision) empty() bool { return len(d.events) == 0 && len(d.changes) == 0 }

// ruled is the machine of a kind whose whole state is its events'.
type ruled struct {
	kind     entity.Kind
	identity string
	state    proto.Message
	// effects are the timers and tasks of the state that have rows; nil before the first recall, and for kinds without.
	effects *stateEffects
}

func newRuled(kind entity.Kind, identity string) *ruled {
	return &ruled{kind: kind, identity: identity, state: kind.Zero(identity)}
}

func (r *ruled) recall(v persistence.View, p persistence.Partition, s persistence.Stream) (version, kept uint64, err error) {
	r.state, r.effects = r.kind.Zero(r.identity), nil
	if version, err = r.recallSnapshot(v, p, s); err != nil {
		return 0, 0, err
	}
	kept = version
	for stored, err := range v.Read(p, s, version+1, persistence.Ascending) {
		if err != nil {
			return 0, 0, err
		}
		event, err := entity.Message(stored.Name, stored.Payload)
		if err != nil {
			return 0, 0, err
		}
		next, ok := r.kind.Evolve(r.state, event)
		if !ok {
			return 0, 0, fmt.Errorf("event %s does not belong to the stream %s", stored.Name, s)
		}
		r.state, version = next, stored.Version
	}
	if r.hasEffects() {
		r.effects = r.effectsOf(r.state)
		if err := r.effects.keepStored(v, p); err != nil {
			return 0, 0, err
		}
	}
	return version, kept, nil
}

// recallSnapshot takes the state from the stream's snapshot and returns its version; 0: there is none, or other rules
// made it, so that the state has to be made of the events anew.
func (r *ruled) recallSnapshot(v persistence.View, p persistence.Partition, s persistence.Stream) (version uint64, err error) {
	snapshot, err := v.Snapshot(p, s)
	if err != nil || snapshot.Version == 0 {
		return 0, err
	}
	var kept journalv1.State
	if proto.Unmarshal(snapshot.State, &kept) != nil || kept.GetRules() != r.kind.Version {
		return 0, nil
	}
	if err := proto.Unmarshal(kept.GetState(), r.state); err != nil {
		return 0, fmt.Errorf("snapshot of %s: %w", s, err)
	}
	return snapshot.Version, nil
}

func (r *ruled) decide(call entity.Call, command proto.Message) (decision, error) {
	out, err := r.kind.Carry(call, r.state, command)
	if err != nil {
		return decision{}, err
	}
	d := decision{reply: out.Reply}
	if len(out.Events) > 0 {
		d.events = make([]persistence.Event, len(out.Events))
	}
	for i, e := range out.Events {
		if d.events[i], err = encode(call, e); err != nil {
			return decision{}, err
		}
	}
	if d.changes, err = listChanges(r.identity, out.Rows); err != nil {
		return decision{}, err
	}
	if r.hasEffects() && len(out.Events) > 0 {
		after := r.effectsOf(out.State)
		more, err := effectChanges(r.kind.Name, r.identity, call.At(), r.effects, after)
		if err != nil {
			return decision{}, err
		}
		d.changes, r.effects = append(d.changes, more...), after
	}
	r.state = out.State
	return d, nil
}

func (r *ruled) declare(at int64) ([]persistence.Change, error) {
	var all []persistence.Change
	if r.kind.StateRows != nil {
		rows, err := listChanges(r.identity, r.kind.StateRows(r.state))
		if err != nil {
			return nil, err
		}
		all = rows
	}
	if !r.hasEffects() {
		return all, nil
	}
	after := r.effectsOf(r.state)
	missing, err := effectChanges(r.kind.Name, r.identity, at, r.effects, after)
	if err != nil {
		return nil, err
	}
	r.effects = after
	return append(all, missing...), nil
}

func (r *ruled) hasEffects() bool { return r.kind.Timers != nil || r.kind.Tasks != nil }

func (r *ruled) effectsOf(state proto.Message) *stateEffects {
	var timers []entity.Timer
	var tasks []entity.Task
	if r.kind.Timers != nil {
		timers = r.kind.Timers(state)
	}
	if r.kind.Tasks != nil {
		tasks = r.kind.Tasks(state)
	}
	return effectsOf(r.kind.Name, r.identity, timers, tasks)
}

func (r *ruled) check(call entity.Call, need entity.Need) error {
	return r.kind.Check(call, r.state, need)
}

// snapshot is safe to encode later, since Evolve leaves its argument alone.
func (r *ruled) snapshot() proto.Message { return r.state }

func (r *ruled) committed(decision) {}

// encodeSnapshot returns a state as a snapshot keeps it, with the version of the rules that made it.
func encodeSnapshot(rules uint64, state proto.Message) ([]byte, error) {
	encoded, err := proto.Marshal(state)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&journalv1.State{Rules: rules, State: encoded})
}

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

// actorOf returns who the journal says caused an event.
func actorOf(call entity.Call) string {
	if user := call.Principal.GetUserId(); user != "" {
		return user
	}
	return entity.Actor(call.Principal)
}

// now has the precision that the journal keeps.
func now(clock func() time.Time) time.Time { return clock().Truncate(time.Millisecond) }
