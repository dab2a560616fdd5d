package actors_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

func code(err error) entity.Code {
	var refusal *entity.Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

func TestStateSurvivesRestart(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	b.restart()
	m := b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"), Message: &workspacev1.DescribeWorkspace{}})
	if got := m.(*workspacev1.Description); got.GetWorkspace().GetName() != "Acme" || got.GetRole() != workspacev1.Role_ROLE_OWNER {
		t.Fatalf("described as %v", got)
	}
}

func TestWorkspaceAuthorizesActivity(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	query := func(id, user string) error {
		_, err := b.ask(entity.Command{Kind: entity.KindActivity, Identity: id, Principal: person(user), Message: &activityv1.ReadFeed{}})
		return err
	}
	if err := query("ws_1", "usr_1"); err != nil {
		t.Errorf("the owner is refused: %v", err)
	}
	if got := code(query("ws_1", "usr_2")); got != entity.NotFound {
		t.Errorf("a stranger gets %q", got)
	}
	if got := code(query("ws_none", "usr_1")); got != entity.NotFound {
		t.Errorf("a workspace that is not there gives %q", got)
	}
	c := record("ws_1", operation(activityv1.Kind_KIND_CREATE, "a"))
	c.Principal = person("usr_1")
	if _, err := b.ask(c); code(err) != entity.Forbidden {
		t.Errorf("a person records activity: %v", err)
	}
}

func TestCommandWithIDTakesEffectOnce(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	c := record("ws_1", operation(activityv1.Kind_KIND_CREATE, "a"))
	c.ID = "cmd-1"
	first := b.mustAsk(c).(*activityv1.Recorded).GetSeq()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := b.mustAsk(c).(*activityv1.Recorded).GetSeq(); got != first {
				t.Errorf("the repetition is answered %d, not %d", got, first)
			}
		})
	}
	wg.Wait()
	b.restart()
	if got := b.mustAsk(c).(*activityv1.Recorded).GetSeq(); got != first {
		t.Errorf("after a restart the repetition is answered %d, not %d", got, first)
	}
	if got := b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "b"))).(*activityv1.Recorded).GetSeq(); got != first+1 {
		t.Errorf("the next row is %d", got)
	}
}

func TestConcurrentWritersLeaveNoGap(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	const writers, each = 16, 50
	seen := make([]atomic.Int32, writers*each+1)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				m, err := b.ask(record("ws_1", operation(activityv1.Kind_KIND_WRITE, fmt.Sprintf("f%d/%d", w, i))))
				if err != nil {
					t.Error(err)
					return
				}
				_ = m
				seen[w*each+i].Add(1)
			}
		})
	}
	wg.Wait()
	head := b.mustAsk(record("ws_1")).(*activityv1.Recorded).GetSeq()
	if head != writers*each {
		t.Fatalf("the head is %d", head)
	}
	var after uint64
	for after < head {
		m := b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: "ws_1", Principal: person("usr_1"),
			Message: &activityv1.ReadFeed{Position: after, Limit: 100}}).(*activityv1.Page)
		if m.GetNext() == 0 {
			break
		}
		if m.GetNext() != after+100 {
			t.Fatalf("a page of 100 from %d ends at %d", after, m.GetNext())
		}
		after = m.GetNext()
	}
}

func TestFailedAppendIsNotAcknowledged(t *testing.T) {
	for name, failure := range map[string]error{
		"refused":  persistence.ErrRefused,
		"unknown":  persistence.ErrUnknown,
		"conflict": &persistence.ConflictError{Actual: 7},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.createWorkspace("ws_1", "usr_1")
			b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "a")))
			var failures atomic.Int32
			b.faults.failing(func(p persistence.Proposal) error {
				if p.Stream == "activity/ws_1" && failures.Add(1) == 1 {
					return failure
				}
				return nil
			})
			_, err := b.ask(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "b")))
			if name == "conflict" && err != nil {
				t.Errorf("a conflict is not retried: %v", err)
			}
			if name != "conflict" && code(err) != entity.Unavailable {
				t.Errorf("the failure is answered %v", err)
			}
			want := uint64(2)
			if name == "conflict" {
				want = 3
			}
			if got := b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "c"))).(*activityv1.Recorded).GetSeq(); got != want {
				t.Errorf("the next row is %d, not %d", got, want)
			}
		})
	}
}

func TestFailedProposalKeepsDurableRows(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	var n atomic.Int32
	b.faults.failing(func(p persistence.Proposal) error {
		if p.Stream == "activity/ws_1" && n.Add(1)%7 == 0 {
			return persistence.ErrRefused
		}
		return nil
	})
	var acknowledged atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 40 {
				if _, err := b.ask(record("ws_1", operation(activityv1.Kind_KIND_WRITE, fmt.Sprintf("%d-%d", w, i)))); err == nil {
					acknowledged.Add(1)
				}
			}
		})
	}
	wg.Wait()
	b.faults.failing(nil)
	if head := b.mustAsk(record("ws_1")).(*activityv1.Recorded).GetSeq(); int64(head) != acknowledged.Load() {
		t.Errorf("%d rows, %d acknowledged", head, acknowledged.Load())
	}
}

func TestSettleWaitsForChain(t *testing.T) {
	b := newBench(t)
	b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: "acme", Principal: entity.Platform(), ID: "1",
		Message: &slugv1.ClaimSlug{WorkspaceId: "ws_1", WorkspaceName: "Acme", CreatorId: "usr_1"}})
	if err := b.router.Settle(context.Background(), entity.KindSlug, "acme"); err != nil {
		t.Fatal(err)
	}
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"), Message: &workspacev1.Authorize{Any: []string{entity.Admin}}})
}

func TestChainContinuesAfterRestart(t *testing.T) {
	b := newBench(t)
	b.faults.failing(func(p persistence.Proposal) error {
		if p.Stream == "workspace/ws_1" {
			return persistence.ErrRefused
		}
		return nil
	})
	b.mustAsk(entity.Command{Kind: entity.KindSlug, Identity: "acme", Principal: entity.Platform(), ID: "1",
		Message: &slugv1.ClaimSlug{WorkspaceId: "ws_1", WorkspaceName: "Acme", CreatorId: "usr_1"}})
	b.restart()
	if err := b.router.Settle(context.Background(), entity.KindSlug, "acme"); err != nil {
		t.Fatal(err)
	}
	b.mustAsk(entity.Command{Kind: entity.KindWorkspace, Identity: "ws_1", Principal: person("usr_1"), Message: &workspacev1.Authorize{}})
}
