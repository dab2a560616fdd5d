package actors_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// TestWorkContinuesDuringMoves runs timers, tasks, reactions and owned entities at once while partitions move: every
// acknowledged change takes effect exactly once.
func TestWorkContinuesDuringMoves(t *testing.T) {
	b := newBench(t, withNotes, inSplit, withChores(2, func(_ context.Context, task actors.Task) (proto.Message, error) {
		if task.Attempt == 1 && len(task.ID)%2 == 0 {
			return nil, fmt.Errorf("task %s fails once", task.ID)
		}
		return task.Message, nil
	}))
	b.createWorkspace("ws_1", "usr_1")
	const writers, least = 4, 12
	var done [writers]int
	b.moving(11, func(enough func() bool) {
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for n := 0; n < least || !enough(); n++ {
					id, agenda := fmt.Sprintf("%d-%d", w, n), fmt.Sprint("agenda-", w)
					ask := func(c entity.Command) {
						c.ID = id + entity.MessageName(c.Message) + c.Kind
						b.mustAsk(c)
					}
					timer := toAgenda(agenda, timerOf("t"+id, b.clock.Now().Add(time.Duration(n%3)*time.Second)))
					timer.ID = "timer" + id
					b.mustAsk(timer)
					ask(toAgenda(agenda, act("open", "o"+id)))
					ask(toNote("ws_1/"+fmt.Sprint(w), person("usr_1"), count))
					ask(entity.Command{Kind: entity.KindSlug, Identity: "slug-" + id, Principal: entity.Platform(), Message: &slugv1.ClaimSlug{
						WorkspaceId: "ws-" + id, WorkspaceName: "Acme", CreatorId: "usr_1",
					}})
					b.clock.Advance(200 * time.Millisecond)
					b.system.Tick()
					b.other.Tick()
					done[w] = n + 1
				}
			})
		}
		writing.Wait()
	})
	b.clock.Advance(time.Hour)
	b.eventually(func() bool {
		b.system.Tick()
		b.other.Tick()
		return b.rows("timer") == 0 && b.rows("task") == 0
	})
	for w := range writers {
		if got := counted(b.mustAsk(toNote("ws_1/"+fmt.Sprint(w), person("usr_1"), &slugv1.ResolveSlug{}))); got != int64(done[w]) {
			t.Errorf("note %d counts %d of %d", w, got, done[w])
		}
		for n := range done[w] {
			id, agenda := fmt.Sprintf("%d-%d", w, n), fmt.Sprint("agenda-", w)
			for action, of := range map[string]string{"ring": "t" + id, "done": "o" + id} {
				if got := b.count(agenda, action, of); got != 1 {
					t.Errorf("%s of %s took effect %d times", action, of, got)
				}
			}
			if err := b.router.Settle(t.Context(), entity.KindSlug, "slug-"+id); err != nil {
				t.Fatal(err)
			}
			if _, err := b.list(entity.KindWorkspace, "ws-"+id, "usr_1", &wirev1.List{Name: "members"}); err != nil {
				t.Errorf("the workspace of %s: %v", id, err)
			}
		}
	}
}
