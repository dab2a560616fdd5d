package domains

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
)

const day = 24 * time.Hour

// suggestRenewal makes the authority suggest a window of a minute for renewals.
func (a *refusingAuthority) suggestRenewal(at time.Time, retryAfter string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.renewalInfo = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"suggestedWindow":{"start":%q,"end":%q}}`, at.Format(time.RFC3339), at.Add(time.Minute).Format(time.RFC3339))
	}
}

// checkHost returns the report of a check of the host. The DNS records of the host cannot be looked up.
func (s *site) checkHost() *bindingv1.ReportCheck {
	s.Helper()
	report, err := s.Check(s.Context(), &bindingv1.Check{Number: 7, Hostname: host, WorkspaceId: "ws", AppId: "app"})
	check(s, err)
	return report.(*bindingv1.ReportCheck)
}

// TestSuggestedRenewal checks that a renewal follows the renewal information of the authority, which is asked as often as it wants.
func TestSuggestedRenewal(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	a.suggestRenewal(s.now.Add(10*day), "14400")
	a.refuse(400, "connection", "", "")
	s.useAuthority(a)
	s.store(host, 10)
	report := s.checkHost()
	if at := time.UnixMilli(report.GetRenewAt()).Sub(s.now.Add(10 * day)); at < 0 || at > time.Minute || report.GetRenews() != "a" || report.GetFailure() == "" {
		t.Errorf("the report is %v", report)
	}
	chosen := report.GetRenewAt()
	s.now = s.now.Add(4*time.Hour - 2*time.Minute)
	if s.checkHost(); a.questions != 1 {
		t.Errorf("%d questions within the time that the authority wants", a.questions)
	}
	s.now = s.now.Add(4 * time.Minute)
	if again := s.checkHost(); a.questions != 2 || again.GetRenewAt() != chosen {
		t.Errorf("%d questions, then %v", a.questions, again)
	}
	if _, err := s.Obtain(t.Context(), host); err != nil || a.orders != 0 {
		t.Errorf("%d orders before the time, %v", a.orders, err)
	}
	s.now = s.now.Add(10 * day)
	if _, err := s.Obtain(t.Context(), host); err == nil || a.orders != 1 {
		t.Errorf("%d orders after the time, %v", a.orders, err)
	}
	s.store(host, 11) // the renewal
	if report := s.checkHost(); report.GetRenews() != "b" {
		t.Errorf("the report after the renewal is %v", report)
	}
}

// TestSuggestionAfterTheClockWasAhead checks that the authority is asked again when the clock is right, after it was asked while the clock was
// ahead.
func TestSuggestionAfterTheClockWasAhead(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	a.suggestRenewal(s.now.Add(10*day), "14400")
	s.useAuthority(a)
	s.store(host, 10)
	s.now = s.now.Add(365 * day)
	s.checkHost()
	s.now = s.now.Add(-365 * day)
	for range 2 {
		if s.checkHost(); a.questions != 2 {
			t.Errorf("%d questions", a.questions)
		}
	}
}

// TestLateSuggestion checks that a certificate is renewed after two thirds of its lifetime although the authority suggests a later time.
func TestLateSuggestion(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	a.suggestRenewal(s.now.Add(80*day), "")
	a.refuse(400, "connection", "", "")
	s.useAuthority(a)
	s.store(host, 10)
	s.now = s.now.Add(61 * day)
	if _, err := s.Obtain(t.Context(), host); err == nil || a.orders != 1 || a.questions != 1 {
		t.Errorf("%d orders, %d questions, %v", a.orders, a.questions, err)
	}
}

// TestReplacedCertificate checks that an order names the certificate that it replaces, unless an earlier account may have ordered it.
func TestReplacedCertificate(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	a.suggestRenewal(s.now.Add(-day), "")
	a.refuse(400, "connection", "", "")
	s.useAuthority(a)
	s.store(host, 10)
	s.issue() // registers the account
	s.now = s.now.Add(day)
	s.store(host, 11)
	s.issue()
	if len(a.replaced) != 2 || a.replaced[0] != "" || !strings.HasSuffix(a.replaced[1], ".Cw") {
		t.Errorf("the orders replace %q", a.replaced)
	}
	a.refuse(400, "malformed", "", "")
	s.issue()
	if len(a.replaced) != 4 || !slices.Equal(a.replaced[2:], []string{a.replaced[1], ""}) {
		t.Errorf("the orders replace %q", a.replaced)
	}
}

// TestRenewalForAnOperator checks that a certificate that an operator has marked is replaced at once, and the next one is not.
func TestRenewalForAnOperator(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	a.refuse(400, "connection", "", "")
	s.useAuthority(a)
	if err := s.Renew(t.Context(), own); !entity.HasCode(err, entity.InvalidRequest) {
		t.Errorf("without a certificate: %v", err)
	}
	s.store(own, 10)
	if _, err := s.Obtain(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	check(t, s.Renew(t.Context(), own))
	if _, err := s.Obtain(t.Context(), own); err == nil || a.orders != 1 {
		t.Errorf("%d orders of the marked certificate, %v", a.orders, err)
	}
	s.store(own, 11)
	if _, err := s.Obtain(t.Context(), own); err != nil || a.orders != 1 {
		t.Errorf("%d orders of the new certificate, %v", a.orders, err)
	}
	s.o.Off = true
	if err := s.Renew(t.Context(), own); !entity.HasCode(err, entity.InvalidRequest) {
		t.Errorf("without an authority: %v", err)
	}
}

// TestMembersRenewOnce checks that a member that finds a due certificate while another member renews it waits, and orders none
// itself.
func TestMembersRenewOnce(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	second := &site{TB: t, Domains: s.member()}
	s.useAuthority(a)
	second.useAuthority(a)
	s.store(own, 10)
	s.now = s.now.Add(61 * day)
	began, obtained := make(chan struct{}), make(chan error, 1)
	a.answer = func(w http.ResponseWriter) {
		a.answer = func(w http.ResponseWriter) { refuse(w, 400, "connection", "") }
		begin := sync.OnceFunc(func() { close(began) })
		s.entities.Fail(func(m proto.Message) error {
			switch m.(type) {
			case *certificatesv1.AcquireLock, *certificatesv1.TakeOrder:
				begin()
			}
			return nil
		})
		go func() {
			_, err := second.Obtain(t.Context(), own)
			obtained <- err
		}()
		<-began          // the second member has seen that the certificate is due
		s.store(own, 11) // the renewal, which the first member would store
		a.answer(w)
	}
	if _, err := s.Obtain(t.Context(), own); err == nil {
		t.Error("the authority has refused, and the first member has a certificate")
	}
	if err := <-obtained; err != nil || a.orders != 1 {
		t.Errorf("%d orders; the second member: %v", a.orders, err)
	}
}

// TestMaintainedHostIsRenewed checks that a member that maintains a host replaces its marked certificate without waiting for its next look.
func TestMaintainedHostIsRenewed(t *testing.T) {
	a, s := newRefusingAuthority(t), newSite(t)
	ordered := make(chan struct{}, 10)
	a.answer = func(w http.ResponseWriter) {
		ordered <- struct{}{}
		refuse(w, 400, "connection", "")
	}
	s.useAuthority(a)
	s.store(own, 10)
	ctx, cancel := context.WithCancel(t.Context())
	s.Maintain(ctx, []string{own})
	check(t, s.Renew(t.Context(), own))
	select {
	case <-ordered:
	case <-time.After(3 * time.Minute):
		t.Error("the certificate is not replaced")
	}
	cancel()
	s.maintained.Wait()
	if _, found := s.wakes.Load(own); found {
		t.Error("the channel of the host remains")
	}
}
