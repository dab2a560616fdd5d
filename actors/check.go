package actors

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

// StreamChecker replays every stream of a journal with the rules, and compares the stored snapshots, and the stored rows of timers and tasks,
// with the result of the replay. Other rows of lists depend on the commands too, and cannot be compared.
type StreamChecker struct {
	Kinds []entity.Kind
	// Now is the time of tasks that a repair writes anew.
	Now time.Time
	// State is called with the last state of each entity. Row is called with each row of file activity, in order, and EndRows after the
	// last row of a workspace, before the first row of another. The states of the entities of a workspace precede its rows.
	State   func(kind, identity string, state proto.Message)
	Row     func(workspaceID string, row activity.Row)
	EndRows func(workspaceID string) error
	// Report is called for each fault. The changes mend it; none: it cannot be mended.
	Report func(p persistence.Partition, what string, mend []persistence.Change)

	view persistence.View
	// expected has the rows of timers and tasks of a partition that follow from the states, by index and value.
	expected map[rowName]persistence.Change
}

// rowName is the index and the value of a row.
type rowName struct{ index, value string }

// Check checks all partitions of a view. It fails if the view cannot be read, or when ctx ends.
func (c *StreamChecker) Check(ctx context.Context, v persistence.View, partitions int) error {
	c.view = v
	for i := range partitions {
		p := persistence.Partition(i)
		names := map[persistence.Stream]bool{}
		for _, err := range v.Feed(p, 0, func(s persistence.Stream) bool { names[s] = true; return false }) {
			if err != nil {
				return err
			}
		}
		c.expected = map[rowName]persistence.Change{}
		for _, s := range slices.SortedFunc(maps.Keys(names), activityLast) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.checkStream(p, s); err != nil {
				return err
			}
		}
		if err := c.checkEffects(p); err != nil {
			return err
		}
	}
	return nil
}

// activityLast orders streams by name, and puts the streams of file activity after all other streams.
func activityLast(a, b persistence.Stream) int {
	return cmp.Or(cmp.Compare(activityRank(a), activityRank(b)), cmp.Compare(a, b))
}

func activityRank(s persistence.Stream) int {
	if kind, _, _ := strings.Cut(string(s), "/"); kind == entity.KindActivity {
		return 1
	}
	return 0
}

// checkStream replays a stream, and adds the rows of the state's timers and tasks to expected.
func (c *StreamChecker) checkStream(p persistence.Partition, s persistence.Stream) error {
	name, identity, _ := strings.Cut(string(s), "/")
	if name == entity.KindActivity {
		return c.checkActivity(p, s, identity)
	}
	at := slices.IndexFunc(c.Kinds, func(k entity.Kind) bool { return k.Name == name })
	if at < 0 {
		return nil // a stream of the runtime itself, or of a later version
	}
	snapshot, err := c.view.Snapshot(p, s)
	if err != nil {
		return err
	}
	r, saved := newRuled(c.Kinds[at], identity), newRuled(c.Kinds[at], identity)
	isSaved, err := saved.decodeSnapshot(snapshot)
	if err != nil {
		c.Report(p, fmt.Sprintf("the snapshot of %s: %v", s, err), nil)
		isSaved = false
	}
	for stored, err := range c.view.Read(p, s, 1, persistence.Ascending) {
		if err != nil {
			return err
		}
		if err := r.evolve(stored); err != nil {
			c.Report(p, fmt.Sprintf("event %d of %s: %v", stored.Version, s, err), nil)
			return nil
		}
		if isSaved && stored.Version == snapshot.Version && !proto.Equal(saved.state, r.state) {
			c.Report(p, fmt.Sprintf("the snapshot of %s differs from the state after its event %d", s, stored.Version), nil)
		}
	}
	if c.State != nil {
		c.State(name, identity, r.state)
	}
	return c.expectEffects(r)
}

// checkActivity decodes the rows of file activity. Their sequence is the version of the event.
func (c *StreamChecker) checkActivity(p persistence.Partition, s persistence.Stream, workspaceID string) error {
	for stored, err := range c.view.Read(p, s, 1, persistence.Ascending) {
		if err != nil {
			return err
		}
		row, err := activity.Decode(activity.Stored(stored.Payload))
		switch {
		case err != nil:
			c.Report(p, fmt.Sprintf("row %d of %s: %v", stored.Version, s, err), nil)
		case row.Seq != stored.Version:
			c.Report(p, fmt.Sprintf("row %d of %s has the sequence %d", stored.Version, s, row.Seq), nil)
		case c.Row != nil:
			c.Row(workspaceID, row)
		}
	}
	if c.EndRows != nil {
		return c.EndRows(workspaceID)
	}
	return nil
}

// expectEffects adds the rows of the timers and tasks of a state to expected.
func (c *StreamChecker) expectEffects(r *ruled) error {
	if !r.hasEffects() {
		return nil
	}
	rows, err := effectChanges(r.kind.Name, r.identity, c.Now.UnixMilli(), &stateEffects{}, r.effectsOf(r.state))
	for _, row := range rows {
		c.expected[rowName{row.Index, row.Value}] = row
	}
	return err
}

// checkEffects compares the rows of timers and tasks with expected.
func (c *StreamChecker) checkEffects(p persistence.Partition) error {
	for _, index := range []string{timerIndex, taskIndex} {
		for row, err := range c.view.Index(p, persistence.Query{Index: index, Prefix: true}) {
			if err != nil {
				return err
			}
			name := rowName{index, row.Value}
			if _, ok := c.expected[name]; ok {
				delete(c.expected, name)
				continue
			}
			var t runtimev1.Timer // the field kind of a task has the same number
			if proto.Unmarshal(row.Data, &t) == nil && t.GetKind() == entity.KindActivity {
				continue // its timer follows from indexes
			}
			c.Report(p, fmt.Sprintf("the index %s has a row for %s/%s that does not follow from its events", index, t.GetKind(), t.GetIdentity()),
				[]persistence.Change{{Entry: persistence.Entry{Index: index, Value: row.Value, Order: row.Order}, Remove: true}})
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.expected), func(a, b rowName) int { return strings.Compare(a.value, b.value) }) {
		var t runtimev1.Timer
		_ = proto.Unmarshal(c.expected[name].Data, &t) // was encoded by expectEffects
		c.Report(p, fmt.Sprintf("the index %s lacks a row for %s/%s", name.index, t.GetKind(), t.GetIdentity()), []persistence.Change{c.expected[name]})
	}
	return nil
}
