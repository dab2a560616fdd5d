package binding

import (
	"time"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// The pauses of requests for certificates.
const (
	// firstIssuePause is the pause after the first failed request; it doubles up to LongestPause. With it, a name has five requests
	// in its first hour, as many as authorities allow to fail (https://letsencrypt.org/docs/rate-limits/).
	firstIssuePause = 2 * time.Minute
	// longestRetry limits the pause that an authority may ask for.
	longestRetry = 7 * 24 * time.Hour
	// soonestRenewal is the least time between the report of a certificate and its renewal, so that an authority that
	// issues nearly expired certificates is not asked all the time.
	soonestRenewal = time.Minute
)

// requestCertificate returns the event that opens a request for a certificate. Only the request of an active name requires
// another certificate than the certificate that the store may have.
func requestCertificate(call entity.Call, s *bindingv1.Binding) *bindingv1.CertificateRequested {
	issue := &bindingv1.Issue{Number: s.GetLastIssue() + 1, RequestedAt: call.At(), Hostname: s.GetHostname()}
	if s.GetStatus() == statusActive {
		issue.Renews = s.GetCertificate().GetSerial()
	}
	return &bindingv1.CertificateRequested{Issue: issue}
}

// issueOnTime requests the certificate if its timer is due: another attempt, or the renewal.
func issueOnTime(call entity.Call, s *bindingv1.Binding, c *bindingv1.IssueCertificate) []bindingv1.Event {
	if c.GetAt() == 0 || c.GetAt() != s.GetIssueAt() {
		return nil
	}
	return []bindingv1.Event{requestCertificate(call, s)}
}

// renew requests another certificate for an operator.
func renew(call entity.Call, s *bindingv1.Binding, c *bindingv1.RenewBinding) []bindingv1.Event {
	if !isBoundTo(s, c.GetDomainId()) || s.GetStatus() != statusActive || s.GetIssue() != nil {
		return nil
	}
	return []bindingv1.Event{requestCertificate(call, s)}
}

// suggestedRenewal returns the due time of the renewal that the authority suggests, and 0 if that is no earlier than the present one. The
// time of another attempt after a failure stays.
func suggestedRenewal(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReportCheck) int64 {
	at := max(c.GetRenewAt(), call.At()+soonestRenewal.Milliseconds())
	if c.GetRenewAt() == 0 || c.GetRenews() != s.GetCertificate().GetSerial() || s.GetIssueAttempts() > 0 || at >= s.GetIssueAt() {
		return 0
	}
	return at
}

// issueOfFuture returns the due time of the next request for a certificate if the present one was recorded while the clock was ahead: it lies
// behind the renewal of the certificate and behind the longest pause. It returns 0 if the present one stays.
func issueOfFuture(call entity.Call, s *bindingv1.Binding) int64 {
	if s.GetIssueAt() <= max(renewalOf(s.GetCertificate()), call.At()+longestRetry.Milliseconds()) {
		return 0
	}
	return call.At() + soonestRenewal.Milliseconds()
}

// renewalOf returns the time after two thirds of a certificate's lifetime.
func renewalOf(c *bindingv1.Certificate) int64 {
	return c.GetNotBefore() + max(c.GetNotAfter()-c.GetNotBefore(), 0)*2/3
}

// reportIssued makes the name active, and sets the time of the renewal.
func reportIssued(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReportIssued) []bindingv1.Event {
	if s.GetIssue() == nil || s.GetIssue().GetNumber() != c.GetNumber() {
		return nil
	}
	return show(call, s, &bindingv1.CertificateIssued{
		Number: c.GetNumber(), Certificate: c.GetCertificate(), At: call.At(),
		RenewAt: max(renewalOf(c.GetCertificate()), call.At()+soonestRenewal.Milliseconds()),
	})
}

func endIssue(next *bindingv1.Binding, e *bindingv1.CertificateIssued) {
	next.Issue, next.IssueAttempts, next.IssueAt, next.IssueError = nil, 0, e.GetRenewAt(), ""
	next.Certificate = e.GetCertificate()
	next.Status, next.WaitingSince, next.Attempts = statusActive, 0, 0
}

// reportIssueFailed decides whether the name fails. A name that is active stays so while it has a valid certificate: the authority
// is asked again for the renewal, even after a final refusal.
func reportIssueFailed(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReportIssueFailed) []bindingv1.Event {
	if s.GetIssue() == nil || s.GetIssue().GetNumber() != c.GetNumber() {
		return nil
	}
	e := &bindingv1.IssueFailed{
		Number: c.GetNumber(), Reason: bounded(c.GetReason(), maxErrorLength), Status: statusAfterFailedIssue(call, s, c), At: call.At(),
	}
	if e.GetStatus() != statusFailed {
		pause := backOff(firstIssuePause, s.GetIssueAttempts())
		if c.GetFinal() {
			pause = LongestPause
		}
		e.RetryAt = max(call.At()+pause.Milliseconds(), min(c.GetRetryAt(), call.At()+longestRetry.Milliseconds()))
	}
	return show(call, s, e)
}

func statusAfterFailedIssue(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReportIssueFailed) appv1.DomainStatus {
	switch {
	case s.GetStatus() == statusActive && call.At() >= s.GetCertificate().GetNotAfter(),
		s.GetStatus() != statusActive && c.GetFinal(),
		s.GetStatus() != statusActive && call.At()-s.GetWaitingSince() >= Patience.Milliseconds():
		return statusFailed
	}
	return s.GetStatus()
}

func failIssue(next *bindingv1.Binding, e *bindingv1.IssueFailed) {
	next.Issue, next.IssueAt, next.IssueError = nil, e.GetRetryAt(), e.GetReason()
	next.IssueAttempts++
	if e.GetStatus() == statusFailed {
		next.Check, next.Checking, next.NextCheckAt = nil, false, 0
	}
	next.Status = e.GetStatus()
}
