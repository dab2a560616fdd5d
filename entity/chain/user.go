package chain

import (
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func ofUser(identity string, event userv1.Event) []entity.Command {
	switch e := event.(type) {
	case *userv1.WorkspaceJoined:
		return update(identity, e.GetEmail(), e.GetName(), e.GetWorkspaceId())
	case *userv1.ProfileChanged:
		return update(identity, e.GetEmail(), e.GetName(), e.GetWorkspaceIds()...)
	case *userv1.ApiKeyIssued:
		return append(register(&credentialv1.Credential{
			Id: e.GetKey().GetId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: e.GetUserId(),
			SecretSha256: e.GetKey().GetSecretSha256(), CreatedAt: e.GetKey().GetCreatedAt(), ExpiresAt: e.GetKey().GetExpiresAt(),
		}), record("api_key.created", of(e), e.GetKey().GetCreatedAt(), aboutKey(e.GetKey().GetId(), e.GetKey().GetName()), e.GetWorkspaceIds()...)...)
	case *userv1.ApiKeyRevoked:
		return append(revoke(e.GetAt(), e.GetKeyId()),
			record("api_key.revoked", of(e), e.GetAt(), aboutKey(e.GetKeyId(), e.GetName()), e.GetWorkspaceIds()...)...)
	case *userv1.BrowserSessionStarted:
		return append(register(&credentialv1.Credential{
			Id: e.GetSession().GetId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: identity,
			SecretSha256: e.GetSession().GetSecretSha256(), CreatedAt: e.GetSession().GetCreatedAt(), ExpiresAt: e.GetSession().GetExpiresAt(),
		}), revoke(e.GetSession().GetCreatedAt(), e.GetEndedSessionIds()...)...)
	case *userv1.BrowserSessionEnded:
		return revoke(e.GetAt(), e.GetSessionId())
	case *userv1.PasswordSet:
		return revoke(e.GetAt(), e.GetEndedSessionIds()...)
	case *userv1.IdentitiesUnlinked:
		return revoke(e.GetAt(), e.GetEndedSessionIds()...)
	case *userv1.ImpersonationStarted:
		return impersonation(e)
	case *userv1.GrantAllowed:
		return record("oauth_grant.created", author{by: e.GetUserId()}, e.GetGrant().GetCreatedAt(),
			&auditv1.Provenance{Name: e.GetGrant().GetClientName(), Scopes: e.GetGrant().GetScopes()}, e.GetGrant().GetWorkspaceId())
	case *userv1.GrantRevoked:
		return append(to(entity.KindGrant, e.GetGrantId(), &grantv1.Revoke{At: e.GetAt()}),
			record("oauth_grant.revoked", of(e), e.GetAt(), &auditv1.Provenance{Name: e.GetClientName()}, e.GetWorkspaceId())...)
	case *userv1.MachineRegistered:
		return record("sync_machine.registered", author{e.GetUserId(), e.GetImpersonatorId()}, e.GetMachine().GetCreatedAt(),
			&auditv1.Provenance{DeviceId: e.GetMachine().GetSyncDeviceId(), DeviceName: e.GetMachine().GetName()}, e.GetWorkspaceIds()...)
	case *userv1.MachineRenamed:
		return record("sync_machine.registered", author{e.GetUserId(), e.GetImpersonatorId()}, e.GetAt(),
			&auditv1.Provenance{DeviceId: e.GetSyncDeviceId(), DeviceName: e.GetName()}, e.GetWorkspaceIds()...)
	case *userv1.MachineRemoved:
		return append(to(entity.KindDevice, e.GetSyncDeviceId(), &devicev1.ReleaseDevice{UserId: e.GetUserId(), MachineId: e.GetMachineId()}),
			record("sync_machine.removed", of(e), e.GetAt(), &auditv1.Provenance{DeviceId: e.GetSyncDeviceId(), DeviceName: e.GetName()}, e.GetWorkspaceIds()...)...)
	default:
		return nil
	}
}

// aboutKey tells which of the keys of a name it is.
func aboutKey(id, name string) *auditv1.Provenance {
	return &auditv1.Provenance{Name: name, Prefix: user.ShownPrefix(id)}
}

func impersonation(e *userv1.ImpersonationStarted) []entity.Command {
	return append(register(&credentialv1.Credential{
		Id: e.GetCredentialId(), Kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, UserId: e.GetUserId(),
		SecretSha256: e.GetSecretSha256(), CreatedAt: e.GetAt(), ExpiresAt: e.GetExpiresAt(), ImpersonatorId: e.GetImpersonatorId(),
	}), record("impersonation.started", author{e.GetImpersonatorId(), e.GetImpersonatorId()}, e.GetAt(),
		&auditv1.Provenance{MemberUserId: e.GetUserId(), Reason: e.GetReason(), ExpiresAt: e.GetExpiresAt()}, e.GetWorkspaceIds()...)...)
}

// author is who did something, and the operator who acted as them; by is empty for the platform.
type author struct{ by, impersonator string }

func of(e interface {
	GetBy() string
	GetImpersonatorId() string
}) author {
	return author{e.GetBy(), e.GetImpersonatorId()}
}

// record has what a person did recorded in the logs of workspaces.
func record(event string, who author, at int64, provenance *auditv1.Provenance, workspaceIDs ...string) []entity.Command {
	recorded := &auditv1.Event{Event: event, ActorId: who.by, At: at, Provenance: provenance}
	if who.impersonator != "" {
		provenance.Actor = who.impersonator
	}
	var all []entity.Command
	for _, id := range workspaceIDs {
		all = append(all, to(entity.KindWorkspace, id, &workspacev1.RecordAudit{Event: recorded})...)
	}
	return all
}

func update(userID, email, name string, workspaceIDs ...string) []entity.Command {
	person := &workspacev1.Person{UserId: userID, Email: email, Name: name}
	var all []entity.Command
	for _, id := range workspaceIDs {
		all = append(all, to(entity.KindWorkspace, id, &workspacev1.UpdateMember{Person: person})...)
	}
	return all
}

func register(c *credentialv1.Credential) []entity.Command {
	return to(entity.KindCredential, c.GetId(), &credentialv1.RegisterCredential{Credential: c})
}

func revoke(at int64, credentialIDs ...string) []entity.Command {
	var all []entity.Command
	for _, id := range credentialIDs {
		all = append(all, to(entity.KindCredential, id, &credentialv1.RevokeCredential{At: at})...)
	}
	return all
}
