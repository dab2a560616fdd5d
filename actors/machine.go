package actors

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A machine holds the state of one entity and applies its kind's rules. All methods run in the entity's actor.
type machine interface {
	// load replaces the state by the durable one. It returns the version of the stream and the version of its snapshot, 0 if
	// there is none.
	load(v persistence.View, p persistence.Partition, s persistence.Stream) (version, snapshotVersion uint64, err error)
	// decide authorizes and decides a command, and applies the events to the state at once. If the decision may change the entity, decide calls
	// admit before it applies the events. After an error, also an error of admit, the state is unchanged.
	decide(call entity.Call, command proto.Message, admit func() error) (decision, error)
	// check returns nil if the principal of a call has a need according to the state, and a refusal otherwise.
	check(call entity.Call, need entity.Need) error
	// declare returns the changes that write the rows of the state's timers and tasks that the journal lacks, and the list rows
	// that follow from the state. at is the time of the rows, in milliseconds since the Unix epoch.
	declare(at int64) ([]persistence.Change, error)
	// snapshot returns the state after the last decision, or nil if the kind has no snapshots. The caller may encode it later;
	// the machine does not modify it.
	snapshot() proto.Message
	// committed is called for each decision when it is durable, in the order of the decisions and before its request is
	// answered; also for decisions that change nothing.
	committed(d decision)
}

// A decision is the result of a command. Without events and changes it changes nothing.
type decision struct {
	events  []persistence.Event
	changes []persistence.Change
	reply   proto.Message
	// erases is set if an event removes the earlier events of the stream; see entity.Rules.
	erases bool
	// note is for the machine's own committed.
	note any
}

func (d decision) empty() bool { return len(d.events) == 0 && len(d.changes) == 0 }

// ruled is the machine of a kind with a state that is computed from all events of its stream.
type ruled struct {
	kind     entity.Kind
	identity string
	state    proto.Message
	// effects are the timers and tasks of the state that have rows; nil before the first load, and for kinds without any.
	effects *stateEffects
}

func newRuled(kind entity.Kind, identity string) *ruled {
	return &ruled{kind: kind, identity: identity, state: kind.Zero(identity)}
}

func (r *ruled) load(v persistence.View, p persistence.Partition, s persistence.Stream) (version, snapshotVersion uint64, err error) {
	r.state, r.effects = r.kind.Zero(r.identity), nil
	if version, err = r.loadSnapshot(v, p, s); err != nil {
		return 0, 0, err
	}
	snapshotVersion = version
	for stored, err := range v.Read(p, s, version+1, persistence.Ascending) {
		if err != nil {
			return 0, 0, err
		}
		if err := r.evolve(stored); err != nil {
			return 0, 0, fmt.Errorf("event %d of %s: %w", stored.Version, s, err)
		}
		version = stored.Version
	}
	if r.hasEffects() {
		if r.effects, err = r.effectsOf(r.state).withoutUnstored(r.kind.Name, r.identity, v, p); err != nil {
			return 0, 0, err
		}
	}
	return version, snapshotVersion, nil
}

// loadSnapshot sets the state from the stream's snapshot and returns its version. It returns 0 if there is no snapshot
// of this version of the rules; the state is then computed from all events.
func (r *ruled) loadSnapshot(v persistence.View, p persistence.Partition, s persistence.Stream) (version uint64, err error) {
	snapshot, err := v.Snapshot(p, s)
	if err != nil {
		return 0, err
	}
	isCurrent, err := r.decodeSnapshot(snapshot)
	if !isCurrent {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("snapshot of %s: %w", s, err)
	}
	return snapshot.Version, nil
}

// decodeSnapshot sets the state from a snapshot. isCurrent is false, and the state is unchanged, if there is no snapshot or if this version of
// the rules has not made the snapshot, and after the error that the version of the rules cannot be decoded.
func (r *ruled) decodeSnapshot(snapshot persistence.Snapshot) (isCurrent bool, err error) {
	var stored journalv1.State
	if err := proto.Unmarshal(snapshot.State, &stored); err != nil {
		return false, err
	}
	if snapshot.Version == 0 || stored.GetRules() != r.kind.Version {
		return false, nil
	}
	return true, proto.Unmarshal(stored.GetState(), r.state)
}

// evolve applies an event of the stream to the state. After an error the state is unchanged.
func (r *ruled) evolve(stored persistence.Event) error {
	event, err := entity.Message(stored.Name, stored.Payload)
	if err != nil {
		return err
	}
	next, ok := r.kind.Evolve(r.state, event)
	if !ok {
		return fmt.Errorf("%s does not belong to the stream", stored.Name)
	}
	r.state = next
	return nil
}

func (r *ruled) decide(call entity.Call, command proto.Message, admit func() error) (decision, error) {
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
		d.erases = d.erases || r.kind.Erases != nil && r.kind.Erases(e)
	}
	if d.changes, err = listChanges(r.identity, out.Rows); err != nil {
		return decision{}, err
	}
	if !d.empty() {
		if err := admit(); err != nil {
			return decision{}, err
		}
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

// effectsOf returns the timers and tasks that the kind declares for a state.
func (r *ruled) effectsOf(state proto.Message) *stateEffects {
	s := &stateEffects{}
	if r.kind.Timers != nil {
		s.timers = r.kind.Timers(state)
	}
	if r.kind.Tasks != nil {
		s.tasks = r.kind.Tasks(state)
	}
	return s
}

func (r *ruled) check(call entity.Call, need entity.Need) error {
	return r.kind.Check(call, r.state, need)
}

// snapshot returns the state itself: Evolve does not modify its argument.
func (r *ruled) snapshot() proto.Message { return r.state }

func (r *ruled) committed(decision) {}

// encodeSnapshot encodes a state for a snapshot, with the version of the rules that made it.
func encodeSnapshot(rules uint64, state proto.Message) ([]byte, error) {
	encoded, err := proto.Marshal(state)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&journalv1.State{Rules: rules, State: encoded})
}

// encode returns an event for the journal.
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

// actorOf returns the id that the journal stores as the author of an event: the user, or the credential of a principal without
// one.
func actorOf(call entity.Call) string {
	if user := call.Principal.GetUserId(); user != "" {
		return user
	}
	return entity.Actor(call.Principal)
}

// now returns the time in milliseconds, the precision of the journal.
func now(clock func() time.Time) time.Time { return clock().Truncate(time.Millisecond) }
