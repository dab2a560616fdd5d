package binding_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// drawCommand draws a command of one of three apps, of an executor or of a timer. Numbers and times are often the numbers and
// times of the state.
func drawCommand(t *rapid.T, n *name) bindingv1.Command {
	app := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "app")
	near := func(label string, number uint64) uint64 {
		return rapid.SampledFrom([]uint64{number, number, number, number + 1, 0}).Draw(t, label)
	}
	at := func(label string, due int64) int64 { return rapid.SampledFrom([]int64{due, due, 0, 1}).Draw(t, label) }
	flip := func(label string) bool { return rapid.Bool().Draw(t, label) }
	failure := rapid.SampledFrom([]string{"", "", "failed"}).Draw(t, "failure")
	now := n.now.UnixMilli()
	return rapid.SampledFrom([]bindingv1.Command{
		&bindingv1.ClaimBinding{WorkspaceId: "ws" + app, AppId: "app" + app, DomainId: "dom" + app},
		&bindingv1.RecheckBinding{DomainId: "dom" + app},
		&bindingv1.ReleaseBinding{DomainId: "dom" + app},
		&bindingv1.RepairBinding{DomainId: "dom" + app, Release: flip("release")},
		&bindingv1.CheckBinding{At: at("check at", n.state.GetNextCheckAt())},
		&bindingv1.IssueCertificate{At: at("issue at", n.state.GetIssueAt())},
		&bindingv1.CleanUpBinding{At: at("clean-up at", n.state.GetCleanUpAt())},
		&bindingv1.ReportCheck{Number: near("check", n.state.GetLastCheck()), Owned: flip("owned"), Routed: flip("routed"), Failure: failure,
			Renews: n.state.GetCertificate().GetSerial(), RenewAt: rapid.SampledFrom([]int64{0, now - 1000, now + 1000}).Draw(t, "renew at")},
		&bindingv1.RenewBinding{DomainId: "dom" + app},
		&bindingv1.ReportIssued{Number: near("issue", n.state.GetLastIssue()), Certificate: &bindingv1.Certificate{
			Serial: fmt.Sprint(now), NotBefore: now, NotAfter: now + rapid.Int64Range(-1e9, 1e10).Draw(t, "lifetime"),
		}},
		&bindingv1.ReportIssueFailed{Number: near("issue", n.state.GetLastIssue()), Final: flip("final"), RetryAt: now + 1000},
		&bindingv1.ReportCleanedUp{Number: near("clean-up", n.state.GetLastCleanUp())},
		&bindingv1.ReportCleanUpFailed{Number: near("clean-up", n.state.GetLastCleanUp()), Reason: "failed"},
		&bindingv1.DescribeBinding{},
	}).Draw(t, "command")
}

// TestLaws checks the laws of bindings after each of a sequence of commands.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newName(t)
		owner, seen := "", false
		for range rapid.IntRange(1, 60).Draw(rt, "commands") {
			n.pass(time.Duration(rapid.Int64Range(0, int64(20*time.Hour)).Draw(rt, "time")))
			c := drawCommand(rt, n)
			events := n.do(c)
			for _, e := range events {
				switch e := e.(type) {
				case *bindingv1.BindingClaimed:
					if owner != "" {
						rt.Fatalf("%s claimed the name of %s", e.GetDomainId(), owner)
					}
					owner, seen = e.GetDomainId(), false
				case *bindingv1.BindingReleased:
					if owner != e.GetDomainId() {
						rt.Fatalf("%s was released, and the owner is %s", e.GetDomainId(), owner)
					}
					owner = ""
				case *bindingv1.Checked:
					seen = seen || e.GetFailure() == "" && e.GetOwned() && e.GetRouted()
				case *bindingv1.DomainShown:
					if owner != e.GetDomain().GetId() || "dom"+e.GetAppId()[3:] != owner || e != events[len(events)-1] {
						rt.Fatalf("%v was shown, and the owner is %s", e, owner)
					}
				}
			}
			if _, refused := first(events).(*bindingv1.ClaimRefused); !refused && len(events) > 0 {
				if again := n.do(c); len(again) > 0 && !isRefusal(again) {
					rt.Fatalf("%v a second time: %v", c, again)
				}
			}
			checkState(rt, n.state, owner, seen)
		}
		checkReplay(rt, n)
		checkTasksEnd(rt, n)
	})
}

func first(events []bindingv1.Event) bindingv1.Event {
	if len(events) == 0 {
		return nil
	}
	return events[0]
}

func isRefusal(events []bindingv1.Event) bool {
	_, refused := first(events).(*bindingv1.ClaimRefused)
	return refused
}

// checkState checks the laws of every state: the owner, the proof of an active name, and that something is open unless a
// person has to act.
func checkState(t *rapid.T, s *bindingv1.Binding, owner string, seen bool) {
	if s.GetDomainId() != owner {
		t.Fatalf("the owner is %q, want %q", s.GetDomainId(), owner)
	}
	if s.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_ACTIVE && (!seen || s.GetCertificate() == nil) {
		t.Fatal("the name is active without its records or certificate")
	}
	waits := owner == "" || s.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_FAILED || s.GetRetryRequired() || s.GetOperatorRepairRequired()
	tasks, timers := binding.Tasks(s), binding.Timers(s)
	checkingFailed := s.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_FAILED && len(tasks)+len(timers) > 0
	if open := len(tasks) + len(timers); (open == 0) != waits || checkingFailed {
		t.Fatalf("%s: %d tasks and timers are open: %v", describe(s), open, s)
	}
	for _, at := range []int64{s.GetNextCheckAt(), s.GetIssueAt(), s.GetCleanUpAt()} {
		if at < 0 {
			t.Fatalf("a timer is due at %d", at)
		}
	}
}

// checkReplay compares the state with the replay of the stored events.
func checkReplay(t *rapid.T, n *name) {
	replayed := binding.Zero(host)
	for _, e := range n.events {
		encoded, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := entity.Message(entity.MessageName(e), encoded)
		if err != nil {
			t.Fatal(err)
		}
		replayed = binding.Evolve(replayed, stored.(bindingv1.Event))
	}
	if !proto.Equal(replayed, n.state) {
		t.Fatalf("replayed %v, want %v", replayed, n.state)
	}
}

// checkTasksEnd checks that the report of each open task, with success or failure, closes it.
func checkTasksEnd(t *rapid.T, n *name) {
	for _, task := range binding.Tasks(n.state) {
		var reports []bindingv1.Command
		switch m := task.Message.(type) {
		case *bindingv1.Check:
			reports = []bindingv1.Command{&bindingv1.ReportCheck{Number: m.GetNumber(), Owned: true, Routed: true},
				&bindingv1.ReportCheck{Number: m.GetNumber(), Failure: "failed"}}
		case *bindingv1.Issue:
			reports = []bindingv1.Command{&bindingv1.ReportIssued{Number: m.GetNumber()}, &bindingv1.ReportIssueFailed{Number: m.GetNumber()},
				&bindingv1.ReportIssueFailed{Number: m.GetNumber(), Final: true}}
		case *bindingv1.CleanUp:
			reports = []bindingv1.Command{&bindingv1.ReportCleanedUp{Number: m.GetNumber()}, &bindingv1.ReportCleanUpFailed{Number: m.GetNumber()}}
		}
		for _, report := range reports {
			copied := &name{TB: n.TB, state: n.state, now: n.now, version: n.version}
			copied.do(report)
			if slices.ContainsFunc(binding.Tasks(copied.state), func(other entity.Task) bool { return other.Kind == task.Kind && other.ID == task.ID }) {
				t.Fatalf("the task %s is open after %T", task.Kind, report)
			}
		}
	}
}
