package binding_test

import (
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

const year = 365 * 24 * time.Hour

// restart sets the clock, and sends the commands of the timers that are due then, as the runtime does when a node starts. It returns their
// IDs.
func (n *name) restart(step time.Duration) (due []string) {
	n.Helper()
	n.pass(step)
	for _, timer := range binding.Timers(n.state) {
		pause, bounded := binding.Rules.Pauses[timer.ID]
		if at := n.now.UnixMilli(); timer.At <= at || bounded && entity.HasPassed(timer.At-pause.Milliseconds(), at, pause) {
			due = append(due, timer.ID)
			n.do(timer.Message.(bindingv1.Command))
		}
	}
	return due
}

// TestClockSteps restarts the node with a clock that is right, after the clock was a year ahead or behind. Checks go on within
// LongestPause, and the waiting time of a name counts anew.
func TestClockSteps(t *testing.T) {
	for name, test := range map[string]struct {
		begin func(*name)
		back  func(*name)
		want  string
	}{
		"a name without its records": {
			func(n *name) { n.claim(); n.report(false, false) },
			func(n *name) {
				n.report(false, false)
				if due := n.state.GetNextCheckAt() - n.now.UnixMilli(); due > binding.LongestPause.Milliseconds() {
					n.Errorf("the next check is due in %d ms", due)
				}
			}, "pending",
		},
		"an active name": {(*name).activate, func(n *name) { n.report(true, true) }, "active"},
		"an active name without its TXT record": {
			func(n *name) { n.activate(); n.fire(); n.report(false, true) },
			func(n *name) {
				n.report(false, true)
				for began := n.now; n.now.Sub(began) < binding.Patience; n.report(false, true) {
					n.expect("active")
					n.fire()
				}
			}, "failed",
		},
		"a clean-up that has failed": {
			func(n *name) {
				n.activate()
				n.do(&bindingv1.ReleaseBinding{DomainId: "dom"})
				n.do(&bindingv1.ReportCleanUpFailed{Number: n.state.GetCleanUp().GetNumber(), Reason: "failed"})
			},
			func(n *name) { n.do(&bindingv1.ReportCleanedUp{Number: n.state.GetCleanUp().GetNumber()}) }, "free",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ahead := range []time.Duration{year, 0, -year} {
				n := newName(t)
				if n.pass(ahead); ahead >= 0 {
					test.begin(n)
				} else {
					n.claim()
					n.report(false, false)
				}
				switch due := n.restart(-ahead); {
				case ahead == 0 && len(due) != 0:
					t.Errorf("%v is due at once, although the clock is right", due)
				case ahead > 0 && len(due) != 1:
					t.Errorf("%v is due after the clock was ahead", due)
				case ahead > 0:
					test.back(n)
					n.expect(test.want)
				case ahead < 0 && len(due) != 1:
					t.Errorf("%v is due after the clock was behind", due)
				}
			}
		})
	}
}

// TestPatienceAfterTheClockWasAhead checks that a name fails when its records are missing for Patience from the right time on.
func TestPatienceAfterTheClockWasAhead(t *testing.T) {
	n := newName(t)
	n.pass(year)
	n.claim()
	n.report(false, false)
	n.restart(-year)
	began := n.now
	for n.report(false, false); n.state.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_PENDING; n.report(false, false) {
		n.fire()
	}
	if after := n.now.Sub(began); after < binding.Patience || after > binding.Patience+binding.LongestPause {
		t.Errorf("failed after %v", after)
	}
}

// TestRenewalAfterTheClockWasAhead checks that the next check corrects the time of a request for a certificate that was recorded while the
// clock was ahead: it would come after the certificate has expired.
func TestRenewalAfterTheClockWasAhead(t *testing.T) {
	const right = 60 * 24 * time.Hour
	issue := func(n *name, began time.Time) { // the authority's clock is right
		n.do(&bindingv1.ReportIssued{Number: n.state.GetIssue().GetNumber(), Certificate: &bindingv1.Certificate{
			Serial: "01", NotBefore: began.UnixMilli(), NotAfter: began.Add(90 * 24 * time.Hour).UnixMilli(),
		}})
	}
	for name, test := range map[string]struct {
		ahead  time.Duration
		failed bool
		want   time.Duration
	}{
		"right": {0, false, right}, "ahead": {year, false, time.Minute}, "ahead by a day": {24 * time.Hour, false, right},
		"a failure while ahead": {year, true, time.Minute}, "a failure": {0, true, 2 * time.Minute},
	} {
		n := newName(t)
		began := n.now
		n.pass(test.ahead)
		n.claim()
		n.report(true, true)
		if test.failed {
			n.do(&bindingv1.ReportIssueFailed{Number: n.state.GetIssue().GetNumber(), Reason: "failed"})
		} else {
			issue(n, began)
		}
		n.restart(-test.ahead)
		n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
		n.report(true, true)
		if due := time.UnixMilli(n.state.GetIssueAt()).Sub(n.now); due != test.want {
			t.Errorf("%s: the request is due in %v, want %v", name, due, test.want)
		}
	}
}
