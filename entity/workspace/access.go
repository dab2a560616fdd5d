package workspace

import (
	"slices"
	"time"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A principal that does not belong to the workspace gets errNotFound in every case, so that it cannot learn whether the
// workspace exists.
var (
	errNotFound  = entity.Errorf(entity.NotFound, "no such workspace")
	errSuspended = entity.Errorf(entity.WorkspaceSuspended, "the workspace is suspended")
	errClosed    = entity.Errorf(entity.WorkspaceClosed, "the workspace is archived or retired")
	errDeleted   = entity.Errorf(entity.WorkspaceClosed, "the workspace is deleted")
	errRenamed   = &entity.Error{
		Code: entity.Unavailable, Message: "the workspace has just been renamed; retry with its new slug", RetryAfter: time.Second,
	}
	errForbidden = entity.Errorf(entity.Forbidden, "your role or grant does not include this")
)

// Check returns an error unless the principal of the call satisfies the need. It allocates no memory. Errors: not_found if
// the principal does not belong to the workspace, forbidden if it lacks the capability or would change something as a
// viewer or with a read-only key, workspace_suspended and workspace_closed if the workspace accepts no changes. The platform may always change it.
func Check(call entity.Call, s *workspacev1.Workspace, need entity.Need) error {
	role := roleOf(call.Principal, s)
	switch {
	case role == workspacev1.Role_ROLE_UNSPECIFIED:
		return errNotFound
	case !hasAnyCapability(call.Principal, role, need.Any), need.Changes && role == workspacev1.Role_ROLE_VIEWER,
		(need.Changes || need.Personal) && call.Principal.GetReadOnly():
		return errForbidden
	case (need.Changes || need.Personal) && !entity.IsPlatform(call.Principal):
		return checkAcceptsChanges(s)
	}
	return nil
}

// checkAcceptsChanges returns workspace_suspended or workspace_closed if the workspace accepts no changes.
func checkAcceptsChanges(s *workspacev1.Workspace) error {
	switch {
	case s.GetSuspension() != nil:
		return errSuspended
	case s.GetStatus() == workspacev1.Status_STATUS_ARCHIVED, s.GetStatus() == workspacev1.Status_STATUS_RETIRED:
		return errClosed
	}
	return nil
}

// accessTo returns the role and the capabilities of the principal of the call.
func accessTo(call entity.Call, s *workspacev1.Workspace) *workspacev1.Authorized {
	role := roleOf(call.Principal, s)
	return &workspacev1.Authorized{Role: role, Capabilities: entity.Capabilities(call.Principal, role)}
}

// Role returns the role of the principal of the call in the workspace; see roleOf.
func Role(call entity.Call, s *workspacev1.Workspace) workspacev1.Role {
	return roleOf(call.Principal, s)
}

// roleOf returns the role of a principal in the workspace. The role is unspecified if the principal does not belong to the
// workspace, or if the workspace does not exist or is deleted.
//
// The platform has the role of an owner. The workspace's own computer has the role of an editor, which has all capabilities
// of an owner except admin. Every other principal has the role that its user has now. The credential of a computer, an
// OAuth client or an app has no role if it is not bound to the workspace. A limited key has no role in a workspace that it does not reach,
// and a read-only one has the role of a viewer.
func roleOf(p *wirev1.Principal, s *workspacev1.Workspace) workspacev1.Role {
	if !exists(s) || !entity.Reaches(p, s.GetId()) {
		return workspacev1.Role_ROLE_UNSPECIFIED
	}
	if isDeleted(s) && !entity.IsPlatform(p) {
		return workspacev1.Role_ROLE_UNSPECIFIED
	}
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM:
		return workspacev1.Role_ROLE_OWNER
	case wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM:
		if p.GetWorkspaceId() == "" {
			return workspacev1.Role_ROLE_UNSPECIFIED
		}
		return workspacev1.Role_ROLE_EDITOR
	case wirev1.CredentialKind_CREDENTIAL_KIND_USER,
		wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION,
		wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:
		return s.GetMembers()[p.GetUserId()].GetRole()
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP,
		wirev1.CredentialKind_CREDENTIAL_KIND_SESSION:
		if p.GetWorkspaceId() == "" {
			return workspacev1.Role_ROLE_UNSPECIFIED
		}
		return s.GetMembers()[p.GetUserId()].GetRole()
	case wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:
		return roleOfLimitedKey(p, s.GetMembers()[p.GetUserId()].GetRole())
	default:
		return workspacev1.Role_ROLE_UNSPECIFIED
	}
}

// roleOfLimitedKey returns the role of a limited key of a member with a role: a read-only key of any member is a viewer.
func roleOfLimitedKey(p *wirev1.Principal, role workspacev1.Role) workspacev1.Role {
	if p.GetReadOnly() && role != workspacev1.Role_ROLE_UNSPECIFIED {
		return workspacev1.Role_ROLE_VIEWER
	}
	return role
}

func exists(s *workspacev1.Workspace) bool {
	return s.GetStatus() != workspacev1.Status_STATUS_UNSPECIFIED
}

func isDeleted(s *workspacev1.Workspace) bool {
	return s.GetStatus() == workspacev1.Status_STATUS_DELETED
}

// hasAnyCapability reports whether a principal with a role has one of the capabilities, or none is listed.
func hasAnyCapability(p *wirev1.Principal, role workspacev1.Role, any []string) bool {
	for _, capability := range any {
		if hasCapability(p, role, capability) {
			return true
		}
	}
	return len(any) == 0
}

// hasCapability reports whether entity.Capabilities contains a capability. It does not build that list.
func hasCapability(p *wirev1.Principal, role workspacev1.Role, capability string) bool {
	return entity.IsGranted(p, capability) && slices.Contains(entity.Capabilities(unrestricted, role), capability)
}

// unrestricted is a principal that has all capabilities of its role.
var unrestricted = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER}

// accessOf returns the access to a command.
func accessOf(c workspacev1.Command) entity.Access {
	switch c := c.(type) {
	case *workspacev1.AcceptInvitation:
		// The invited person is not a member yet.
		return entity.DecidedByRule()
	case *workspacev1.Authorize:
		return entity.Requires(entity.Need{Any: c.GetAny(), Changes: c.GetChanges(), Personal: c.GetPersonal()})
	case *workspacev1.DescribeWorkspace:
		return entity.Requires(entity.Reads())
	case *workspacev1.RenameWorkspace, *workspacev1.SetDefaultModel, *workspacev1.ChangeRole, *workspacev1.RemoveMember:
		return entity.Requires(entity.Changes(entity.Admin))
	case *workspacev1.Suspend, *workspacev1.Resume:
		// Suspend and Resume are also allowed while the workspace accepts no other changes.
		return entity.Requires(entity.Reads(entity.Admin))
	case *workspacev1.Invite, *workspacev1.RevokeInvitation:
		return entity.Requires(entity.Changes(entity.Members))
	case *workspacev1.Reanchor:
		return entity.Requires(entity.Changes(entity.Apps, entity.Publish, entity.Share))
	case *workspacev1.RegisterAgent, *workspacev1.RemoveAgent:
		return entity.Requires(entity.Changes(entity.Agents))
	case *workspacev1.RegisterApp, *workspacev1.ReserveAppPort:
		return entity.Requires(entity.Changes(entity.Apps))
	case *workspacev1.FindApp:
		return entity.Requires(entity.Reads(entity.Apps))
	case *workspacev1.DescribeAgent:
		return entity.Requires(entity.Reads(entity.Sessions, entity.Agents))
	case *workspacev1.SetDefaultSession, *workspacev1.BindDefaultSession, *workspacev1.AllowAgentUsage:
		return entity.Requires(entity.Changes(entity.Sessions))
	case *workspacev1.ReadDefaultSessions, *workspacev1.DescribeMembers, *workspacev1.ReadAgentUsage:
		return entity.Requires(entity.Reads(entity.Sessions))
	case *workspacev1.UpdateAgent, *workspacev1.ClearDefaultSession, *workspacev1.AddAgentUsage, *workspacev1.ReportSessionsStopped,
		*workspacev1.CreateWorkspace, *workspacev1.ReportReady, *workspacev1.ReportUnhealthy, *workspacev1.UpdateMember,
		*workspacev1.SetMemberDisabled, *workspacev1.EndInvitations, *workspacev1.RecordAudit, *workspacev1.RemoveAnchor, *workspacev1.MoveAnchor, *workspacev1.BreakAnchor,
		*workspacev1.RepairAnchor, *workspacev1.OrphanAnchors, *workspacev1.ListAnchors, *workspacev1.ChangeStatus,
		*workspacev1.DescribeInvitation, *workspacev1.CreateAnchor, *workspacev1.ReportInvitationMailed,
		*workspacev1.ReportLocksRemoved, *workspacev1.RequestAnchorCheck, *workspacev1.ReportAnchorsChecked,
		*workspacev1.ReleaseAppPorts, *workspacev1.RemoveApp:
	}
	return entity.PlatformOnly()
}

// decideAbsent decides a command to a workspace that was never created or is deleted. done reports whether it has decided
// the command; if not, the rule of the command decides it.
func decideAbsent(s *workspacev1.Workspace, c workspacev1.Command) (done bool, err error) {
	if !exists(s) {
		switch c.(type) {
		case *workspacev1.CreateWorkspace, *workspacev1.AcceptInvitation:
			return false, nil
		default:
			return true, errNotFound
		}
	}
	if !isDeleted(s) {
		return false, nil
	}
	switch c := c.(type) {
	case *workspacev1.CreateWorkspace, *workspacev1.AcceptInvitation, *workspacev1.ReportSessionsStopped:
		// The sessions of a deleted workspace are stopped after the deletion.
		return false, nil
	case *workspacev1.ChangeStatus:
		if c.GetStatus() == workspacev1.Status_STATUS_DELETED {
			return true, nil
		}
		return true, errDeleted
	case *workspacev1.Authorize, *workspacev1.DescribeWorkspace, *workspacev1.ReportReady, *workspacev1.ReportUnhealthy,
		*workspacev1.UpdateMember, *workspacev1.SetMemberDisabled, *workspacev1.EndInvitations,
		*workspacev1.RecordAudit, *workspacev1.ReportInvitationMailed, *workspacev1.RemoveAnchor, *workspacev1.MoveAnchor,
		*workspacev1.BreakAnchor, *workspacev1.RepairAnchor, *workspacev1.OrphanAnchors, *workspacev1.ListAnchors,
		*workspacev1.ReportLocksRemoved, *workspacev1.RequestAnchorCheck, *workspacev1.ReportAnchorsChecked,
		*workspacev1.UpdateAgent, *workspacev1.ClearDefaultSession, *workspacev1.AddAgentUsage, *workspacev1.ReadDefaultSessions,
		*workspacev1.ReadAgentUsage, *workspacev1.DescribeMembers, *workspacev1.ReleaseAppPorts, *workspacev1.RemoveApp:
		// Commands of the platform may arrive after the deletion. They succeed without effect.
		return true, nil
	default:
		return true, errNotFound
	}
}
