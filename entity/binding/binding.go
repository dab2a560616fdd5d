// Package binding implements the rules of bindings of custom host names to apps.
//
//	                  ┌──────────── the records are gone ─────────────┐
//	                  ▼                                               │
//	free ──Claim──► pending ──the records are seen──► verifying ──ReportIssued──► active ──► (renewals)
//	  ▲               ▲  │                               │                          │
//	  │               │  └───────── 72 h ────────────────┼── 72 h, final refusal ───┤ TXT gone for 72 h, certificate expired
//	  │         Recheck                                  ▼                          │
//	  │               └───────────────────────────── failed ◄───────────────────────┘
//	  │
//	  └──ReportCleanedUp── removing ◄──Release── pending, verifying, active, failed
//
// The identity of the entity is the host name, so its stream orders the claims of all apps and the first one wins. A claim of another app
// is refused with the event ClaimRefused. The reaction to ClaimRefused tells that app. Only the platform sends commands.
//
// The name is proved by a TXT record with a token that depends on the workspace (Token), so that a record that one workspace has asked for
// proves nothing for another workspace. A record that leads to the platform proves nothing either.
//
// DNS look-ups, requests for certificates and clean-ups are tasks (CheckTask, IssueTask, CleanUpTask), each with a number; a
// report with another number is late and has no effect. The pauses between them are timers. Checks are repeated after 15 s and
// then after longer pauses of at most an hour (checks.go). A certificate is renewed after two thirds of its lifetime, or at the time that a
// check reports if the authority suggests an earlier one, or at once for an operator (issue.go). A clean-up is retried a few times, then when a member requests it, and at last only by an operator (removal.go).
//
// An active name serves until it fails or is released, whatever a check or a renewal reports in the meantime.
//
// The last event of each decision that changes the shown state of the domain is DomainShown. Its reaction reports the domain to the app,
// and its version orders the reports.
package binding

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

// The kinds of the tasks of a binding. Their messages are bindingv1.Check, bindingv1.Issue and bindingv1.CleanUp.
const (
	CheckTask   = "domain.check"
	IssueTask   = "domain.issue"
	CleanUpTask = "domain.clean_up"
)

// RepairList has a row for each binding that needs an operator. The row is the Binding, its key the host name.
const RepairList = "binding.repair"

// The ids of the timers.
const (
	checkTimer   = "check"
	issueTimer   = "issue"
	cleanUpTimer = "clean_up"
)

const (
	statusPending   = appv1.DomainStatus_DOMAIN_STATUS_PENDING
	statusVerifying = appv1.DomainStatus_DOMAIN_STATUS_VERIFYING
	statusActive    = appv1.DomainStatus_DOMAIN_STATUS_ACTIVE
	statusFailed    = appv1.DomainStatus_DOMAIN_STATUS_FAILED
	statusRemoving  = appv1.DomainStatus_DOMAIN_STATUS_REMOVING
)

var errNoClaimant = entity.Errorf(entity.InvalidRequest, "workspaceId, appId and domainId must be ids")

// Kind describes bindings to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of bindings.
var Rules = entity.Rules[*bindingv1.Binding, bindingv1.Command, bindingv1.Event]{
	Name: entity.KindBinding, Version: 2, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply, React: React, Timers: Timers, Tasks: Tasks,
	Pauses: map[string]time.Duration{checkTimer: LongestPause, cleanUpTimer: LongestPause},
	Rows:   Rows, Lists: map[string]entity.List{RepairList: {}},
}

// Zero returns the state before the first event.
func Zero(identity string) *bindingv1.Binding { return &bindingv1.Binding{Hostname: identity} }

// Decide turns a command into events. It returns no events and no error if the state is already as the command requires, if the
// command is late, or if it is a query. Errors: invalid_request for a claim of a name that cannot be bound.
func Decide(call entity.Call, s *bindingv1.Binding, c bindingv1.Command) ([]bindingv1.Event, error) {
	switch c := c.(type) {
	case *bindingv1.ClaimBinding:
		return claim(call, s, c)
	case *bindingv1.RecheckBinding:
		return recheck(call, s, c), nil
	case *bindingv1.ReleaseBinding:
		return release(call, s, c), nil
	case *bindingv1.CheckBinding:
		return checkOnTime(call, s, c), nil
	case *bindingv1.IssueCertificate:
		return issueOnTime(call, s, c), nil
	case *bindingv1.CleanUpBinding:
		return cleanUpOnTime(call, s, c), nil
	case *bindingv1.ReportCheck:
		return reportCheck(call, s, c), nil
	case *bindingv1.ReportIssued:
		return reportIssued(call, s, c), nil
	case *bindingv1.ReportIssueFailed:
		return reportIssueFailed(call, s, c), nil
	case *bindingv1.ReportCleanedUp:
		return reportCleanedUp(call, s, c), nil
	case *bindingv1.ReportCleanUpFailed:
		return reportCleanUpFailed(call, s, c), nil
	case *bindingv1.RepairBinding:
		return repair(call, s, c), nil
	case *bindingv1.RenewBinding:
		return renew(call, s, c), nil
	case *bindingv1.DescribeBinding:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindBinding, c)
}

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *bindingv1.Binding, e bindingv1.Event) *bindingv1.Binding {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *bindingv1.BindingClaimed:
		next.WorkspaceId, next.AppId, next.DomainId = e.GetWorkspaceId(), e.GetAppId(), e.GetDomainId()
		next.Status, next.Records = statusPending, e.GetRecords()
		next.CreatedAt, next.UpdatedAt, next.WaitingSince = e.GetAt(), e.GetAt(), e.GetAt()
	case *bindingv1.ClaimRefused:
	case *bindingv1.CheckRequested:
		beginCheck(next, e)
	case *bindingv1.Checked:
		endCheck(next, e)
	case *bindingv1.CertificateRequested:
		next.Issue, next.LastIssue, next.IssueAt = e.GetIssue(), e.GetIssue().GetNumber(), 0
	case *bindingv1.CertificateIssued:
		endIssue(next, e)
	case *bindingv1.IssueFailed:
		failIssue(next, e)
	case *bindingv1.ReleaseRequested:
		next.Status, next.LastError, next.IssueError, next.Checking = statusRemoving, "", "", false
		next.Check, next.NextCheckAt, next.Issue, next.IssueAt = nil, 0, nil, 0
		next.WaitingSince, next.MissingSince = 0, 0
	case *bindingv1.CleanUpRequested:
		beginCleanUp(next, e)
	case *bindingv1.CleanUpFailed:
		failCleanUp(next, e)
	case *bindingv1.BindingReleased:
		// The numbers and the revision stay, so that reports of this binding are late in the next one.
		return &bindingv1.Binding{
			Hostname: s.GetHostname(), LastCheck: s.GetLastCheck(), LastIssue: s.GetLastIssue(), LastCleanUp: s.GetLastCleanUp(),
			Revision: s.GetRevision(),
		}
	case *bindingv1.DomainShown:
		next.UpdatedAt, next.Revision = e.GetDomain().GetUpdatedAt(), e.GetDomain().GetRevision()
	}
	return next
}

// Reply returns the state for every command.
func Reply(_ entity.Call, s *bindingv1.Binding, _ bindingv1.Command, _ []bindingv1.Event) proto.Message {
	return s
}

// Rows returns the row of RepairList that a command adds or removes.
func Rows(_ entity.Call, before, after *bindingv1.Binding, _ bindingv1.Command, _ []bindingv1.Event) []entity.Row {
	switch {
	case before.GetOperatorRepairRequired() == after.GetOperatorRepairRequired():
		return nil
	case after.GetOperatorRepairRequired():
		return []entity.Row{{List: RepairList, Key: after.GetHostname(), Message: after}}
	default:
		return []entity.Row{{List: RepairList, Key: after.GetHostname()}}
	}
}

// Timers returns the timers of the next check, request for a certificate and clean-up.
func Timers(s *bindingv1.Binding) []entity.Timer {
	var all []entity.Timer
	if at := s.GetNextCheckAt(); at != 0 {
		all = append(all, entity.Timer{ID: checkTimer, At: at, Message: &bindingv1.CheckBinding{At: at}})
	}
	if at := s.GetIssueAt(); at != 0 {
		all = append(all, entity.Timer{ID: issueTimer, At: at, Message: &bindingv1.IssueCertificate{At: at}})
	}
	if at := s.GetCleanUpAt(); at != 0 {
		all = append(all, entity.Timer{ID: cleanUpTimer, At: at, Message: &bindingv1.CleanUpBinding{At: at}})
	}
	return all
}

// Tasks returns the open check, request for a certificate and clean-up.
func Tasks(s *bindingv1.Binding) []entity.Task {
	var all []entity.Task
	if c := s.GetCheck(); c != nil {
		all = append(all, entity.Task{Kind: CheckTask, ID: taskID(c.GetNumber()), Message: c})
	}
	if i := s.GetIssue(); i != nil {
		all = append(all, entity.Task{Kind: IssueTask, ID: taskID(i.GetNumber()), Message: i})
	}
	if c := s.GetCleanUp(); c != nil {
		all = append(all, entity.Task{Kind: CleanUpTask, ID: taskID(c.GetNumber()), Message: c})
	}
	return all
}

// React returns the commands that follow from an event: the app is told about its domain.
func React(_ string, event bindingv1.Event) []entity.Reaction {
	tell := func(workspace, app string, m proto.Message) []entity.Reaction {
		return []entity.Reaction{entity.Send(entity.KindApp, workspace+"/"+app, m)}
	}
	switch e := event.(type) {
	case *bindingv1.DomainShown:
		return tell(e.GetWorkspaceId(), e.GetAppId(), &appv1.ReportDomain{Domain: e.GetDomain()})
	case *bindingv1.ClaimRefused:
		return tell(e.GetWorkspaceId(), e.GetAppId(), &appv1.ReportDomainRefused{DomainId: e.GetDomainId(), Code: e.GetCode()})
	case *bindingv1.BindingReleased:
		return tell(e.GetWorkspaceId(), e.GetAppId(), &appv1.ReportDomainReleased{DomainId: e.GetDomainId()})
	default:
		return nil
	}
}

// claim binds the name to an app. The first check is requested at once. Errors: invalid_request.
func claim(call entity.Call, s *bindingv1.Binding, c *bindingv1.ClaimBinding) ([]bindingv1.Event, error) {
	if err := CheckHostname(call.Identity); err != nil {
		return nil, err
	}
	if !entity.IsID(c.GetWorkspaceId()) || !entity.IsID(c.GetAppId()) || !entity.IsID(c.GetDomainId()) {
		return nil, errNoClaimant
	}
	refused := func(code entity.Code) []bindingv1.Event {
		return []bindingv1.Event{&bindingv1.ClaimRefused{
			WorkspaceId: c.GetWorkspaceId(), AppId: c.GetAppId(), DomainId: c.GetDomainId(), Code: string(code), At: call.At(),
		}}
	}
	switch {
	case s.GetStatus() == statusRemoving:
		return refused(entity.DomainCleanupPending), nil
	case isBoundTo(s, c.GetDomainId()) && s.GetWorkspaceId() == c.GetWorkspaceId() && s.GetAppId() == c.GetAppId():
		return nil, nil
	case isBound(s):
		return refused(entity.HostnameInUse), nil
	}
	claimed := &bindingv1.BindingClaimed{
		WorkspaceId: c.GetWorkspaceId(), AppId: c.GetAppId(), DomainId: c.GetDomainId(), At: call.At(),
		Records: boundedRecords([]*appv1.Record{{
			Type: "TXT", Domain: RecordName(call.Identity), Value: Token(c.GetWorkspaceId(), call.Identity),
			Reason: "The record has not been looked up yet.",
		}}),
	}
	return show(call, s, claimed, requestCheck(call, Evolve(s, claimed), false)), nil
}

// isBound reports whether the name belongs to an app, or did and has not been cleaned up.
func isBound(s *bindingv1.Binding) bool {
	return s.GetStatus() != appv1.DomainStatus_DOMAIN_STATUS_UNSPECIFIED
}

// isBoundTo reports whether the name is bound as the domain with an id.
func isBoundTo(s *bindingv1.Binding, domain string) bool {
	return isBound(s) && s.GetDomainId() == domain
}

// show returns the events, followed by DomainShown with the domain as it is after them.
func show(call entity.Call, s *bindingv1.Binding, events ...bindingv1.Event) []bindingv1.Event {
	for _, e := range events {
		s = Evolve(s, e)
	}
	reason := s.GetIssueError()
	if s.GetLastError() != "" {
		reason = s.GetLastError()
	}
	return append(events, &bindingv1.DomainShown{WorkspaceId: s.GetWorkspaceId(), AppId: s.GetAppId(), Domain: &appv1.Domain{
		Id: s.GetDomainId(), Hostname: s.GetHostname(), Status: s.GetStatus(), Records: s.GetRecords(), Conflicts: s.GetConflicts(),
		LastError: reason, CreatedAt: s.GetCreatedAt(), UpdatedAt: call.At(), LastCheckedAt: s.GetLastCheckedAt(),
		VerifiedAt: s.GetVerifiedAt(), RetryRequired: s.GetRetryRequired(), OperatorRepairRequired: s.GetOperatorRepairRequired(),
		Checking: s.GetChecking(), Claimed: true, Revision: call.Version + uint64(len(events)),
	}})
}
