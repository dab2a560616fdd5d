package user_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/user"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func recorded(workspace, event, actor string, p *auditv1.Provenance) entity.Reaction {
	return entity.Send(entity.KindWorkspace, workspace, &workspacev1.RecordAudit{
		Event: &auditv1.Event{Event: event, ActorId: actor, At: 5, Provenance: p},
	})
}

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"profile": {"usr_1", &userv1.ProfileChanged{Email: "e", Name: "n", WorkspaceIds: []string{"ws_1", "ws_2"}}, []entity.Reaction{
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.UpdateMember{Person: &workspacev1.Person{UserId: "usr_1", Email: "e", Name: "n"}}),
			entity.Send(entity.KindWorkspace, "ws_2", &workspacev1.UpdateMember{Person: &workspacev1.Person{UserId: "usr_1", Email: "e", Name: "n"}}),
		}},
		"joined": {"usr_1", &userv1.WorkspaceJoined{WorkspaceId: "ws_1", Email: "e", Name: "n", Disabled: true}, []entity.Reaction{
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.UpdateMember{Person: &workspacev1.Person{UserId: "usr_1", Email: "e", Name: "n"}}),
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.SetMemberDisabled{UserId: "usr_1", Disabled: true}),
		}},
		"disabled": {"usr_1", &userv1.UserDisabled{At: 5, WorkspaceIds: []string{"ws_1"}}, []entity.Reaction{
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.SetMemberDisabled{UserId: "usr_1", Disabled: true}),
		}},
		"enabled": {"usr_1", &userv1.UserEnabled{At: 5, WorkspaceIds: []string{"ws_1"}}, []entity.Reaction{
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.SetMemberDisabled{UserId: "usr_1"}),
		}},
		"key": {"usr_1", &userv1.ApiKeyIssued{Key: &userv1.ApiKey{Id: "key_01j0abcdefghi", Name: "n", CreatedAt: 5}, UserId: "usr_1", WorkspaceIds: []string{"ws_1"}, By: "usr_1"}, []entity.Reaction{
			entity.Send(entity.KindCredential, "key_01j0abcdefghi", &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
				Id: "key_01j0abcdefghi", Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1", CreatedAt: 5,
			}}),
			recorded("ws_1", "api_key.created", "usr_1", &auditv1.Provenance{Name: "n", Prefix: "atl_01j0abcd"}),
		}},
		"key by the platform": {"usr_1", &userv1.ApiKeyRevoked{KeyId: "key_01j0abcdefghi", Name: "n", At: 5, WorkspaceIds: []string{"ws_1"}}, []entity.Reaction{
			entity.Send(entity.KindCredential, "key_01j0abcdefghi", &credentialv1.RevokeCredential{At: 5}),
			recorded("ws_1", "api_key.revoked", "", &auditv1.Provenance{Name: "n", Prefix: "atl_01j0abcd"}),
		}},
		"limited key": {"usr_1", &userv1.ApiKeyIssued{
			Key:    &userv1.ApiKey{Id: "key_01j0abcdefghi", Name: "n", CreatedAt: 5, Limits: &userv1.KeyLimits{Capabilities: []string{"apps"}, WorkspaceIds: []string{"ws_1"}, ReadOnly: true}},
			UserId: "usr_1", WorkspaceIds: []string{"ws_1"}, By: "usr_1",
		}, []entity.Reaction{
			entity.Send(entity.KindCredential, "key_01j0abcdefghi", &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
				Id: "key_01j0abcdefghi", Kind: wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, UserId: "usr_1", CreatedAt: 5,
				Grants: []string{"apps"}, WorkspaceIds: []string{"ws_1"}, ReadOnly: true,
			}}),
			recorded("ws_1", "api_key.created", "usr_1", &auditv1.Provenance{Name: "n", Prefix: "atllim_01j0abcd", Scopes: []string{"apps"}}),
		}},
		"limited key revoked": {"usr_1", &userv1.ApiKeyRevoked{KeyId: "key_01j0abcdefghi", Name: "n", At: 5, WorkspaceIds: []string{"ws_1"}, Limited: true}, []entity.Reaction{
			entity.Send(entity.KindCredential, "key_01j0abcdefghi", &credentialv1.RevokeCredential{At: 5}),
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.EndInvitations{CredentialId: "key_01j0abcdefghi"}),
			recorded("ws_1", "api_key.revoked", "", &auditv1.Provenance{Name: "n", Prefix: "atllim_01j0abcd"}),
		}},
		"session": {"usr_1", &userv1.BrowserSessionStarted{Session: &userv1.BrowserSession{Id: "b", CreatedAt: 5, ExpiresAt: 9}, EndedSessionIds: []string{"a"}}, []entity.Reaction{
			entity.Send(entity.KindCredential, "b", &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
				Id: "b", Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: "usr_1", CreatedAt: 5, ExpiresAt: 9,
			}}),
			entity.Send(entity.KindCredential, "a", &credentialv1.RevokeCredential{At: 5}),
		}},
		"password": {"usr_1", &userv1.PasswordSet{At: 5, EndedSessionIds: []string{"a"}}, []entity.Reaction{
			entity.Send(entity.KindCredential, "a", &credentialv1.RevokeCredential{At: 5}),
		}},
		"unlinked": {"usr_1", &userv1.IdentitiesUnlinked{At: 5, EndedSessionIds: []string{"a"}}, []entity.Reaction{
			entity.Send(entity.KindCredential, "a", &credentialv1.RevokeCredential{At: 5}),
		}},
		"impersonation": {"usr_1", &userv1.ImpersonationStarted{
			CredentialId: "i", ImpersonatorId: "usr_2", UserId: "usr_1", At: 5, ExpiresAt: 9, Reason: "r", WorkspaceIds: []string{"ws_1"},
		}, []entity.Reaction{
			entity.Send(entity.KindCredential, "i", &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
				Id: "i", Kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, UserId: "usr_1", CreatedAt: 5, ExpiresAt: 9, ImpersonatorId: "usr_2",
			}}),
			recorded("ws_1", "impersonation.started", "usr_2", &auditv1.Provenance{Actor: "usr_2", MemberUserId: "usr_1", Reason: "r", ExpiresAt: 9}),
		}},
		"grant": {"usr_1", &userv1.GrantAllowed{UserId: "usr_1", Grant: &userv1.Grant{Id: "g", ClientName: "n", WorkspaceId: "ws_1", Scopes: []string{"s"}, CreatedAt: 5}}, []entity.Reaction{
			recorded("ws_1", "oauth_grant.created", "usr_1", &auditv1.Provenance{Name: "n", Scopes: []string{"s"}}),
		}},
		"grant revoked": {"usr_1", &userv1.GrantRevoked{GrantId: "g", ClientName: "n", WorkspaceId: "ws_1", At: 5, By: "usr_1", ImpersonatorId: "usr_2"}, []entity.Reaction{
			entity.Send(entity.KindGrant, "g", &grantv1.Revoke{At: 5}),
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.EndInvitations{CredentialId: "g"}),
			recorded("ws_1", "oauth_grant.revoked", "usr_1", &auditv1.Provenance{Name: "n", Actor: "usr_2"}),
		}},
		"machine": {"usr_1", &userv1.MachineRegistered{UserId: "usr_1", Machine: &userv1.Machine{SyncDeviceId: "D", Name: "n", CreatedAt: 5}, WorkspaceIds: []string{"ws_1"}}, []entity.Reaction{
			recorded("ws_1", "sync_machine.registered", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n"}),
		}},
		"machine renamed": {"usr_1", &userv1.MachineRenamed{
			MachineId: "m", Name: "n", At: 5, UserId: "usr_1", SyncDeviceId: "D", WorkspaceIds: []string{"ws_1", "ws_2"}, ImpersonatorId: "usr_2",
		}, []entity.Reaction{
			recorded("ws_1", "sync_machine.registered", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n", Actor: "usr_2"}),
			recorded("ws_2", "sync_machine.registered", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n", Actor: "usr_2"}),
		}},
		"machine renamed before that was logged": {"usr_1", &userv1.MachineRenamed{MachineId: "m", Name: "n", At: 5}, nil},
		"machine removed": {"usr_1", &userv1.MachineRemoved{MachineId: "m", UserId: "usr_1", SyncDeviceId: "D", Name: "n", At: 5, By: "usr_1", WorkspaceIds: []string{"ws_1"}}, []entity.Reaction{
			entity.Send(entity.KindDevice, "D", &devicev1.ReleaseDevice{UserId: "usr_1", MachineId: "m"}),
			recorded("ws_1", "sync_machine.removed", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n"}),
		}},
		"key of an older version": {"usr_1", &userv1.ApiKeyRevoked{KeyId: "key_1"}, []entity.Reaction{
			entity.Send(entity.KindCredential, "key_1", &credentialv1.RevokeCredential{}),
		}},
		"password of an older version": {"usr_1", &userv1.PasswordSet{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, user.Kind.React(test.identity, test.event), test.want)
		})
	}
}
