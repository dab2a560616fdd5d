package actors

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// WithActivity makes a workspace's activity live in the workspace's actor: the workspace's people decide who may follow it,
// and one mailbox gives its rows their order. secret is what the cursors in frames are made with.
func (k Kind) WithActivity(journal persistence.Journal, secret []byte) Kind {
	parts := maps.Clone(k.parts)
	if parts == nil {
		parts = map[string]part{}
	}
	parts[entity.KindActivity] = part{
		machine: func(identity string) machine {
			return &activityMachine{
				journal: journal, workspaceID: identity,
				hub: newHub(activity.NewCursor(secret, identity)),
			}
		},
		need: func(m proto.Message) (entity.Need, bool) {
			switch m.(type) {
			case *activityv1.ReadHistory, *activityv1.ReadFeed, *activityv1.ReadSeenBy, *activityv1.ReadLatestWriters:
				return follows, true
			default:
				return entity.Need{}, false
			}
		},
		reads: func(m proto.Message) bool {
			_, ok := m.(activityv1.Query)
			return ok
		},
		answer: answerActivity,
	}
	k.parts = parts
	return k
}

// follows is what reading and following activity needs.
var follows = entity.Reads(entity.FilesRead)

// activityMachine decides by the rules of package activity. What they need of the indexes it looks up, and remembers as
// long as it may not be in the journal yet.
type activityMachine struct {
	journal     persistence.Journal
	workspaceID string
	partition   persistence.Partition
	state       *activity.State
	// flushAt is when the timer is due that flushes summaries, in milliseconds since the Unix epoch; 0: none waits.
	flushAt int64
	tallies tallies
	hub     *hub
}

func (a *activityMachine) recall(v persistence.View, p persistence.Partition, s persistence.Stream) (version, kept uint64, err error) {
	a.partition = p
	a.tallies = tallies{}
	a.state = activity.Zero(a.workspaceID)
	head, err := v.Head(p, s)
	if err != nil {
		return 0, 0, err
	}
	a.state.Seq = head
	prefix := activity.Prefix(a.workspaceID)
	intents, err := open(v, p, activity.OpenIntents, prefix, func() *activityv1.Intent { return new(activityv1.Intent) })
	if err != nil {
		return 0, 0, err
	}
	folds, err := open(v, p, activity.OpenFolds, prefix, func() *activityv1.Fold { return new(activityv1.Fold) })
	if err != nil {
		return 0, 0, err
	}
	a.state.Intents, a.state.Folds = intents, folds
	a.flushAt = a.state.NextFlush()
	a.hub.resume(head)
	return head, head, nil
}

// open reads what an index holds of a workspace, by the part of the value behind the prefix.
func open[M proto.Message](v persistence.View, p persistence.Partition, index, prefix string, zero func() M) (map[string]M, error) {
	found := map[string]M{}
	for entry, err := range v.Index(p, persistence.Query{Index: index, Value: prefix, Prefix: true}) {
		if err != nil {
			return nil, err
		}
		m := zero()
		if err := proto.Unmarshal(entry.Data, m); err != nil {
			return nil, err
		}
		found[strings.TrimPrefix(entry.Value, prefix)] = m
	}
	return found, nil
}

func (a *activityMachine) decide(call entity.Call, command proto.Message) (decision, error) {
	c, ok := command.(activityv1.Command)
	if !ok {
		return decision{}, entity.Errorf(entity.InvalidRequest, "activity takes no %s", command.ProtoReflect().Descriptor().Name())
	}
	var failed error
	made, err := activity.Decide(call, a.state, c, func(seen string) *activityv1.Totals {
		t, err := a.totals(seen)
		if err != nil {
			failed = err
		}
		return t
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return decision{}, err
	}
	activity.Evolve(a.state, made)
	for seen, t := range made.Totals {
		a.tallies.put(seen, t)
	}
	d := a.stored(call, made)
	if err := a.setTimer(&d, made); err != nil {
		return decision{}, err
	}
	return d, nil
}

// setTimer adds what the decision changes of the timer that flushes summaries: it waits for the oldest open fold.
func (a *activityMachine) setTimer(d *decision, made *activity.Decision) error {
	next, changed := a.state.FlushAfter(a.flushAt, made)
	if !changed {
		return nil
	}
	timer := entity.Timer{ID: "flush", At: a.flushAt, Message: &activityv1.FlushSummaries{}}
	for _, remove := range []bool{true, false} {
		if timer.At != 0 {
			c, err := timerChange(entity.KindActivity, a.workspaceID, timer, remove)
			if err != nil {
				return err
			}
			d.changes = append(d.changes, c)
		}
		timer.At = next
	}
	a.flushAt = next
	return nil
}

func (a *activityMachine) stored(call entity.Call, made *activity.Decision) decision {
	d := decision{reply: &activityv1.Recorded{Seq: a.state.Seq}}
	for _, row := range made.Rows {
		d.events = append(d.events, persistence.Event{
			Name: activity.RowName, Payload: activity.Encode(row), At: call.Now,
			Actor: row.Operation.GetAuthor().GetActor(),
		})
	}
	if len(made.Entries) > 0 {
		d.changes = make([]persistence.Change, len(made.Entries), len(made.Entries)+1)
	}
	for i, e := range made.Entries {
		d.changes[i] = persistence.Change{
			Entry:  persistence.Entry{Index: e.Index, Value: e.Value, Order: e.Order, Data: e.Data},
			Remove: e.Remove,
		}
	}
	return d
}

// totals are what an author did to a path so far: as remembered, else as the journal has it.
func (a *activityMachine) totals(seen string) (*activityv1.Totals, error) {
	if t, ok := a.tallies.find(seen); ok {
		return t, nil
	}
	v, err := a.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	data, ok, err := v.Lookup(a.partition, activity.Seen, seen, 0)
	if err != nil || !ok {
		return nil, err
	}
	var t activityv1.Totals
	if err := proto.Unmarshal(data, &t); err != nil {
		return nil, err
	}
	a.tallies.put(seen, &t)
	return &t, nil
}

func (a *activityMachine) snapshot() proto.Message { return nil }

// committed passes rows on to those who follow the workspace.
func (a *activityMachine) committed(d decision) {
	if len(d.events) > 0 {
		a.hub.publish(d.events)
	}
}

// tallies remembers totals of two generations. A generation is dropped when two full ones have come after it, by which
// time what it holds has long been in the journal: a generation is larger than what an entity can have under way.
type tallies struct{ young, old map[string]*activityv1.Totals }

const tallyGeneration = 4 * maxInFlight

func (t *tallies) find(value string) (*activityv1.Totals, bool) {
	if found, ok := t.young[value]; ok {
		return found, true
	}
	found, ok := t.old[value]
	return found, ok
}

func (t *tallies) put(value string, totals *activityv1.Totals) {
	if len(t.young) >= tallyGeneration {
		t.old, t.young = t.young, nil
	}
	if t.young == nil {
		t.young = make(map[string]*activityv1.Totals)
	}
	t.young[value] = totals
}
