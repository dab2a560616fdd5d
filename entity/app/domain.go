package app

import (
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// The custom domain of an app is bound in the entity of its host name (package binding), so that one app has it: the first to claim it.
// The app has a copy, which the API shows:
//
//  1. A member sends AttachDomain to the app: DomainRequested. React sends ClaimBinding to the binding.
//  2. The binding reports the claim, and each later change, with ReportDomain: DomainReported. If another app has the name, it sends
//     ReportDomainRefused: DomainRefused. The member waits for either with AwaitApp.
//  3. RecheckDomain and RemoveDomain are passed on to the binding in the same way. From the request of the removal on, the copy
//     has the status removing, whatever the binding still reports.
//  4. When the clean-up has ended, the binding sends ReportDomainReleased: DomainReleased.

var (
	errDomainID      = entity.Errorf(entity.InvalidRequest, "domainId is not an id")
	errOccupied      = entity.Errorf(entity.DomainOccupied, "the app has another custom domain; remove it first")
	errCleanup       = entity.Errorf(entity.DomainCleanupPending, "the custom domain of the app is being removed")
	errNotConfigured = entity.Errorf(entity.DomainNotConfigured, "the app has no custom domain")
)

// attachDomain requests the binding of a host name. It has no effect if the app has requested or bound the name before. Errors:
// not_found, invalid_request, domain_occupied if the app has another name, domain_cleanup_pending while one is being removed.
func attachDomain(call entity.Call, s *appv1.App, c *appv1.AttachDomain) ([]appv1.Event, error) {
	if err := checkChangeable(s); err != nil {
		return nil, err
	}
	hostname, err := CanonicalHostname(c.GetHostname())
	if err != nil {
		return nil, err
	}
	switch d := s.GetDomain(); {
	case d.GetStatus() == removing:
		return nil, errCleanup
	case d.GetHostname() == hostname:
		return nil, nil
	case d != nil:
		return nil, errOccupied
	case !entity.IsID(c.GetDomainId()):
		return nil, errDomainID
	}
	return []appv1.Event{&appv1.DomainRequested{
		WorkspaceId: s.GetWorkspaceId(), AppId: s.GetId(), DomainId: c.GetDomainId(), Hostname: hostname, At: call.At(), Author: authorOf(call),
	}}, nil
}

// recheckDomain requests a check of the domain, or another clean-up if the last ones have failed. It has no effect if one is under way,
// or if only an operator can end the removal. Errors: domain_not_configured.
func recheckDomain(call entity.Call, s *appv1.App) ([]appv1.Event, error) {
	d := s.GetDomain()
	switch {
	case d == nil:
		return nil, errNotConfigured
	case d.GetStatus() == removing && (!d.GetRetryRequired() || d.GetOperatorRepairRequired()), d.GetChecking():
		return nil, nil
	}
	return []appv1.Event{&appv1.DomainRecheckRequested{DomainId: d.GetId(), Hostname: d.GetHostname(), At: call.At()}}, nil
}

// removeDomain requests the end of the binding. It has no effect if the app has no domain, or if it is being removed.
func removeDomain(call entity.Call, s *appv1.App) []appv1.Event {
	d := s.GetDomain()
	if d == nil || d.GetStatus() == removing {
		return nil
	}
	return []appv1.Event{&appv1.DomainRemovalRequested{DomainId: d.GetId(), Hostname: d.GetHostname(), At: call.At()}}
}

// reportDomain records a report of the binding. A report about another domain, or an older one, has no effect.
func reportDomain(s *appv1.App, c *appv1.ReportDomain) []appv1.Event {
	was, reported := s.GetDomain(), c.GetDomain()
	if was == nil || was.GetId() != reported.GetId() || reported.GetRevision() <= was.GetRevision() {
		return nil
	}
	next := entity.ShallowCopy(reported)
	next.Hostname, next.Claimed = was.GetHostname(), true
	next.CreatedAt = was.GetCreatedAt()
	if was.GetStatus() == removing {
		next.Status = removing
	}
	return []appv1.Event{&appv1.DomainReported{Domain: next}}
}

// reportDomainRefused ends the request for a domain, because its name is bound to another app.
func reportDomainRefused(s *appv1.App, c *appv1.ReportDomainRefused) []appv1.Event {
	d := s.GetDomain()
	if d == nil || d.GetId() != c.GetDomainId() || d.GetClaimed() {
		return nil
	}
	return []appv1.Event{&appv1.DomainRefused{Refusal: &appv1.DomainRefusal{
		DomainId: d.GetId(), Hostname: d.GetHostname(), Code: c.GetCode(),
	}}}
}

// reportDomainReleased records that the binding of the domain has ended.
func reportDomainReleased(call entity.Call, s *appv1.App, c *appv1.ReportDomainReleased) []appv1.Event {
	if s.GetDomain() == nil || s.GetDomain().GetId() != c.GetDomainId() {
		return nil
	}
	return []appv1.Event{&appv1.DomainReleased{DomainId: c.GetDomainId(), At: call.At()}}
}

// RefusalOf returns the error of an AttachDomain if its name is bound to another app; nil if its domain was not refused.
func RefusalOf(s *appv1.App, domainID string) error {
	refusal := s.GetRefusal()
	switch {
	case refusal.GetDomainId() != domainID || domainID == "":
		return nil
	case refusal.GetCode() == string(entity.DomainCleanupPending):
		return entity.Errorf(entity.DomainCleanupPending, "%s is being removed from another app", refusal.GetHostname())
	default:
		return entity.Errorf(entity.HostnameInUse, "%s is bound to another app", refusal.GetHostname())
	}
}
