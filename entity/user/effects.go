package user

import (
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MailTask is the kind of the task that mails the open one-time link. Its message is a userv1.LinkMail.
const MailTask = "mail.password"

// Tasks returns the task that mails the one-time link, if a mail was requested and the link is still open.
func Tasks(s *userv1.User) []entity.Task {
	link := s.GetOneTimeLink()
	if link.GetMailId() == "" || s.GetDisabledAt() != 0 {
		return nil
	}
	return []entity.Task{{Kind: MailTask, ID: link.GetMailId(), Message: &userv1.LinkMail{RequestedAt: link.GetMailRequestedAt()}}}
}

// React returns the commands that follow from an event: credentials are registered and revoked together with their API
// keys, browser sessions and impersonations, unlinked subjects become free, workspaces receive the name and address of their member and
// whether the account is disabled, a revoked grant ends its invitations, and changes to
// keys, grants and machines are recorded in the audit logs of the user's workspaces.
func React(identity string, event userv1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *userv1.WorkspaceJoined:
		joined := updateMembers(identity, e.GetEmail(), e.GetName(), e.GetWorkspaceId())
		if e.GetDisabled() {
			joined = append(joined, setMemberDisabled(identity, true, e.GetWorkspaceId())...)
		}
		return joined
	case *userv1.UserDisabled:
		return setMemberDisabled(identity, true, e.GetWorkspaceIds()...)
	case *userv1.UserEnabled:
		return setMemberDisabled(identity, false, e.GetWorkspaceIds()...)
	case *userv1.ProfileChanged:
		return updateMembers(identity, e.GetEmail(), e.GetName(), e.GetWorkspaceIds()...)
	case *userv1.ApiKeyIssued:
		return issuedKey(e)
	case *userv1.ApiKeyRevoked:
		return revokedKey(e)
	case *userv1.BrowserSessionStarted:
		return append(registerCredential(&credentialv1.Credential{
			Id: e.GetSession().GetId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: identity,
			SecretSha256: e.GetSession().GetSecretSha256(), CreatedAt: e.GetSession().GetCreatedAt(), ExpiresAt: e.GetSession().GetExpiresAt(),
		}), revokeCredentials(e.GetSession().GetCreatedAt(), e.GetEndedSessionIds()...)...)
	case *userv1.BrowserSessionEnded:
		return revokeCredentials(e.GetAt(), e.GetSessionId())
	case *userv1.PasswordSet:
		return revokeCredentials(e.GetAt(), e.GetEndedSessionIds()...)
	case *userv1.IdentitiesUnlinked:
		return append(revokeCredentials(e.GetAt(), e.GetEndedSessionIds()...), releaseSubjects(identity, e.GetIdentities())...)
	case *userv1.ImpersonationStarted:
		return startedImpersonation(e)
	case *userv1.GrantAllowed:
		return recordAudit("oauth_grant.created", author{userID: e.GetUserId()}, e.GetGrant().GetCreatedAt(),
			&auditv1.Provenance{Name: e.GetGrant().GetClientName(), Scopes: e.GetGrant().GetScopes()}, e.GetGrant().GetWorkspaceId())
	case *userv1.GrantRevoked:
		return append([]entity.Reaction{
			entity.Send(entity.KindGrant, e.GetGrantId(), &grantv1.Revoke{At: e.GetAt()}),
			entity.Send(entity.KindWorkspace, e.GetWorkspaceId(), &workspacev1.EndInvitations{CredentialId: e.GetGrantId()}),
		},
			recordAudit("oauth_grant.revoked", authorOf(e), e.GetAt(), &auditv1.Provenance{Name: e.GetClientName()}, e.GetWorkspaceId())...)
	case *userv1.MachineRegistered:
		return recordAudit("sync_machine.registered", author{userID: e.GetUserId(), impersonator: e.GetImpersonatorId()}, e.GetMachine().GetCreatedAt(),
			&auditv1.Provenance{DeviceId: e.GetMachine().GetSyncDeviceId(), DeviceName: e.GetMachine().GetName()}, e.GetWorkspaceIds()...)
	case *userv1.MachineRenamed:
		return recordAudit("sync_machine.registered", author{userID: e.GetUserId(), impersonator: e.GetImpersonatorId()}, e.GetAt(),
			&auditv1.Provenance{DeviceId: e.GetSyncDeviceId(), DeviceName: e.GetName()}, e.GetWorkspaceIds()...)
	case *userv1.MachineRemoved:
		return append([]entity.Reaction{entity.Send(entity.KindDevice, e.GetSyncDeviceId(), &devicev1.ReleaseDevice{UserId: e.GetUserId(), MachineId: e.GetMachineId()})},
			recordAudit("sync_machine.removed", authorOf(e), e.GetAt(), &auditv1.Provenance{DeviceId: e.GetSyncDeviceId(), DeviceName: e.GetName()}, e.GetWorkspaceIds()...)...)
	default:
		return nil
	}
}

func issuedKey(e *userv1.ApiKeyIssued) []entity.Reaction {
	key, limits := e.GetKey(), e.GetKey().GetLimits()
	registered := &credentialv1.Credential{
		Id: key.GetId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: e.GetUserId(),
		SecretSha256: key.GetSecretSha256(), CreatedAt: key.GetCreatedAt(), ExpiresAt: key.GetExpiresAt(),
	}
	provenance := &auditv1.Provenance{Name: key.GetName(), Prefix: ShownPrefix(key.GetId(), limits != nil)}
	if limits != nil {
		registered.Kind = wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY
		registered.Grants, registered.WorkspaceIds, registered.ReadOnly = limits.GetCapabilities(), limits.GetWorkspaceIds(), limits.GetReadOnly()
		provenance.Scopes = limits.GetCapabilities()
	}
	return append(registerCredential(registered),
		recordAudit("api_key.created", authorOf(e), key.GetCreatedAt(), provenance, e.GetWorkspaceIds()...)...)
}

// revokedKey also ends the pending invitations that were sent with a limited key, as the revocation of a grant does.
func revokedKey(e *userv1.ApiKeyRevoked) []entity.Reaction {
	all := revokeCredentials(e.GetAt(), e.GetKeyId())
	if e.GetLimited() {
		for _, id := range e.GetWorkspaceIds() {
			all = append(all, entity.Send(entity.KindWorkspace, id, &workspacev1.EndInvitations{CredentialId: e.GetKeyId()}))
		}
	}
	return append(all, recordAudit("api_key.revoked", authorOf(e), e.GetAt(),
		&auditv1.Provenance{Name: e.GetName(), Prefix: ShownPrefix(e.GetKeyId(), e.GetLimited())}, e.GetWorkspaceIds()...)...)
}

func startedImpersonation(e *userv1.ImpersonationStarted) []entity.Reaction {
	return append(registerCredential(&credentialv1.Credential{
		Id: e.GetCredentialId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, UserId: e.GetUserId(),
		SecretSha256: e.GetSecretSha256(), CreatedAt: e.GetAt(), ExpiresAt: e.GetExpiresAt(), ImpersonatorId: e.GetImpersonatorId(),
	}), recordAudit("impersonation.started", author{userID: e.GetImpersonatorId(), impersonator: e.GetImpersonatorId()}, e.GetAt(),
		&auditv1.Provenance{MemberUserId: e.GetUserId(), Reason: e.GetReason(), ExpiresAt: e.GetExpiresAt()}, e.GetWorkspaceIds()...)...)
}

// author is the author of an audit event: a user id, which is empty for the platform, and the operator if the author was
// impersonated.
type author struct{ userID, impersonator string }

func authorOf(e interface {
	GetBy() string
	GetImpersonatorId() string
}) author {
	return author{userID: e.GetBy(), impersonator: e.GetImpersonatorId()}
}

// recordAudit returns the commands that record an event in the audit logs of workspaces.
func recordAudit(event string, by author, at int64, provenance *auditv1.Provenance, workspaceIDs ...string) []entity.Reaction {
	recorded := &auditv1.Event{Event: event, ActorId: by.userID, At: at, Provenance: provenance}
	if by.impersonator != "" {
		provenance.Actor = by.impersonator
	}
	var all []entity.Reaction
	for _, id := range workspaceIDs {
		all = append(all, entity.Send(entity.KindWorkspace, id, &workspacev1.RecordAudit{Event: recorded}))
	}
	return all
}

// updateMembers returns the commands that report the name and address of the user to workspaces.
func updateMembers(userID, email, name string, workspaceIDs ...string) []entity.Reaction {
	person := &workspacev1.Person{UserId: userID, Email: email, Name: name}
	var all []entity.Reaction
	for _, id := range workspaceIDs {
		all = append(all, entity.Send(entity.KindWorkspace, id, &workspacev1.UpdateMember{Person: person}))
	}
	return all
}

// setMemberDisabled returns the commands that report to workspaces whether the account is disabled.
func setMemberDisabled(userID string, disabled bool, workspaceIDs ...string) []entity.Reaction {
	var all []entity.Reaction
	for _, id := range workspaceIDs {
		all = append(all, entity.Send(entity.KindWorkspace, id, &workspacev1.SetMemberDisabled{UserId: userID, Disabled: disabled}))
	}
	return all
}

func registerCredential(c *credentialv1.Credential) []entity.Reaction {
	return []entity.Reaction{entity.Send(entity.KindCredential, c.GetId(), &credentialv1.RegisterCredential{Credential: c})}
}

func revokeCredentials(at int64, credentialIDs ...string) []entity.Reaction {
	var all []entity.Reaction
	for _, id := range credentialIDs {
		all = append(all, entity.Send(entity.KindCredential, id, &credentialv1.RevokeCredential{At: at}))
	}
	return all
}

// People is the name of the list of users, for operators. Each user has one row, its Profile.
const People = "people"

// Rows returns the rows of the operators' lists: the profile, and audit events about the account. Changes to keys, grants
// and machines are recorded in the logs of the user's workspaces instead, see React.
func Rows(call entity.Call, _, after *userv1.User, _ userv1.Command, events []userv1.Event) []entity.Row {
	var rows []entity.Row
	changed := false
	for i, e := range events {
		if changesProfile(e) {
			changed = true
		}
		if recorded := auditEvent(call, after, e); recorded != nil {
			rows = append(rows, audit.NewRow(entity.KindUser, call, i, recorded))
		}
	}
	if changed {
		rows = append(rows, entity.Row{List: People, Key: after.GetId(), Message: Profile(after)})
	}
	return rows
}

// changesProfile reports whether an event changes the Profile of the user.
func changesProfile(e userv1.Event) bool {
	switch e.(type) {
	case *userv1.UserCreated, *userv1.WorkspaceJoined, *userv1.WorkspaceLeft, *userv1.ProfileChanged,
		*userv1.UserDisabled, *userv1.UserEnabled, *userv1.InternalAdminSet:
		return true
	case *userv1.WorkspaceReserved, *userv1.WorkspaceForgotten,
		*userv1.ApiKeyIssued, *userv1.ApiKeyRevoked, *userv1.OneTimeLinkOffered, *userv1.OneTimeLinkMailed, *userv1.PasswordSet,
		*userv1.BrowserSessionStarted, *userv1.BrowserSessionEnded, *userv1.IdentityLinked,
		*userv1.IdentitiesUnlinked, *userv1.ImpersonationStarted, *userv1.GrantAllowed, *userv1.GrantRevoked,
		*userv1.MachineRegistered, *userv1.MachineRenamed, *userv1.MachineRemoved:
	}
	return false
}

// auditEvent returns the event of the operators' audit log for an event, or nil if it is not logged.
func auditEvent(call entity.Call, s *userv1.User, e userv1.Event) *auditv1.Event {
	provenance := &auditv1.Provenance{CanonicalEmail: s.GetEmail()}
	switch e := e.(type) {
	case *userv1.UserCreated:
		return audit.NewEvent(call, "user.created", provenance)
	case *userv1.UserDisabled:
		return audit.NewEvent(call, "user.disabled", provenance)
	case *userv1.UserEnabled:
		return audit.NewEvent(call, "user.enabled", provenance)
	case *userv1.InternalAdminSet:
		provenance.Role = "user"
		if e.GetInternalAdmin() {
			provenance.Role = "internal_admin"
		}
		return audit.NewEvent(call, "user.admin_changed", provenance)
	case *userv1.IdentityLinked:
		provenance.Source = e.GetIdentity().GetIssuer()
		return audit.NewEvent(call, "user.identity_linked", provenance)
	case *userv1.IdentitiesUnlinked:
		return audit.NewEvent(call, "user.identities_unlinked", provenance)
	case *userv1.ImpersonationStarted:
		provenance.Reason, provenance.ExpiresAt = e.GetReason(), e.GetExpiresAt()
		recorded := audit.NewEvent(call, "impersonation.started", provenance)
		recorded.ActorId, recorded.Provenance.Actor = e.GetImpersonatorId(), e.GetImpersonatorId()
		return recorded
	case *userv1.WorkspaceJoined, *userv1.WorkspaceLeft, *userv1.WorkspaceReserved, *userv1.WorkspaceForgotten,
		*userv1.ProfileChanged, *userv1.ApiKeyIssued,
		*userv1.ApiKeyRevoked, *userv1.OneTimeLinkOffered, *userv1.OneTimeLinkMailed, *userv1.PasswordSet, *userv1.BrowserSessionStarted,
		*userv1.BrowserSessionEnded, *userv1.GrantAllowed, *userv1.GrantRevoked, *userv1.MachineRegistered,
		*userv1.MachineRenamed, *userv1.MachineRemoved:
	}
	return nil
}
