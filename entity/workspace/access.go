package workspace

import (
	"slices"
	"time"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// One error stands for all that keeps somebody out, so that nobody learns which workspaces there are.
var (
	errNotFound  = entity.Errorf(entity.NotFound, "no such workspace")
	errSuspended = entity.Errorf(entity.WorkspaceSuspended, "the workspace is suspended")
	errClosed    = entity.Errorf(entity.WorkspaceClosed, "the workspace is archived or retired")
	errDeleted   = entity.Errorf(entity.WorkspaceClosed, "the workspace is deleted")
	errRenamed   = &entity.Error{
		Code: entity.Unavailable, Message: "the workspace has just been renamed", RetryAfter: time.Second,
	}
	errForbidden = entity.Errorf(entity.Forbidden, "your role or grant does not include this")
)

var errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a workspace")

// Check refuses a call that has not what an operation needs of the workspace. It allocates nothing.
// Errors: not_found for who does not belong to it, forbidden for a member without the capability or one who only reads,
// workspace_suspended and workspace_closed for changes of one that takes none.
func Check(call entity.Call, s *workspacev1.Workspace, need entity.Need) error {
	role := roleOf(call.Principal, s)
	switch {
	case role == workspacev1.Role_ROLE_UNSPECIFIED:
		return errNotFound
	case !hasAny(call.Principal, role, need.Any), need.Changes && role == workspacev1.Role_ROLE_VIEWER:
		return errForbidden
	case need.Changes && !entity.IsPlatform(call.Principal):
		return takesChanges(s)
	}
	return nil
}

func takesChanges(s *workspacev1.Workspace) error {
	switch {
	case s.GetSuspension() != nil:
		return errSuspended
	case s.GetStatus() == workspacev1.Status_STATUS_ARCHIVED, s.GetStatus() == workspacev1.Status_STATUS_RETIRED:
		return errClosed
	}
	return nil
}

// Allow is Check, and tells the principal's role and all of its capabilities.
func Allow(call entity.Call, s *workspacev1.Workspace, need entity.Need) (*workspacev1.Authorized, error) {
	if err := Check(call, s, need); err != nil {
		return nil, err
	}
	return authorized(call, s), nil
}

func authorized(call entity.Call, s *workspacev1.Workspace) *workspacev1.Authorized {
	role := roleOf(call.Principal, s)
	return &workspacev1.Authorized{Role: role, Capabilities: entity.Capabilities(call.Principal, role)}
}

// roleOf is the role that a principal acts in; unspecified: none, no such workspace, or one that is deleted.
//
// The platform acts as an owner. The workspace's own computer acts as an editor, which is an owner without admin,
// whoever its members are. Every other principal acts for its person, whose role may change or end while the credential
// lives. A credential of a computer, a client or an app that is bound to no workspace acts nowhere.
func roleOf(p *wirev1.Principal, s *workspacev1.Workspace) workspacev1.Role {
	if !exists(s) || p.GetWorkspaceId() != "" && p.GetWorkspaceId() != s.GetId() {
		return workspacev1.Role_ROLE_UNSPECIFIED
	}
	if deleted(s) && !entity.IsPlatform(p) {
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
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP:
		if p.GetWorkspaceId() == "" {
			return workspacev1.Role_ROLE_UNSPECIFIED
		}
		return s.GetMembers()[p.GetUserId()].GetRole()
	default:
		return workspacev1.Role_ROLE_UNSPECIFIED
	}
}

func exists(s *workspacev1.Workspace) bool {
	return s.GetStatus() != workspacev1.Status_STATUS_UNSPECIFIED
}

func deleted(s *workspacev1.Workspace) bool {
	return s.GetStatus() == workspacev1.Status_STATUS_DELETED
}

func hasAny(p *wirev1.Principal, role workspacev1.Role, any []string) bool {
	for _, capability := range any {
		if has(p, role, capability) {
			return true
		}
	}
	return len(any) == 0
}

// has tells whether entity.Capabilities holds a capability, without making the list.
func has(p *wirev1.Principal, role workspacev1.Role, capability string) bool {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_APP:
		if capability == entity.Admin || !slices.Contains(p.GetGrants(), capability) {
			return false
		}
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH:
		if !slices.Contains(p.GetGrants(), capability) {
			return false
		}
	default:
	}
	return slices.Contains(entity.Capabilities(wholeRole, role), capability)
}

// wholeRole has all that a role gives.
var wholeRole = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER}
