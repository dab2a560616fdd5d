package binding_test

import (
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

func TestRenewal(t *testing.T) {
	n := newName(t)
	n.activate()
	began := n.now
	for n.state.GetIssue() == nil {
		n.fire()
		if n.state.GetCheck() != nil {
			n.report(true, true)
		}
	}
	if passed := n.now.Sub(began); passed != 60*24*time.Hour {
		t.Errorf("the renewal begins after %s", passed)
	}
	if n.state.GetIssue().GetRenews() != "01" {
		t.Errorf("the request is %v", n.state.GetIssue())
	}
	n.expect("active")
	n.do(&bindingv1.ReportIssued{Number: n.state.GetIssue().GetNumber() - 1, Certificate: &bindingv1.Certificate{Serial: "late"}})
	n.issued("02")
	n.expect("active")
	if n.state.GetCertificate().GetSerial() != "02" {
		t.Errorf("the certificate is %v", n.state.GetCertificate())
	}
}

// TestSuggestedRenewal checks that a renewal is due when the authority suggests it, if that is earlier.
func TestSuggestedRenewal(t *testing.T) {
	day := 24 * time.Hour
	for name, test := range map[string]struct {
		suggested time.Duration
		serial    string
		want      time.Duration
	}{
		"earlier":                   {20 * day, "01", 20 * day},
		"past":                      {-day, "01", time.Minute},
		"later":                     {70 * day, "01", 60 * day},
		"of an earlier certificate": {20 * day, "00", 60 * day},
		"none":                      {0, "", 60 * day},
	} {
		n := newName(t)
		n.activate()
		began := n.now
		n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
		report := &bindingv1.ReportCheck{Number: n.state.GetCheck().GetNumber(), Owned: true, Routed: true, Renews: test.serial}
		if test.suggested != 0 {
			report.RenewAt = began.Add(test.suggested).UnixMilli()
		}
		n.do(report)
		for range 2 { // a check that finds the same time moves it no further
			if due := time.UnixMilli(n.state.GetIssueAt()).Sub(began); due != test.want {
				t.Errorf("%s: due after %v, want %v", name, due, test.want)
			}
			n.pass(time.Second)
			n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
			report.Number = n.state.GetCheck().GetNumber()
			n.do(report)
		}
	}
}

// TestSuggestionAfterFailure checks that a suggestion does not shorten the pause after a renewal that has failed.
func TestSuggestionAfterFailure(t *testing.T) {
	n := newName(t)
	n.activate()
	n.do(&bindingv1.RenewBinding{DomainId: "dom"})
	n.failed(false, 5*time.Hour)
	due := n.state.GetIssueAt()
	n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
	n.do(&bindingv1.ReportCheck{Number: n.state.GetCheck().GetNumber(), Owned: true, Routed: true, Renews: "01", RenewAt: n.now.UnixMilli()})
	if n.state.GetIssueAt() != due {
		t.Errorf("due at %d, want %d", n.state.GetIssueAt(), due)
	}
}

func TestRenewalForAnOperator(t *testing.T) {
	n := newName(t)
	n.claim()
	if events := n.do(&bindingv1.RenewBinding{DomainId: "dom"}); len(events) != 0 {
		t.Errorf("events of a pending name: %v", events)
	}
	n.report(true, true)
	n.issued("01")
	if events := n.do(&bindingv1.RenewBinding{DomainId: "another"}); len(events) != 0 {
		t.Errorf("events of another domain: %v", events)
	}
	n.do(&bindingv1.RenewBinding{DomainId: "dom"})
	if n.state.GetIssue().GetRenews() != "01" || n.open() != "[domain.issue] [check]" {
		t.Errorf("the request is %v, open: %s", n.state.GetIssue(), n.open())
	}
	if events := n.do(&bindingv1.RenewBinding{DomainId: "dom"}); len(events) != 0 {
		t.Errorf("events of a second command: %v", events)
	}
	n.issued("02")
	n.expect("active")
}

func TestExpiredCertificateIsNotRenewedAtOnce(t *testing.T) {
	n := newName(t)
	n.claim()
	n.report(true, true)
	n.do(&bindingv1.ReportIssued{Number: 1, Certificate: &bindingv1.Certificate{Serial: "01", NotBefore: 1, NotAfter: 2}})
	if due := n.state.GetIssueAt() - n.now.UnixMilli(); due < 1000 {
		t.Errorf("the renewal is due in %d ms", due)
	}
}

// failed reports a failed request for a certificate.
func (n *name) failed(final bool, retry time.Duration) {
	n.Helper()
	c := &bindingv1.ReportIssueFailed{Number: n.state.GetIssue().GetNumber(), Reason: "the authority refuses", Final: final}
	if retry != 0 {
		c.RetryAt = n.now.Add(retry).UnixMilli()
	}
	n.do(c)
}

func TestFailedRequests(t *testing.T) {
	verifying := func(t *testing.T) *name {
		n := newName(t)
		n.claim()
		n.report(true, true)
		return n
	}
	t.Run("back_off", func(t *testing.T) {
		n := verifying(t)
		for i, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			n.failed(false, 0)
			n.expect("verifying")
			if due := n.state.GetIssueAt() - n.now.UnixMilli(); due != (want * time.Minute).Milliseconds() {
				t.Errorf("pause %d is %d ms, want %s", i, due, want*time.Minute)
			}
			if n.shown().GetLastError() != "the authority refuses" {
				t.Errorf("shown: %v", n.shown())
			}
			for n.state.GetIssue() == nil {
				n.fire()
				if n.state.GetCheck() != nil {
					n.report(true, true)
				}
			}
		}
		n.issued("01")
		n.expect("active")
		if n.shown().GetLastError() != "" {
			t.Errorf("shown: %v", n.shown())
		}
	})
	t.Run("authority_sets_the_time", func(t *testing.T) {
		n := verifying(t)
		n.failed(false, 5*time.Hour)
		if due := n.state.GetIssueAt() - n.now.UnixMilli(); due != (5 * time.Hour).Milliseconds() {
			t.Errorf("due in %d ms", due)
		}
	})
	t.Run("time_of_authority_is_bounded", func(t *testing.T) {
		n := verifying(t)
		n.failed(false, 10000*time.Hour)
		if due := n.state.GetIssueAt() - n.now.UnixMilli(); due != (7 * 24 * time.Hour).Milliseconds() {
			t.Errorf("due in %d ms", due)
		}
	})
	t.Run("final_refusal_fails", func(t *testing.T) {
		n := verifying(t)
		n.failed(true, 0)
		n.expect("failed")
		if n.open() != "[] []" || n.shown().GetLastError() != "the authority refuses" {
			t.Errorf("open: %s, shown: %v", n.open(), n.shown())
		}
		n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
		n.report(true, true)
		n.expect("verifying")
	})
	t.Run("fails_after_72_hours", func(t *testing.T) {
		n := verifying(t)
		n.pass(binding.Patience)
		n.failed(false, 0)
		n.expect("failed")
	})
	t.Run("active_name_serves_until_its_certificate_ends", func(t *testing.T) {
		n := newName(t)
		n.activate()
		for n.state.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_ACTIVE {
			n.fire()
			if n.state.GetCheck() != nil {
				n.report(true, true)
			}
			if n.state.GetIssue() != nil {
				n.failed(true, 0)
			}
		}
		n.expect("failed")
		if late := n.now.UnixMilli() - n.state.GetCertificate().GetNotAfter(); late < 0 || late > time.Hour.Milliseconds() {
			t.Errorf("failed %d ms after the end of the certificate", late)
		}
	})
}

// TestPauseOfTheAuthority has checks of a name after its authority has asked for a pause of days.
func TestPauseOfTheAuthority(t *testing.T) {
	t.Run("fails_after_72_hours_of_a_long_pause", func(t *testing.T) {
		n := newName(t)
		n.claim()
		n.report(true, true)
		n.failed(false, 100*time.Hour)
		for n.state.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_VERIFYING {
			n.fire()
			n.report(true, true)
		}
		n.expect("failed")
		if after := n.now.UnixMilli() - n.state.GetCreatedAt(); after < binding.Patience.Milliseconds() || after > (binding.Patience+time.Hour).Milliseconds() {
			t.Errorf("failed after %d ms", after)
		}
		if n.open() != "[] []" || !strings.Contains(n.shown().GetLastError(), "the authority refuses") {
			t.Errorf("open: %s, shown: %v", n.open(), n.shown())
		}
	})
	t.Run("request_under_way_after_72_hours", func(t *testing.T) {
		n := newName(t)
		n.claim()
		n.report(true, true)
		n.fire()
		n.pass(binding.Patience)
		n.report(true, true)
		n.expect("verifying")
		n.issued("01")
		n.expect("active")
	})
}

// cleanUpFailed reports a failed clean-up.
func (n *name) cleanUpFailed() {
	n.Helper()
	n.do(&bindingv1.ReportCleanUpFailed{Number: n.state.GetCleanUp().GetNumber(), Reason: "the store does not answer"})
}

func TestRelease(t *testing.T) {
	for name, prepare := range map[string]func(*name){
		"pending":   func(n *name) { n.claim() },
		"verifying": func(n *name) { n.claim(); n.report(true, true) },
		"active":    func(n *name) { n.activate() },
		"checking":  func(n *name) { n.activate(); n.do(&bindingv1.RecheckBinding{DomainId: "dom"}) },
		"renewing": func(n *name) {
			n.activate()
			n.do(&bindingv1.IssueCertificate{At: n.state.GetIssueAt()})
		},
		"failed": func(n *name) { n.claim(); n.report(true, true); n.failed(true, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newName(t)
			prepare(n)
			if events := n.do(&bindingv1.ReleaseBinding{DomainId: "another"}); len(events) != 0 {
				t.Errorf("events of the release of another domain: %v", events)
			}
			check, issue := n.state.GetCheck().GetNumber(), n.state.GetIssue().GetNumber()
			n.do(&bindingv1.ReleaseBinding{DomainId: "dom"})
			n.expect("removing")
			if n.open() != "[domain.clean_up] []" {
				t.Errorf("open: %s", n.open())
			}
			if events := n.do(&bindingv1.ReleaseBinding{DomainId: "dom"}); len(events) != 0 {
				t.Errorf("events of a second release: %v", events)
			}
			n.do(&bindingv1.ReportCleanedUp{Number: n.state.GetCleanUp().GetNumber()})
			n.expect("free")
			n.do(&bindingv1.ClaimBinding{WorkspaceId: "ws2", AppId: "app2", DomainId: "dom2"})
			for _, late := range []bindingv1.Command{
				&bindingv1.ReportCheck{Number: check, Owned: true, Routed: true}, &bindingv1.ReportIssued{Number: issue},
				&bindingv1.ReleaseBinding{DomainId: "dom"}, &bindingv1.RecheckBinding{DomainId: "dom"}, &bindingv1.ReportCleanedUp{Number: 1},
			} {
				if events := n.do(late); len(events) != 0 {
					t.Errorf("events of the late %T: %v", late, events)
				}
			}
		})
	}
}

func TestExhaustedCleanUp(t *testing.T) {
	n := newName(t)
	n.activate()
	n.do(&bindingv1.ReleaseBinding{DomainId: "dom"})
	exhaust := func() {
		t.Helper()
		for range binding.CleanUpAttempts - 1 {
			n.cleanUpFailed()
			n.expect("removing")
			n.fire()
		}
		n.cleanUpFailed()
	}
	for range binding.CleanUpRetries {
		exhaust()
		n.expect("removing retry")
		if n.open() != "[] []" || n.shown().GetLastError() == "" {
			t.Errorf("open: %s, shown: %v", n.open(), n.shown())
		}
		n.do(&bindingv1.RecheckBinding{DomainId: "dom"})
		n.expect("removing checking")
	}
	exhaust()
	n.expect("removing operator")
	if events := n.do(&bindingv1.RecheckBinding{DomainId: "dom"}); len(events) != 0 {
		t.Errorf("a member's recheck has the events %v", events)
	}
	if events := n.do(&bindingv1.RepairBinding{DomainId: "another", Release: true}); len(events) != 0 {
		t.Errorf("the repair of another domain has the events %v", events)
	}
	n.do(&bindingv1.RepairBinding{DomainId: "dom"})
	n.expect("removing")
	exhaust()
	n.expect("removing retry")
	n.do(&bindingv1.RepairBinding{DomainId: "dom", Release: true})
	n.expect("free")
}
