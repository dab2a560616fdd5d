package binding

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// The pauses and limits of checks (decisions, section 7).
const (
	// FirstPause and LongestPause limit the pause between two checks, which doubles.
	FirstPause   = 15 * time.Second
	LongestPause = time.Hour
	// Patience is the time after which a name fails if its records or certificate have not been obtained, and an active name
	// fails if its TXT record is missing.
	Patience = 72 * time.Hour
)

// The bounds of a domain (specification, App domain).
const (
	MaxRecords     = 32
	maxErrorLength = 2000
	maxValueLength = 1000
)

// recheck requests a check for a member. While the binding is being removed, it starts an exhausted clean-up again. The check of
// a failed name begins the wait for its records again.
func recheck(call entity.Call, s *bindingv1.Binding, c *bindingv1.RecheckBinding) []bindingv1.Event {
	switch {
	case !isBoundTo(s, c.GetDomainId()), s.GetChecking():
		return nil
	case s.GetStatus() == statusRemoving && s.GetRetryRequired():
		return show(call, s, requestCleanUp(call, s, true))
	case s.GetStatus() == statusRemoving:
		return nil
	}
	return show(call, s, requestCheck(call, s, true))
}

// checkOnTime requests the check if its timer is due.
func checkOnTime(call entity.Call, s *bindingv1.Binding, c *bindingv1.CheckBinding) []bindingv1.Event {
	if c.GetAt() == 0 || c.GetAt() != s.GetNextCheckAt() {
		return nil
	}
	return []bindingv1.Event{requestCheck(call, s, false)}
}

// requestCheck returns the event that opens a check, or that makes the open one the check of a member.
func requestCheck(call entity.Call, s *bindingv1.Binding, byMember bool) *bindingv1.CheckRequested {
	open := s.GetCheck()
	if open == nil {
		open = &bindingv1.Check{
			Number: s.GetLastCheck() + 1, RequestedAt: call.At(), Hostname: s.GetHostname(), WorkspaceId: s.GetWorkspaceId(),
			AppId: s.GetAppId(),
		}
	}
	return &bindingv1.CheckRequested{Check: open, ByMember: byMember}
}

func beginCheck(next *bindingv1.Binding, e *bindingv1.CheckRequested) {
	next.Check, next.LastCheck, next.NextCheckAt = e.GetCheck(), e.GetCheck().GetNumber(), 0
	if !e.GetByMember() {
		return
	}
	next.Checking, next.Attempts = true, 0
	if next.GetStatus() == statusFailed {
		next.Status, next.LastError, next.IssueError = statusPending, "", ""
		next.WaitingSince, next.MissingSince = e.GetCheck().GetRequestedAt(), 0
		next.IssueAttempts = 0
	}
}

// reportCheck decides the status after a check. If the records are seen for the first time, the certificate is requested.
func reportCheck(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReportCheck) []bindingv1.Event {
	if s.GetCheck() == nil || s.GetCheck().GetNumber() != c.GetNumber() {
		return nil
	}
	e := &bindingv1.Checked{
		Number: c.GetNumber(), Records: boundedRecords(c.GetRecords()), Conflicts: boundedConflicts(c.GetConflicts()),
		Owned: c.GetOwned(), Routed: c.GetRouted() && len(c.GetConflicts()) == 0, Failure: bounded(c.GetFailure(), maxErrorLength), At: call.At(),
	}
	e.Status, e.LastError = statusAfterCheck(s, e)
	switch {
	case e.GetStatus() == statusFailed:
	case e.GetStatus() == statusActive:
		e.NextCheckAt, e.IssueAt = call.At()+LongestPause.Milliseconds(), cmp.Or(issueOfFuture(call, s), suggestedRenewal(call, s, c))
	case e.GetStatus() != s.GetStatus():
		e.NextCheckAt = call.At() + FirstPause.Milliseconds()
	default:
		e.NextCheckAt, e.IssueAt = call.At()+backOff(FirstPause, s.GetAttempts()).Milliseconds(), issueOfFuture(call, s)
	}
	events := []bindingv1.Event{e}
	if e.GetStatus() == statusVerifying && s.GetStatus() != statusVerifying {
		events = append(events, requestCertificate(call, Evolve(s, e)))
	}
	return show(call, s, events...)
}

// statusAfterCheck returns the status after a check, and the reason that is shown.
func statusAfterCheck(s *bindingv1.Binding, e *bindingv1.Checked) (appv1.DomainStatus, string) {
	seen := e.GetFailure() == "" && e.GetOwned() && e.GetRouted()
	switch s.GetStatus() {
	case statusActive:
		since := missingSince(s, e)
		if e.GetFailure() == "" && since != 0 && e.GetAt()-since >= Patience.Milliseconds() {
			return statusFailed, "The TXT record has been missing for 72 hours."
		}
		return statusActive, e.GetFailure()
	case statusVerifying:
		if isOverdue(s, e) {
			return statusFailed, bounded("No certificate was obtained within 72 hours. The last request failed: "+s.GetIssueError(), maxErrorLength)
		}
		if seen || e.GetFailure() != "" {
			return statusVerifying, e.GetFailure()
		}
	default:
		if seen {
			return statusVerifying, ""
		}
	}
	if e.GetAt()-s.GetWaitingSince() >= Patience.Milliseconds() {
		reason := "The records were not found within 72 hours."
		if e.GetFailure() != "" {
			reason += " The last check failed: " + e.GetFailure()
		}
		return statusFailed, bounded(reason, maxErrorLength)
	}
	return statusPending, e.GetFailure()
}

// isOverdue reports whether a name has waited too long for a certificate, because the next request is far away: the authority has asked
// for a long pause. The result of a request that is under way is awaited.
func isOverdue(s *bindingv1.Binding, e *bindingv1.Checked) bool {
	return s.GetIssue() == nil && s.GetIssueError() != "" && e.GetAt()-s.GetWaitingSince() >= Patience.Milliseconds()
}

// missingSince returns the time since which the TXT record of an active name has been missing, after a check; 0 if it is there. A
// check that could not be carried out changes nothing. A time after the check was recorded while the clock was ahead; it counts anew.
func missingSince(s *bindingv1.Binding, e *bindingv1.Checked) int64 {
	switch {
	case e.GetFailure() != "":
		return min(s.GetMissingSince(), e.GetAt())
	case e.GetOwned():
		return 0
	case s.GetMissingSince() != 0:
		return min(s.GetMissingSince(), e.GetAt())
	}
	return e.GetAt()
}

func endCheck(next *bindingv1.Binding, e *bindingv1.Checked) {
	next.Check, next.Checking, next.LastCheckedAt, next.NextCheckAt = nil, false, e.GetAt(), e.GetNextCheckAt()
	if e.GetFailure() == "" {
		next.Records, next.Conflicts = e.GetRecords(), e.GetConflicts()
	}
	if next.GetVerifiedAt() == 0 && e.GetFailure() == "" && e.GetOwned() && e.GetRouted() {
		next.VerifiedAt = e.GetAt()
	}
	if next.GetStatus() == statusActive {
		next.MissingSince = missingSince(next, e)
	}
	next.WaitingSince = min(next.GetWaitingSince(), e.GetAt()) // a later time is of a clock that was ahead
	next.Attempts++
	if next.GetStatus() != e.GetStatus() {
		next.Attempts = 0
		if e.GetStatus() != statusVerifying {
			next.Issue, next.IssueAt = nil, 0
		}
	}
	if e.GetIssueAt() != 0 {
		next.IssueAt = e.GetIssueAt()
	}
	next.Status, next.LastError = e.GetStatus(), e.GetLastError()
}

// backOff returns the pause after a number of earlier attempts.
func backOff(first time.Duration, attempts uint32) time.Duration {
	pause := first
	for range min(attempts, 30) {
		if pause = 2 * pause; pause >= LongestPause {
			return LongestPause
		}
	}
	return pause
}

// boundedRecords returns the records that satisfy the bounds of the specification, with texts that are cut to them.
func boundedRecords(all []*appv1.Record) []*appv1.Record {
	var kept []*appv1.Record
	for _, r := range all {
		value := bounded(r.GetValue(), maxValueLength)
		if len(kept) < MaxRecords && isRecord(r.GetType(), r.GetDomain()) && value != "" {
			kept = append(kept, &appv1.Record{
				Type: r.GetType(), Domain: r.GetDomain(), Value: value, Reason: bounded(r.GetReason(), maxErrorLength),
			})
		}
	}
	return kept
}

// boundedConflicts is boundedRecords for conflicts.
func boundedConflicts(all []*appv1.Conflict) []*appv1.Conflict {
	var kept []*appv1.Conflict
	for _, c := range all {
		value := bounded(c.GetValue(), maxValueLength)
		if len(kept) < MaxRecords && isRecord(c.GetType(), c.GetName()) && value != "" {
			kept = append(kept, &appv1.Conflict{Name: c.GetName(), Type: c.GetType(), Value: value})
		}
	}
	return kept
}

func isRecord(kind, name string) bool {
	return entity.IsPrintableASCII(kind, 32) && entity.IsPrintableASCII(name, 253)
}

// bounded returns the first most characters of a text as valid UTF-8 without control characters.
func bounded(text string, most int) string {
	if len(text) > utf8.UTFMax*most {
		text = text[:utf8.UTFMax*most]
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	if characters := []rune(text); len(characters) > most {
		text = string(characters[:most])
	}
	return text
}

func taskID(number uint64) string { return strconv.FormatUint(number, 10) }
