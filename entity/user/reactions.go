package user

import (
	"github.com/atelier-run/atelier/entity"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// React returns the commands that follow from an event: credentials are registered and revoked with the keys and sessions
// that they authenticate, the person's workspaces learn their name, and what they do with keys, grants and machines is
// recorded in the audit logs of their workspaces.
func React(identity string, event userv1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *userv1.WorkspaceJoined:
		return updateMembers(identity, e.GetEmail(), e.GetName(), e.GetWorkspaceId())
	case *userv1.ProfileChanged:
		return updateMembers(identity, e.GetEmail(), e.GetName(), e.GetWorkspaceIds()...)
	case *userv1.ApiKeyIssued:
		return append(registerCredential(&credentialv1.Credential{
			Id: e.GetKey().GetId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: e.GetUserId(),
			SecretSha256: e.GetKey().GetSecretSha256(), CreatedAt: e.GetKey().GetCreatedAt(), ExpiresAt: e.GetKey().GetExpiresAt(),
		}), recordAudit("api_key.created", authorOf(e), e.GetKey().GetCreatedAt(), aboutKey(e.GetKey().GetId(), e.GetKey().GetName()), e.GetWorkspaceIds()...)...)
	case *userv1.ApiKeyRevoked:
		return append(revokeCredentials(e.GetAt(), e.GetKeyId()),
			recordAudit("api_key.revoked", authorOf(e), e.GetAt(), aboutKey(e.GetKeyId(), e.GetName()), e.GetWorkspaceIds()...)...)
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
		return revokeCredentials(e.GetAt(), e.GetEndedSessionIds()...)
	case *userv1.ImpersonationStarted:
		return impersonation(e)
	case *userv1.GrantAllowed:
		return recordAudit("oauth_grant.created", author{by: e.GetUserId()}, e.GetGrant().GetCreatedAt(),
			&auditv1.Provenance{Name: e.GetGrant().GetClientName(), Scopes: e.GetGrant().GetScopes()}, e.GetGrant().GetWorkspaceId())
	case *userv1.GrantRevoked:
		return append([]entity.Reaction{entity.Send(entity.KindGrant, e.GetGrantId(), &grantv1.Revoke{At: e.GetAt()})},
			recordAudit("oauth_grant.revoked", authorOf(e), e.GetAt(), &auditv1.Provenance{Name: e.GetClientName()}, e.GetWorkspaceId())...)
	case *userv1.MachineRegistered:
		return recordAudit("sync_machine.registered", author{e.GetUserId(), e.GetImpersonatorId()}, e.GetMachine().GetCreatedAt(),
			&auditv1.Provenance{DeviceId: e.GetMachine().GetSyncDeviceId(), DeviceName: e.GetMachine().GetName()}, e.GetWorkspaceIds()...)
	case *userv1.MachineRenamed:
		return recordAudit("sync_machine.registered", author{e.GetUserId(), e.GetImpersonatorId()}, e.GetAt(),
			&auditv1.Provenance{DeviceId: e.GetSyncDeviceId(), DeviceName: e.GetName()}, e.GetWorkspaceIds()...)
	case *userv1.MachineRemoved:
		return append([]entity.Reaction{entity.Send(entity.KindDevice, e.GetSyncDeviceId(), &devicev1.ReleaseDevice{UserId: e.GetUserId(), MachineId: e.GetMachineId()})},
			recordAudit("sync_machine.removed", authorOf(e), e.GetAt(), &auditv1.Provenance{DeviceId: e.GetSyncDeviceId(), DeviceName: e.GetName()}, e.GetWorkspaceIds()...)...)
	default:
		return nil
	}
}

// aboutKey returns the provenance of a change to an API key; the prefix distinguishes keys of the same name.
func aboutKey(id, name string) *auditv1.Provenance {
	return &auditv1.Provenance{Name: name, Prefix: ShownPrefix(id)}
}

func impersonation(e *userv1.ImpersonationStarted) []entity.Reaction {
	return append(registerCredential(&credentialv1.Credential{
		Id: e.GetCredentialId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, UserId: e.GetUserId(),
		SecretSha256: e.GetSecretSha256(), CreatedAt: e.GetAt(), ExpiresAt: e.GetExpiresAt(), ImpersonatorId: e.GetImpersonatorId(),
	}), recordAudit("impersonation.started", author{e.GetImpersonatorId(), e.GetImpersonatorId()}, e.GetAt(),
		&auditv1.Provenance{MemberUserId: e.GetUserId(), Reason: e.GetReason(), ExpiresAt: e.GetExpiresAt()}, e.GetWorkspaceIds()...)...)
}

// author is the person who did something, and the operator who acted as them; by is empty for the platform.
type author struct{ by, impersonator string }

func authorOf(e interface {
	GetBy() string
	GetImpersonatorId() string
}) author {
	return author{e.GetBy(), e.GetImpersonatorId()}
}

// recordAudit returns the commands that record what a person did in the audit logs of workspaces.
func recordAudit(event string, who author, at int64, provenance *auditv1.Provenance, workspaceIDs ...string) []entity.Reaction {
	recorded := &auditv1.Event{Event: event, ActorId: who.by, At: at, Provenance: provenance}
	if who.impersonator != "" {
		provenance.Actor = who.impersonator
	}
	var all []entity.Reaction
	for _, id := range workspaceIDs {
		all = append(all, entity.Send(entity.KindWorkspace, id, &workspacev1.RecordAudit{Event: recorded}))
	}
	return all
}

func updateMembers(userID, email, name string, workspaceIDs ...string) []entity.Reaction {
	person := &workspacev1.Person{UserId: userID, Email: email, Name: name}
	var all []entity.Reaction
	for _, id := range workspaceIDs {
		all = append(all, entity.Send(entity.KindWorkspace, id, &workspacev1.UpdateMember{Person: person}))
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
