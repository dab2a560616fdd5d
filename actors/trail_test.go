package actors_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A tracer records the rows that it gets, and fails on demand.
type tracer struct {
	mu   sync.Mutex
	fail int
	rows []string
}

func (s *tracer) react(_ context.Context, workspaceID string, row []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail > 0 {
		s.fail--
		return errors.New("not now")
	}
	s.rows = append(s.rows, workspaceID+" "+string(activity.Stored(row).JSON()[:8]))
	return nil
}

func (s *tracer) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.rows...)
}

// TestTrail verifies that rows are passed to React in order, only of workspaces with a row in the list, again after a failure,
// and before Settle returns.
func TestTrail(t *testing.T) {
	s := &tracer{}
	b := newBench(t, withHall, func(b *bench) {
		b.trail = actors.Trail{List: "people", Kind: "hall", Begins: entity.MessageName(&workspacev1.InvitationAccepted{}), React: s.react}
	})
	settle := func() {
		t.Helper()
		for _, id := range []string{"ws_1", "ws_2"} {
			if err := b.system.SettleAll(t.Context(), b.router.Partition(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(id, path string) { b.mustAsk(record(id, operation(activityv1.Kind_KIND_WRITE, path))) }
	expect := func(want ...string) {
		t.Helper()
		settle()
		got := s.seen()
		if len(got) != len(want) {
			t.Fatalf("saw %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("saw %v, want %v", got, want)
			}
		}
	}
	b.createWorkspace("ws_1", "usr_1")
	b.createWorkspace("ws_2", "usr_1")
	write("ws_1", "before")
	expect()
	b.createHall("ws_1")
	b.join("ws_1", "usr_2")
	write("ws_1", "a")
	write("ws_2", "b")
	expect(`ws_1 {"seq":2`)
	s.fail = 3
	write("ws_1", "c")
	write("ws_1", "d")
	expect(`ws_1 {"seq":2`, `ws_1 {"seq":3`, `ws_1 {"seq":4`)

	// The next process finds the workspaces in the list. It may repeat rows after its cursor, and misses none.
	b.restart()
	write("ws_1", "e")
	settle()
	if got := s.seen(); got[len(got)-1] != `ws_1 {"seq":5` {
		t.Errorf("saw %v", got)
	}
}

// TestTrailBeginsWithinFeedRead verifies that React gets the rows after the event that begins a workspace's trail, and none
// before it, if one read of the feed has both.
func TestTrailBeginsWithinFeedRead(t *testing.T) {
	b := newBench(t)
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "before")))
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "after")))
	s := &tracer{}
	b.trail = actors.Trail{List: "none", Kind: entity.KindWorkspace, Begins: entity.MessageName(&workspacev1.WorkspaceCreated{}), React: s.react}
	b.loseCursors()
	b.settleAll()
	if got := s.seen(); len(got) != 1 || got[0] != `ws_1 {"seq":2` {
		t.Errorf("saw %v", got)
	}
}
