package binding

import (
	"github.com/atelier-run/atelier/entity"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// A released name is reserved until its certificates are removed:
//
//	Release ──► CleanUp ──ReportCleanedUp──► free
//	              │   ▲
//	              │   ├── timer: the first CleanUpAttempts failures
//	              │   ├── Recheck of a member: retryRequired, CleanUpRetries times
//	              ▼   └── Repair of an operator: operatorRepairRequired
//	           failed
const (
	// CleanUpAttempts is the number of clean-ups that are tried before a member has to request more.
	CleanUpAttempts = 5
	// CleanUpRetries is the number of times that members can request them, before only an operator can.
	CleanUpRetries = 3
)

// release ends the binding: the name serves no longer, and its certificates are removed.
func release(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReleaseBinding) []bindingv1.Event {
	if !isBoundTo(s, c.GetDomainId()) || s.GetStatus() == statusRemoving {
		return nil
	}
	return show(call, s, &bindingv1.ReleaseRequested{At: call.At()}, requestCleanUp(call, s, false))
}

// requestCleanUp returns the event that opens a clean-up.
func requestCleanUp(call entity.Call, s *bindingv1.Binding, byMember bool) *bindingv1.CleanUpRequested {
	return &bindingv1.CleanUpRequested{ByMember: byMember, CleanUp: &bindingv1.CleanUp{
		Number: s.GetLastCleanUp() + 1, RequestedAt: call.At(), Hostname: s.GetHostname(),
	}}
}

// cleanUpOnTime requests the clean-up if its timer is due.
func cleanUpOnTime(call entity.Call, s *bindingv1.Binding, c *bindingv1.CleanUpBinding) []bindingv1.Event {
	if c.GetAt() == 0 || c.GetAt() != s.GetCleanUpAt() {
		return nil
	}
	return []bindingv1.Event{requestCleanUp(call, s, false)}
}

func beginCleanUp(next *bindingv1.Binding, e *bindingv1.CleanUpRequested) {
	next.CleanUp, next.LastCleanUp, next.CleanUpAt = e.GetCleanUp(), e.GetCleanUp().GetNumber(), 0
	if e.GetByMember() {
		next.Checking, next.RetryRequired, next.CleanUpAttempts = true, false, 0
		next.CleanUpRetries++
	}
	if next.GetOperatorRepairRequired() { // only an operator opens a clean-up then
		next.OperatorRepairRequired, next.CleanUpAttempts, next.CleanUpRetries = false, 0, 0
	}
}

func reportCleanedUp(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReportCleanedUp) []bindingv1.Event {
	if s.GetCleanUp() == nil || s.GetCleanUp().GetNumber() != c.GetNumber() {
		return nil
	}
	return released(call, s)
}

// reportCleanUpFailed sets the time of the next clean-up, or requires a member or an operator.
func reportCleanUpFailed(call entity.Call, s *bindingv1.Binding, c *bindingv1.ReportCleanUpFailed) []bindingv1.Event {
	if s.GetCleanUp() == nil || s.GetCleanUp().GetNumber() != c.GetNumber() {
		return nil
	}
	e := &bindingv1.CleanUpFailed{Number: c.GetNumber(), Reason: bounded(c.GetReason(), maxErrorLength), At: call.At()}
	switch {
	case s.GetCleanUpAttempts()+1 < CleanUpAttempts:
		e.RetryAt = call.At() + backOff(FirstPause, s.GetCleanUpAttempts()).Milliseconds()
	case s.GetCleanUpRetries() < CleanUpRetries:
		e.RetryRequired = true
	default:
		e.OperatorRepairRequired = true
	}
	return show(call, s, e)
}

func failCleanUp(next *bindingv1.Binding, e *bindingv1.CleanUpFailed) {
	next.CleanUp, next.CleanUpAt, next.Checking, next.LastError, next.LastCheckedAt = nil, e.GetRetryAt(), false, e.GetReason(), e.GetAt()
	next.CleanUpAttempts++
	next.RetryRequired, next.OperatorRepairRequired = e.GetRetryRequired(), e.GetOperatorRepairRequired()
}

// repair starts an exhausted clean-up again, or ends the binding.
func repair(call entity.Call, s *bindingv1.Binding, c *bindingv1.RepairBinding) []bindingv1.Event {
	switch {
	case !isBoundTo(s, c.GetDomainId()), s.GetStatus() != statusRemoving:
		return nil
	case c.GetRelease():
		return released(call, s)
	case s.GetOperatorRepairRequired(), s.GetRetryRequired():
		return show(call, s, requestCleanUp(call, s, s.GetRetryRequired()))
	}
	return nil
}

func released(call entity.Call, s *bindingv1.Binding) []bindingv1.Event {
	return []bindingv1.Event{&bindingv1.BindingReleased{
		WorkspaceId: s.GetWorkspaceId(), AppId: s.GetAppId(), DomainId: s.GetDomainId(), At: call.At(),
	}}
}
