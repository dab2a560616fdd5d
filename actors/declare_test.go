package actors_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

// removeRows removes all rows of indexes from the journal, under an epoch, as if the version that wrote the journal did not
// have the indexes.
func (b *bench) removeRows(epoch uint64, indexes ...string) {
	b.t.Helper()
	for p := range persistence.Partition(partitions) {
		var all []persistence.Change
		v, err := b.journal.View()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, index := range indexes {
			for row, err := range v.Index(p, persistence.Query{Index: index, Prefix: true}) {
				if err != nil {
					b.t.Fatal(err)
				}
				all = append(all, persistence.Change{Entry: persistence.Entry{Index: index, Value: string([]byte(row.Value)), Order: row.Order}, Remove: true})
			}
		}
		v.Close()
		removed := make(chan error, 1)
		b.journal.Append(persistence.Proposal{Partition: p, Stream: "rows/test", Epoch: epoch, Entries: all}, func(r persistence.Result) {
			removed <- r.Err
		})
		if err := <-removed; err != nil {
			b.t.Fatal(err)
		}
	}
	for _, index := range indexes {
		if n := b.rows(index); n != 0 {
			b.t.Fatalf("%d rows of %s remain", n, index)
		}
	}
}

// declared waits until every partition has recorded that the effects of a number of kinds are declared.
func (b *bench) declared(kinds int) {
	b.t.Helper()
	b.eventually(func() bool { return b.rows("declared") == kinds*partitions })
}

// TestMissingRowsAreWrittenInFirstTerm verifies that timers and tasks without rows take effect although no request activates
// their entities.
func TestMissingRowsAreWrittenInFirstTerm(t *testing.T) {
	b := newBench(t, withAgenda)
	b.declared(3)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		b.mustAsk(toAgenda(id, act("list", "")))
		b.mustAsk(toAgenda(id, act("open", "1")))
		b.setTimer(id, "1", time.Minute)
	}
	b.removeRows(1, "task", "timer", "declared", "list.agendas.state")
	b.executors = map[string]actors.Executor{"chore": {Run: doChore}}
	b.restart()
	b.eventually(func() bool { return b.rows("timer") == 5 && b.rows("task") == 0 })
	b.clock.Advance(time.Hour)
	b.system.Tick()
	b.eventually(func() bool { return b.rows("timer") == 0 })
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if done, rang := b.count(id, "done", "1"), b.count(id, "ring", "1"); done != 1 || rang != 1 {
			t.Errorf("agenda %s: the task was done %d times and the timer rang %d times", id, done, rang)
		}
	}
	if n := b.rows("list.agendas.state"); n != 5 {
		t.Errorf("%d rows follow from the states", n)
	}

	// Later terms do not write the rows again.
	b.declared(3)
	b.mustAsk(toAgenda("a", act("open", "2")))
	b.eventually(func() bool { return b.count("a", "done", "2") == 1 })
	b.removeRows(2, "list.agendas.state")
	b.restart()
	b.mustAsk(toAgenda("a", act("note", "")))
	if n := b.rows("list.agendas.state"); n != 0 {
		t.Errorf("a later term wrote %d rows again", n)
	}
}

// TestOpenFoldsWithoutTimer verifies that folds of file activity that were opened before summaries had timers are recorded in
// time.
func TestOpenFoldsWithoutTimer(t *testing.T) {
	b := newBench(t)
	b.declared(2)
	b.createWorkspace("ws_1", "usr_1")
	written := operation(activityv1.Kind_KIND_WRITE, "app/node_modules/x/index.js")
	written.Tree = "app/node_modules"
	b.mustAsk(record("ws_1", written))
	if b.rows(activity.OpenFolds) == 0 || b.rows("timer") != 1 {
		t.Fatalf("%d folds and %d timers wait", b.rows(activity.OpenFolds), b.rows("timer"))
	}
	b.removeRows(1, "timer", "declared")
	b.restart()
	b.eventually(func() bool { return b.rows("timer") == 1 })
	b.clock.Advance(activity.FoldWindow)
	b.system.Tick()
	b.eventually(func() bool { return b.rows(activity.OpenFolds) == 0 && b.rows("timer") == 0 })
}

// TestOnlyPlatformDeclaresEffects verifies that members cannot send DeclareEffects.
func TestOnlyPlatformDeclaresEffects(t *testing.T) {
	b := newBench(t, withAgenda)
	b.createWorkspace("ws_1", "usr_1")
	for kind, identity := range map[string]string{entity.KindWorkspace: "ws_1", entity.KindActivity: "ws_1"} {
		_, err := b.ask(entity.Command{
			Kind: kind, Identity: identity, Principal: person("usr_1"), Message: &runtimev1.DeclareEffects{},
		})
		if code(err) != entity.Forbidden {
			t.Errorf("%s: %v", kind, err)
		}
	}
	reply := b.mustAsk(entity.Command{
		Kind: "agenda", Identity: "a", Principal: entity.Platform(), Message: &runtimev1.DeclareEffects{},
	})
	if _, is := reply.(*structpb.Struct); is {
		t.Errorf("the rules answered: %v", reply)
	}
}
