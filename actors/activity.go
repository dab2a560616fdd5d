package actors

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// activityMachine decides by the rules of package activity. What they need of the indexes it looks up in the journal,
// whose index entries trail the rows: what the indexes do not have yet is in the state's tail, which queries are handed
// (see query.go).
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

func newActivityMachine(journal persistence.Journal, secret []byte, workspaceID string) *activityMachine {
	return &activityMachine{
		journal: journal, workspaceID: workspaceID, hub: newHub(activity.NewCursor(secret, workspaceID)),
	}
}

func (a *activityMachine) isQuery(m proto.Message) bool {
	_, ok := m.(activityv1.Query)
	return ok
}

func (a *activityMachine) query(at place, m proto.Message) (proto.Message, error) {
	return answerActivity(at, m)
}

// check refuses everybody: activity owns nothing, and its own commands are authorized by the workspace.
func (a *activityMachine) check(entity.Call, entity.Need) error {
	return entity.Errorf(entity.Forbidden, "only the platform may do this")
}

func (a *activityMachine) recall(v persistence.View, p persistence.Partition, s persistence.Stream) (version, kept uint64, err error) {
	head, err := v.Head(p, s)
	if err != nil {
		return 0, 0, err
	}
	prefix := activity.Prefix(a.workspaceID)
	intents, err := open(v, p, activity.OpenIntents, prefix, func() *activityv1.Intent { return new(activityv1.Intent) })
	if err != nil {
		return 0, 0, err
	}
	folds, err := open(v, p, activity.OpenFolds, prefix, func() *activityv1.Fold { return new(activityv1.Fold) })
	if err != nil {
		return 0, 0, err
	}
	mark, err := indexMark(v, p, a.workspaceID)
	if err != nil {
		return 0, 0, err
	}
	rows, err := unindexed(v, p, s, mark)
	if err != nil {
		return 0, 0, err
	}
	state := activity.Zero(a.workspaceID)
	state.Seq, state.Intents, state.Folds = head, intents, folds
	state.Resume(mark, rows, a.state)
	a.partition, a.state = p, state
	a.tallies = tallies{prefix: len(activity.Prefix(a.workspaceID))}
	a.flushAt = a.state.NextFlush()
	a.hub.resume(head)
	return head, head, nil
}

// indexMark reads how far a workspace's indexes go; nil where no entries were ever written behind their rows.
func indexMark(v persistence.View, p persistence.Partition, workspaceID string) (*activityv1.IndexMark, error) {
	data, ok, err := v.Lookup(p, activity.Indexed, activity.Prefix(workspaceID), 0)
	if err != nil || !ok {
		return nil, err
	}
	mark := new(activityv1.IndexMark)
	return mark, proto.Unmarshal(data, mark)
}

// unindexed reads the rows behind a mark.
func unindexed(v persistence.View, p persistence.Partition, s persistence.Stream, mark *activityv1.IndexMark) ([]activity.Row, error) {
	if mark == nil {
		return nil, nil
	}
	var rows []activity.Row
	for payload, err := range v.Payloads(p, s, mark.GetSeq()+1, persistence.Ascending) {
		if err != nil {
			return nil, err
		}
		row, err := activity.Decode(activity.Stored(payload.Bytes))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
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
	timer := entity.Timer{ID: flushTimer, At: a.flushAt, Message: &activityv1.FlushSummaries{}}
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

// declare returns the row of the timer that flushes summaries, whether or not the journal has it.
func (a *activityMachine) declare(int64) ([]persistence.Change, error) {
	if a.flushAt == 0 {
		return nil, nil
	}
	timer := entity.Timer{ID: flushTimer, At: a.flushAt, Message: &activityv1.FlushSummaries{}}
	c, err := timerChange(entity.KindActivity, a.workspaceID, timer, false)
	return []persistence.Change{c}, err
}

// flushTimer is the ID of the timer that flushes summaries.
const flushTimer = "flush"

func (a *activityMachine) stored(call entity.Call, made *activity.Decision) decision {
	d := decision{reply: &activityv1.Recorded{Seq: a.state.Seq}, note: made}
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

// totals are what the Seen index has of an author on a path: as remembered, else as the journal has it.
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

func (a *activityMachine) due() (time.Time, proto.Message) {
	at := a.state.IndexDue()
	if at.IsZero() {
		return at, nil
	}
	return at, &activityv1.WriteIndexes{}
}

// flushCommand returns the command that writes what the machine holds in memory alone; nil for nothing.
func (a *activityMachine) flushCommand() proto.Message {
	if a.state == nil || !a.state.Tail.Dirty() {
		return nil
	}
	return &activityv1.WriteIndexes{}
}

// committed passes rows on to those who follow the workspace.
func (a *activityMachine) committed(d decision) {
	made, ok := d.note.(*activity.Decision)
	if !ok {
		return // it declared effects
	}
	activity.Acknowledge(a.state, made)
	if made.Index != nil {
		for seen, t := range made.Index.Totals {
			a.tallies.put(seen, t)
		}
	}
	if len(d.events) > 0 {
		a.hub.publish(d.events)
	}
}

// unindexedActivity is what a query has to add to the indexes of its view.
type unindexedActivity struct {
	// rows are durable ones whose index entries may not be in the view; known is false where they have to be read from it.
	rows  []activity.Row
	known bool
	// uses are the counts of the requested paths that may not be in the view.
	uses []activity.PendingUses
}

// recent is what an answer has to take from memory. It is safe to read while the state moves on.
func (a *activityMachine) recent(q proto.Message, known bool) any {
	if a.state == nil {
		return unindexedActivity{}
	}
	found := unindexedActivity{rows: a.state.Tail.DurableRows(), known: known}
	switch q := q.(type) {
	case *activityv1.ReadSeenBy:
		found.uses = a.state.PendingUses(q.GetPath())
	case *activityv1.ReadLatestWriters:
		for _, name := range q.GetNames() {
			found.uses = append(found.uses, a.state.PendingUses(activity.Join(q.GetDir(), name))...)
		}
	}
	return found
}
