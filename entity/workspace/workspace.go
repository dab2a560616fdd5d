// Package workspace implements the rules of workspaces: their status, members and invitations, the authorization of every
// command and operation in them, and the anchors that bind apps and shares to paths of the drive.
//
//	(none) ──CreateWorkspace──► provisioning ──ReportReady──► active ◄─ReportReady──ReportUnhealthy─► unhealthy
//
//	any ──ChangeStatus──► archived, retired, deleted      archived, retired, unhealthy ──ChangeStatus──► active
//
// Only an operator changes the status to archived, retired or deleted, and back to active. Reports of the computer do not
// change these statuses. A deleted workspace exists only for the platform, and changes only once more, when its sessions are
// stopped. Beside its status, a workspace may be suspended: it can then be read, and only the platform can change it
// (status.go).
//
// The creator is the billing user and therefore always an owner (members.go). Other people join by invitation
// (invitations.go). An anchor binds an app, an agent or a share to a path of the drive (anchors.go). An agent is an anchor of a
// folder that has an AGENT.md; the workspace stores its name, description and tier for lists (agents.go). An app is an entity of
// its own (package app); its anchor reserves its slug, its path and its ports (apps.go).
//
// For its sessions, a workspace stores the pointers to the default sessions of its owners (sessions.go), and their usage
// on the present day (usage.go). A suspended or closed workspace interrupts them by a task.
//
// Check authorizes commands and other operations for the principal of the call; one table says which capabilities each command
// needs (access.go). A workspace has six lists: members, invitations, anchors, broken anchors, agents, and the audit log, which
// gets one row for each change (rows.go). effects.go has its tasks, its timer and the commands that follow from its events.
//
// A person joins a workspace by a chain of commands over four entities:
//
//  1. A member sends Invite: InvitationCreated, which opens a MailTask if the node sends mail.
//  2. React sends AddInvitation to the email address, so that its owner finds the invitation, also one who signs up later.
//  3. The invited person sends AcceptInvitation to the workspace: InvitationAccepted, which makes the person a member.
//  4. React sends JoinWorkspace to the user: WorkspaceJoined, so that the user's workspaces can be listed.
//  5. The user sends UpdateMember to the workspace, and again whenever the name changes (package user, React).
package workspace

import (
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/session"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Kind describes workspaces to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of workspaces.
var Rules = entity.Rules[*workspacev1.Workspace, workspacev1.Command, workspacev1.Event]{
	Name: entity.KindWorkspace, Zero: Zero, Access: accessOf, Check: Check, Role: Role, Decide: Decide, Evolve: Evolve, Reply: Reply,
	Rows: Rows, Timers: Timers, Tasks: Tasks, EffectLists: []string{BrokenAnchorsList}, React: React, Waits: Waits,
	Lists: lists(), Exposed: exposed, Unexposed: unexposed,
}

// exposed and unexposed are Exposed and Unexposed of the Rules.
var (
	exposed = []workspacev1.Event{
		&workspacev1.WorkspaceRenamed{}, &workspacev1.WorkspaceSuspended{}, &workspacev1.WorkspaceResumed{}, &workspacev1.StatusChanged{},
		&workspacev1.MemberRoleChanged{}, &workspacev1.MemberRemoved{},
	}
	unexposed = []workspacev1.Event{
		&workspacev1.WorkspaceCreated{}, &workspacev1.WorkspaceReady{}, &workspacev1.WorkspaceUnhealthy{}, &workspacev1.DefaultModelChanged{},
		&workspacev1.MemberUpdated{}, &workspacev1.MemberDisabledSet{},
		&workspacev1.InvitationCreated{}, &workspacev1.InvitationRevoked{}, &workspacev1.InvitationMailed{}, &workspacev1.InvitationAccepted{},
		&workspacev1.AuditRecorded{}, &workspacev1.LocksRemoved{},
		&workspacev1.AnchorCreated{}, &workspacev1.AnchorRemoved{}, &workspacev1.AnchorMoved{}, &workspacev1.AnchorBroken{},
		&workspacev1.AnchorRepaired{}, &workspacev1.AnchorOrphaned{}, &workspacev1.AnchorCheckRequested{}, &workspacev1.AnchorsChecked{},
		&workspacev1.AgentUpdated{}, &workspacev1.AgentUsageAdded{}, &workspacev1.AgentUsageAllowed{},
		&workspacev1.DefaultSessionSet{}, &workspacev1.SessionsStopped{}, &workspacev1.AppPortsChanged{},
	}
)

func lists() map[string]entity.List {
	all := session.Lists()
	maps.Copy(all, app.Lists())
	all[MembersList] = entity.List{Need: entity.Reads(entity.Sessions, entity.FilesRead), Match: matchesMember}
	all[InvitationsList] = entity.List{Need: entity.Reads(entity.Members)}
	all[AnchorsList] = entity.List{Need: entity.Reads(entity.FilesRead)}
	all[AgentsList] = entity.List{Need: entity.Reads(entity.Sessions, entity.Agents)}
	all[BrokenAnchorsList] = entity.List{Need: entity.Reads(entity.Admin)}
	all[audit.List] = entity.List{Need: entity.Reads(entity.FilesRead)}
	return all
}

// Zero returns the state before the first event.
func Zero(identity string) *workspacev1.Workspace {
	return &workspacev1.Workspace{Id: identity}
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: not_found, invalid_request, and the errors that
// the comment of each rule names.
func Decide(call entity.Call, s *workspacev1.Workspace, c workspacev1.Command) ([]workspacev1.Event, error) {
	if done, err := decideAbsent(s, c); done {
		return nil, err
	}
	switch c := c.(type) {
	case *workspacev1.CreateWorkspace:
		return create(call, s, c)
	case *workspacev1.ReportReady:
		return reportReady(call, s)
	case *workspacev1.ReportUnhealthy:
		return reportUnhealthy(call, s)
	case *workspacev1.RenameWorkspace:
		return rename(call, s, c)
	case *workspacev1.ChangeStatus:
		return changeStatus(call, s, c)
	case *workspacev1.SetDefaultModel:
		return setDefaultModel(call, s, c)
	case *workspacev1.Suspend:
		return suspend(call, s, c)
	case *workspacev1.Resume:
		return resume(call, s)
	case *workspacev1.ChangeRole:
		return changeRole(call, s, c)
	case *workspacev1.RemoveMember:
		return removeMember(call, s, c)
	case *workspacev1.UpdateMember:
		return updateMember(s, c)
	case *workspacev1.SetMemberDisabled:
		return setMemberDisabled(call, s, c), nil
	case *workspacev1.EndInvitations:
		return endInvitations(call, s, c), nil
	case *workspacev1.Invite:
		return invite(call, s, c)
	case *workspacev1.RevokeInvitation:
		return revokeInvitation(call, s, c)
	case *workspacev1.ReportInvitationMailed:
		return reportInvitationMailed(call, s, c), nil
	case *workspacev1.AcceptInvitation:
		return acceptInvitation(call, s, c)
	case *workspacev1.DescribeInvitation:
		if s.GetInvitations()[c.GetInvitationId()] == nil {
			return nil, errNoInvitation
		}
		return nil, nil
	case *workspacev1.RecordAudit:
		return recordAudit(call, c)
	case *workspacev1.CreateAnchor:
		return createAnchor(call, s, c)
	case *workspacev1.RemoveAnchor:
		return removeAnchor(call, s, c)
	case *workspacev1.Reanchor:
		return reanchor(call, s, c)
	case *workspacev1.MoveAnchor:
		return moveAnchor(call, s, c)
	case *workspacev1.BreakAnchor:
		return breakAnchor(call, s, c)
	case *workspacev1.RepairAnchor:
		return repairAnchor(call, s, c)
	case *workspacev1.OrphanAnchors:
		return orphanAnchors(call, s)
	case *workspacev1.ReportLocksRemoved:
		return reportLocksRemoved(call, s, c), nil
	case *workspacev1.RequestAnchorCheck:
		return []workspacev1.Event{&workspacev1.AnchorCheckRequested{Check: call.Version, At: call.At()}}, nil
	case *workspacev1.ReportAnchorsChecked:
		return reportAnchorsChecked(call, s, c), nil
	case *workspacev1.RegisterAgent, *workspacev1.RemoveAgent, *workspacev1.DescribeAgent, *workspacev1.UpdateAgent,
		*workspacev1.SetDefaultSession, *workspacev1.BindDefaultSession, *workspacev1.ClearDefaultSession,
		*workspacev1.ReadDefaultSessions, *workspacev1.DescribeMembers, *workspacev1.AddAgentUsage,
		*workspacev1.AllowAgentUsage, *workspacev1.ReadAgentUsage, *workspacev1.ReportSessionsStopped:
		return decideAboutAgents(call, s, c)
	case *workspacev1.RegisterApp, *workspacev1.ReserveAppPort, *workspacev1.ReleaseAppPorts, *workspacev1.RemoveApp, *workspacev1.FindApp:
		return decideAboutApps(call, s, c)
	case *workspacev1.Authorize, *workspacev1.DescribeWorkspace, *workspacev1.ListAnchors:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindWorkspace, c)
}

// decideAboutAgents is the part of Decide for agents, default sessions and usage.
func decideAboutAgents(call entity.Call, s *workspacev1.Workspace, command workspacev1.Command) ([]workspacev1.Event, error) {
	switch c := command.(type) {
	case *workspacev1.RegisterAgent:
		return registerAgent(call, s, c)
	case *workspacev1.RemoveAgent:
		return removeAgent(call, s, c), nil
	case *workspacev1.DescribeAgent:
		if describedAgent(s, c) == nil {
			return nil, errNoAgent
		}
		return nil, nil
	case *workspacev1.UpdateAgent:
		return updateAgent(call, s, c)
	case *workspacev1.SetDefaultSession:
		return setDefaultSession(call, s, c)
	case *workspacev1.BindDefaultSession:
		return bindDefaultSession(call, s, c)
	case *workspacev1.ClearDefaultSession:
		return clearDefaultSession(call, s, c), nil
	case *workspacev1.DescribeMembers:
		return nil, checkDescribeMembers(c)
	case *workspacev1.AddAgentUsage:
		return addAgentUsage(call, s, c)
	case *workspacev1.AllowAgentUsage:
		return allowAgentUsage(call, s), nil
	case *workspacev1.ReportSessionsStopped:
		return reportSessionsStopped(call, s, c), nil
	case *workspacev1.ReadDefaultSessions, *workspacev1.ReadAgentUsage:
		return nil, nil
	default:
		return nil, entity.UnknownCommand(entity.KindWorkspace, c)
	}
}

// decideAboutApps is the part of Decide for the reservations of apps.
func decideAboutApps(call entity.Call, s *workspacev1.Workspace, command workspacev1.Command) ([]workspacev1.Event, error) {
	switch c := command.(type) {
	case *workspacev1.RegisterApp:
		return registerApp(call, s, c)
	case *workspacev1.ReserveAppPort:
		return reserveAppPort(call, s, c)
	case *workspacev1.ReleaseAppPorts:
		return releaseAppPorts(call, s, c), nil
	case *workspacev1.RemoveApp:
		return removeApp(call, s, c), nil
	case *workspacev1.FindApp:
		if foundApp(s, c) == nil {
			return nil, errNoApp
		}
		return nil, nil
	default:
		return nil, entity.UnknownCommand(entity.KindWorkspace, c)
	}
}

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *workspacev1.Workspace, e workspacev1.Event) *workspacev1.Workspace {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *workspacev1.WorkspaceCreated:
		applyCreated(next, e)
	case *workspacev1.WorkspaceReady:
		next.Status = workspacev1.Status_STATUS_ACTIVE
	case *workspacev1.WorkspaceUnhealthy:
		next.Status = workspacev1.Status_STATUS_UNHEALTHY
	case *workspacev1.WorkspaceRenamed:
		next.Slug, next.Name = e.GetNewSlug(), e.GetName()
	case *workspacev1.StatusChanged:
		next.Status = e.GetStatus()
		requestSessionStop(next, e.GetSessionStopId(), e.GetAt(), entity.WorkspaceClosed)
	case *workspacev1.DefaultModelChanged:
		next.DefaultTier = e.GetTier()
	case *workspacev1.WorkspaceSuspended:
		next.Suspension, next.ServicingChangedAt = e.GetSuspension(), e.GetSuspension().GetAt()
		requestSessionStop(next, e.GetSessionStopId(), e.GetSuspension().GetAt(), entity.WorkspaceSuspended)
	case *workspacev1.WorkspaceResumed:
		next.Suspension, next.ServicingChangedAt = nil, e.GetAt()
		requestSessionStop(next, "", 0, "")
	case *workspacev1.MemberRoleChanged:
		next.Members = entity.WithChanged(s.GetMembers(), e.GetUserId(), func(m *workspacev1.Membership) { m.Role = e.GetRole() })
		updateLockRemoval(next, e.GetUserId(), e.GetLockRemovalId(), e.GetAt())
	case *workspacev1.MemberRemoved:
		next.Members = entity.Without(s.GetMembers(), e.GetUserId())
		updateLockRemoval(next, e.GetUserId(), e.GetLockRemovalId(), e.GetAt())
	case *workspacev1.LocksRemoved:
		next.LockRemovals = entity.Without(s.GetLockRemovals(), e.GetUserId())
	case *workspacev1.MemberUpdated:
		next.Members = entity.WithChanged(s.GetMembers(), e.GetPerson().GetUserId(), func(m *workspacev1.Membership) {
			m.Email, m.Name = e.GetPerson().GetEmail(), e.GetPerson().GetName()
		})
	case *workspacev1.MemberDisabledSet:
		next.Members = entity.WithChanged(s.GetMembers(), e.GetUserId(), func(m *workspacev1.Membership) { m.Disabled = e.GetDisabled() })
	case *workspacev1.InvitationCreated:
		next.Invitations = invitationsAfter(s.GetInvitations(), e.GetInvitation())
	case *workspacev1.InvitationRevoked:
		next.Invitations = entity.WithChanged(s.GetInvitations(), e.GetInvitationId(), func(i *workspacev1.Invitation) { i.RevokedAt = e.GetAt() })
	case *workspacev1.InvitationMailed:
		next.Invitations = entity.WithChanged(s.GetInvitations(), e.GetInvitationId(), func(i *workspacev1.Invitation) {
			i.MailId, i.MailRequestedAt = "", 0
			i.Delivery = &workspacev1.Delivery{At: e.GetAt(), GivenUp: e.GetGivenUp(), Refusal: e.GetRefusal()}
		})
	case *workspacev1.InvitationAccepted:
		applyAccepted(next, e)
		updateLockRemoval(next, e.GetPerson().GetUserId(), "", 0)
	case *workspacev1.AnchorCreated:
		next.Anchors = entity.With(s.GetAnchors(), e.GetAnchor().GetId(), e.GetAnchor())
	case *workspacev1.AnchorRemoved:
		applyAnchorRemoved(next, e)
	case *workspacev1.AnchorMoved:
		next.Anchors = entity.WithChanged(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) {
			a.Path, a.UpdatedAt, a.Seq = e.GetPath(), e.GetAt(), max(a.GetSeq(), e.GetSeq())
		})
	case *workspacev1.AnchorBroken:
		next.Anchors = entity.WithChanged(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) {
			a.State, a.BrokenAt, a.UpdatedAt, a.Seq = broken, e.GetAt(), e.GetAt(), max(a.GetSeq(), e.GetSeq())
		})
	case *workspacev1.AnchorRepaired:
		next.Anchors = entity.WithChanged(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) { applyRepaired(a, e) })
	case *workspacev1.AnchorOrphaned:
		next.Anchors = entity.WithChanged(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) {
			a.State, a.UpdatedAt = orphaned, e.GetAt()
		})
	case *workspacev1.AnchorCheckRequested:
		next.AnchorCheck = e.GetCheck()
	case *workspacev1.AnchorsChecked:
		next.AnchorCheck = 0
	case *workspacev1.AppPortsChanged:
		next.Anchors = entity.WithChanged(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) { applyAppPortsChanged(a, e) })
	case *workspacev1.AgentUpdated:
		next.Anchors = entity.WithChanged(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) { applyAgentUpdated(a, e) })
	case *workspacev1.DefaultSessionSet:
		applyDefaultSessionSet(next, e)
	case *workspacev1.AgentUsageAdded:
		applyAgentUsageAdded(next, e)
	case *workspacev1.AgentUsageAllowed:
		applyAgentUsageAllowed(next, e)
	case *workspacev1.SessionsStopped:
		next.SessionStop = nil
	case *workspacev1.AuditRecorded:
	}
	return next
}

// Reply returns the answer to a command; s is the state after the events.
func Reply(
	call entity.Call, s *workspacev1.Workspace, c workspacev1.Command, events []workspacev1.Event,
) proto.Message {
	switch c := c.(type) {
	case *workspacev1.Authorize:
		return accessTo(call, s)
	case *workspacev1.DescribeWorkspace, *workspacev1.RenameWorkspace, *workspacev1.ChangeStatus,
		*workspacev1.SetDefaultModel, *workspacev1.Suspend, *workspacev1.Resume:
		return describe(call, s)
	case *workspacev1.ChangeRole:
		return s.GetMembers()[c.GetUserId()]
	case *workspacev1.RemoveMember:
		return &workspacev1.Removed{Removed: len(events) > 0}
	case *workspacev1.Invite:
		return replyInvited(call, s, c)
	case *workspacev1.RevokeInvitation:
		return s.GetInvitations()[c.GetInvitationId()]
	case *workspacev1.DescribeInvitation:
		return s.GetInvitations()[c.GetInvitationId()]
	case *workspacev1.AcceptInvitation:
		return replyAccepted(s, c)
	case *workspacev1.CreateAnchor:
		return s.GetAnchors()[c.GetAnchorId()]
	case *workspacev1.Reanchor:
		return s.GetAnchors()[c.GetAnchorId()]
	case *workspacev1.ListAnchors:
		return &workspacev1.Anchors{Anchors: anchorsInOrder(s)}
	case *workspacev1.RemoveAnchor, *workspacev1.RemoveAgent:
		return &workspacev1.Removed{Removed: len(events) > 0}
	case *workspacev1.RegisterAgent:
		return s.GetAnchors()[c.GetAnchorId()]
	case *workspacev1.DescribeAgent:
		return describedAgent(s, c)
	case *workspacev1.RegisterApp:
		return s.GetAnchors()[c.GetRegistration().GetAnchorId()]
	case *workspacev1.ReserveAppPort:
		return replyPort(s, c)
	case *workspacev1.FindApp:
		return foundApp(s, c)
	case *workspacev1.SetDefaultSession:
		return replyDefaultSession(s, c.GetOwner())
	case *workspacev1.BindDefaultSession:
		return replyDefaultSession(s, c.GetOwner())
	case *workspacev1.ReadDefaultSessions:
		return &workspacev1.DefaultSessions{Sessions: s.GetDefaultSessions()}
	case *workspacev1.DescribeMembers:
		return replyMemberships(s, c)
	case *workspacev1.AllowAgentUsage, *workspacev1.ReadAgentUsage:
		return usageOf(call, s)
	case *workspacev1.CreateWorkspace, *workspacev1.ReportReady, *workspacev1.ReportUnhealthy,
		*workspacev1.UpdateMember, *workspacev1.SetMemberDisabled, *workspacev1.EndInvitations,
		*workspacev1.ReportInvitationMailed, *workspacev1.RecordAudit, *workspacev1.MoveAnchor, *workspacev1.BreakAnchor,
		*workspacev1.RepairAnchor, *workspacev1.OrphanAnchors, *workspacev1.ReportLocksRemoved, *workspacev1.RequestAnchorCheck,
		*workspacev1.ReportAnchorsChecked, *workspacev1.UpdateAgent, *workspacev1.ClearDefaultSession, *workspacev1.AddAgentUsage,
		*workspacev1.ReportSessionsStopped, *workspacev1.ReleaseAppPorts, *workspacev1.RemoveApp:
	}
	return &wirev1.Done{}
}

// replyInvited returns the invitation of the address. It was renewed if its id is not the id of the command.
func replyInvited(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Invite) *workspacev1.Invited {
	address, _ := email.Canonical(c.GetEmail())
	invitation := pendingFor(call, s, address)
	return &workspacev1.Invited{Invitation: invitation, Renewed: invitation.GetId() != c.GetInvitationId()}
}

// replyAccepted returns the id of the workspace and the slug that it had when the invitation was accepted. If the person
// has been removed since, the person must not learn a newer slug, so the reply to a repeated command is the same. An
// invitation that was accepted before AcceptedSlug was stored returns the current slug, and only to members.
func replyAccepted(s *workspacev1.Workspace, c *workspacev1.AcceptInvitation) *workspacev1.Description {
	slug := s.GetInvitations()[c.GetInvitationId()].GetAcceptedSlug()
	if _, member := s.GetMembers()[c.GetPerson().GetUserId()]; member && slug == "" {
		slug = s.GetSlug()
	}
	return &workspacev1.Description{Workspace: &workspacev1.Workspace{Id: s.GetId(), Slug: slug}}
}

// describe returns the workspace, the role and the capabilities of the principal. It leaves out the fields that have queries of
// their own or need other capabilities.
func describe(call entity.Call, s *workspacev1.Workspace) *workspacev1.Description {
	shown := entity.ShallowCopy(s)
	shown.Members, shown.Invitations, shown.Anchors = nil, nil, nil
	shown.DefaultSessions, shown.AgentUsage = nil, nil
	if !entity.IsPlatform(call.Principal) {
		shown.LockRemovals, shown.AnchorCheck, shown.SessionStop = nil, 0, nil
	}
	access := accessTo(call, s)
	return &workspacev1.Description{Workspace: shown, Role: access.Role, Capabilities: access.Capabilities}
}
