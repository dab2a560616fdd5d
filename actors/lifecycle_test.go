package actors_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// fragile is a kind with rules that panic on demand.
func fragile() entity.Kind {
	return entity.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{
		Name: "fragile",
		Zero: func(identity string) *slugv1.Slug { return &slugv1.Slug{Slug: identity} },
		Decide: func(_ entity.Call, _ *slugv1.Slug, c slugv1.Command) ([]slugv1.Event, error) {
			if claim, ok := c.(*slugv1.ClaimSlug); ok {
				if claim.GetWorkspaceId() == "" {
					panic("no workspace")
				}
				return []slugv1.Event{&slugv1.SlugClaimed{WorkspaceId: claim.GetWorkspaceId()}}, nil
			}
			return nil, nil
		},
		Evolve: func(s *slugv1.Slug, e slugv1.Event) *slugv1.Slug {
			return &slugv1.Slug{Slug: s.GetSlug(), WorkspaceId: e.(*slugv1.SlugClaimed).GetWorkspaceId()}
		},
		Reply: func(_ entity.Call, s *slugv1.Slug, _ slugv1.Command, _ []slugv1.Event) proto.Message { return s },
	}.Kind()
}

func withFragile(b *bench) { b.extra = []entity.Kind{fragile()} }

func toFragile(m slugv1.Command) entity.Command {
	return entity.Command{Kind: "fragile", Identity: "x", Principal: entity.Platform(), Message: m}
}

func TestPanicIsAnsweredAndEntityRestarts(t *testing.T) {
	b := newBench(t, withFragile)
	b.mustAsk(toFragile(&slugv1.ClaimSlug{WorkspaceId: "ws_1"}))
	if _, err := b.ask(toFragile(&slugv1.ClaimSlug{})); code(err) != entity.Internal || strings.Contains(err.Error(), "no workspace") {
		t.Errorf("a panic is answered %v", err)
	}
	if got := b.mustAsk(toFragile(&slugv1.ResolveSlug{})).(*slugv1.Slug).GetWorkspaceId(); got != "ws_1" {
		t.Errorf("the state after the restart is %q", got)
	}
}

// metric returns the value of a counter or gauge with these label values.
func (b *bench) metric(name string, labels ...string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			match := true
			for _, want := range labels {
				match = match && strings.Contains(strings.Join(values, "|"), want)
			}
			if match {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func TestIdleEntitiesArePassivated(t *testing.T) {
	b := newBench(t, func(b *bench) { b.idle = time.Minute })
	b.createWorkspace("ws_1", "usr_1")
	b.write("ws_1", 1, 3)
	b.clock.Advance(2 * time.Minute)
	b.system.Sweep()
	b.eventually(func() bool { return b.metric("atelier_actor_active", "workspace") == 0 })
	b.write("ws_1", 4, 4)
	if head := b.mustAsk(record("ws_1")).(*activityv1.Recorded).GetSeq(); head != 4 {
		t.Errorf("the head is %d", head)
	}
}

func TestFollowedWorkspaceStaysActive(t *testing.T) {
	b := newBench(t, func(b *bench) { b.idle = time.Minute })
	b.createWorkspace("ws_1", "usr_1")
	f := b.follow(t, "ws_1", 0, false)
	b.clock.Advance(2 * time.Minute)
	b.system.Sweep()
	b.write("ws_1", 1, 5)
	contiguous(t, f.wait(5), 1, 5)
	if got := b.metric("atelier_actor_passivations_total", "workspace"); got != 0 {
		t.Errorf("%v passivations", got)
	}
}

// eventually polls until a condition holds; the system has no event for it.
func (b *bench) eventually(holds func() bool) {
	b.t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			b.t.Fatal("the condition does not hold in time")
		}
	}
}

func TestCommandsDuringPassivation(t *testing.T) {
	b := newBench(t, func(b *bench) { b.idle = time.Nanosecond })
	b.createWorkspace("ws_1", "usr_1")
	var writing sync.WaitGroup
	for range 4 {
		writing.Go(func() {
			for i := range 100 {
				b.clock.Advance(time.Second)
				b.system.Sweep()
				b.write("ws_1", i, i)
			}
		})
	}
	writing.Wait()
	if head := b.mustAsk(record("ws_1")).(*activityv1.Recorded).GetSeq(); head != 400 {
		t.Errorf("the head is %d", head)
	}
}

func TestTooManyCommandsInFlightAreRefused(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	held := make(chan func(), 8192)
	b.faults.holding(func(p persistence.Proposal) bool { return p.Stream == "activity/ws_1" }, held)
	var wg sync.WaitGroup
	refused := make(chan error, 8192)
	for range 5000 {
		wg.Go(func() {
			if _, err := b.ask(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "a"))); err != nil {
				refused <- err
			}
		})
	}
	if err := <-refused; code(err) != entity.Unavailable {
		t.Errorf("refused with %v", err)
	}
	b.faults.holding(nil, nil)
	go func() {
		for release := range held {
			release()
		}
	}()
	wg.Wait()
	close(held)
	if b.metric("atelier_actor_refused_total", "activity") == 0 {
		t.Error("refusals are not counted")
	}
	if got := b.metric("atelier_actor_in_flight", "activity"); got != 0 {
		t.Errorf("%v commands are still in flight", got)
	}
}

func TestUnknownKindsAndMessagesAreRefused(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	for name, c := range map[string]entity.Command{
		"kind":              {Kind: "nothing", Identity: "x", Principal: entity.Platform(), Message: &wirev1.Done{}},
		"message":           {Kind: entity.KindWorkspace, Identity: "ws_1", Principal: entity.Platform(), Message: &wirev1.Done{}},
		"another's message": {Kind: entity.KindActivity, Identity: "ws_1", Principal: entity.Platform(), Message: &workspacev1.ReportReady{}},
	} {
		if _, err := b.ask(c); code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStopAnswersAllRequests(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	ctx, cancel := context.WithCancel(context.Background())
	router := b.router
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := router.Ask(ctx, record("ws_1", operation(activityv1.Kind_KIND_WRITE, "a"))); err != nil {
					return
				}
			}
		})
	}
	b.write("ws_1", 1, 20)
	b.restart()
	cancel()
	wg.Wait()
	b.write("ws_1", 1, 1)
}
