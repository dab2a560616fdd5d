package binding_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

const host = "shop.example.com"

// A name is one binding with a clock. Its events are the events of all commands.
type name struct {
	testing.TB
	state   *bindingv1.Binding
	now     time.Time
	version uint64
	events  []bindingv1.Event
}

func newName(t testing.TB) *name {
	return &name{TB: t, state: binding.Zero(host), now: time.UnixMilli(1_800_000_000_000)}
}

// do decides a command, applies its events and returns them.
func (n *name) do(c bindingv1.Command) []bindingv1.Event {
	n.Helper()
	call := entity.Call{Now: n.now, Identity: host, Principal: entity.Platform(), Version: n.version + 1}
	events, err := binding.Decide(call, n.state, c)
	if err != nil {
		n.Fatalf("%T: %v", c, err)
	}
	for _, e := range events {
		before := proto.Clone(n.state)
		next := binding.Evolve(n.state, e)
		if !proto.Equal(before, n.state) {
			n.Fatalf("Evolve changed its argument for %T", e)
		}
		n.version++
		n.state = next
		if shown, ok := e.(*bindingv1.DomainShown); ok && shown.GetDomain().GetRevision() != n.version {
			n.Errorf("revision %d of the event with version %d", shown.GetDomain().GetRevision(), n.version)
		}
	}
	n.events = append(n.events, events...)
	return events
}

func (n *name) pass(d time.Duration) { n.now = n.now.Add(d) }

// claim claims the name for the app "app" of the workspace "ws".
func (n *name) claim() {
	n.Helper()
	n.do(&bindingv1.ClaimBinding{WorkspaceId: "ws", AppId: "app", DomainId: "dom"})
}

// report ends the open check.
func (n *name) report(owned, routed bool) {
	n.Helper()
	n.do(&bindingv1.ReportCheck{Number: n.state.GetCheck().GetNumber(), Owned: owned, Routed: routed})
}

// issued ends the open request for a certificate with one that is valid for 90 days.
func (n *name) issued(serial string) {
	n.Helper()
	n.do(&bindingv1.ReportIssued{Number: n.state.GetIssue().GetNumber(), Certificate: &bindingv1.Certificate{
		Serial: serial, Issuer: "Test", NotBefore: n.now.UnixMilli(), NotAfter: n.now.Add(90 * 24 * time.Hour).UnixMilli(),
	}})
}

// activate claims the name and makes it active.
func (n *name) activate() {
	n.Helper()
	n.claim()
	n.report(true, true)
	n.issued("01")
	n.expect("active")
}

// fire passes the time until the first timer and sends its command. It returns the time that has passed.
func (n *name) fire() time.Duration {
	n.Helper()
	all := binding.Timers(n.state)
	if len(all) == 0 {
		n.Fatal("no timer is set")
	}
	first := all[0]
	for _, t := range all[1:] {
		if t.At < first.At {
			first = t
		}
	}
	passed := time.UnixMilli(first.At).Sub(n.now)
	n.now = time.UnixMilli(first.At)
	n.do(first.Message.(bindingv1.Command))
	return passed
}

// expect compares the status and its marks with a text like "removing retry".
func (n *name) expect(want string) {
	n.Helper()
	if got := describe(n.state); got != want {
		n.Fatalf("the binding is %q, want %q", got, want)
	}
}

func describe(s *bindingv1.Binding) string {
	text := map[appv1.DomainStatus]string{0: "free", 1: "pending", 2: "verifying", 3: "active", 4: "failed", 5: "removing"}[s.GetStatus()]
	for flag, set := range map[string]bool{" checking": s.GetChecking()} {
		if set {
			text += flag
		}
	}
	if s.GetRetryRequired() {
		text += " retry"
	}
	if s.GetOperatorRepairRequired() {
		text += " operator"
	}
	return text
}

// shown returns the domain that the app was told last.
func (n *name) shown() *appv1.Domain {
	n.Helper()
	for i := len(n.events) - 1; i >= 0; i-- {
		if e, ok := n.events[i].(*bindingv1.DomainShown); ok {
			return e.GetDomain()
		}
	}
	n.Fatal("no domain was shown")
	return nil
}

// open returns the kinds of the open tasks and the ids of the timers.
func (n *name) open() string {
	var kinds, ids []string
	for _, t := range binding.Tasks(n.state) {
		kinds = append(kinds, t.Kind)
	}
	for _, t := range binding.Timers(n.state) {
		ids = append(ids, t.ID)
	}
	return fmt.Sprint(kinds, ids)
}
