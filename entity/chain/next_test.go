package chain_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/chain"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const month = 30 * 24 * 3600 * 1000

func command(kind, identity string, m proto.Message) entity.Command {
	return entity.Command{Kind: kind, Identity: identity, Message: m}
}

func record(workspace, event, actor string, p *auditv1.Provenance) entity.Command {
	return command(entity.KindWorkspace, workspace, &workspacev1.RecordAudit{
		Event: &auditv1.Event{Event: event, ActorId: actor, At: 5, Provenance: p},
	})
}

var nexts = map[string]struct {
	identity string
	event    proto.Message
	want     []entity.Command
}{
	"rename": {"ws_1", &workspacev1.WorkspaceRenamed{OldSlug: "a", NewSlug: "b", At: 5}, []entity.Command{
		command(entity.KindSlug, "a", &slugv1.ReleaseSlug{WorkspaceId: "ws_1", ReservedUntil: 5 + month}),
	}},
	"name alone": {"ws_1", &workspacev1.WorkspaceRenamed{OldSlug: "a", NewSlug: "a", At: 5}, nil},
	"deletion": {"ws_1", &workspacev1.StatusChanged{Status: workspacev1.Status_STATUS_DELETED, Slug: "a", At: 5, BillingUserId: "usr_1"}, []entity.Command{
		command(entity.KindSlug, "a", &slugv1.ReleaseSlug{WorkspaceId: "ws_1", ReservedUntil: 5 + month}),
		command(entity.KindComputer, "ws_1", &computerv1.RetireComputer{TaskId: "retire-5"}),
		command(entity.KindUser, "usr_1", &userv1.ForgetWorkspace{WorkspaceId: "ws_1"}),
	}},
	"archive": {"ws_1", &workspacev1.StatusChanged{Status: workspacev1.Status_STATUS_ARCHIVED, Slug: "a", At: 5}, nil},
	"creation": {"ws_1", &workspacev1.WorkspaceCreated{CreatorId: "usr_1", At: 5}, []entity.Command{
		command(entity.KindUser, "usr_1", &userv1.JoinWorkspace{WorkspaceId: "ws_1", Created: true}),
		command(entity.KindComputer, "ws_1", &computerv1.RequestComputer{TaskId: "provision-5"}),
	}},
	"slug": {"a", &slugv1.SlugClaimed{Slug: "a", WorkspaceId: "ws_1", CreatorId: "usr_1", CreatorEmail: "e", CreatorName: "n"}, []entity.Command{
		command(entity.KindWorkspace, "ws_1", &workspacev1.CreateWorkspace{Slug: "a", CreatorId: "usr_1", CreatorEmail: "e", CreatorName: "n"}),
	}},
	"invitation": {"ws_1", &workspacev1.InvitationCreated{Invitation: &workspacev1.Invitation{
		Id: "inv_1", Email: "a@example.com", Inviter: &workspacev1.Person{UserId: "usr_1"},
	}}, []entity.Command{
		command(entity.KindEmail, "a@example.com", &emailv1.AddInvitation{InvitationId: "inv_1", WorkspaceId: "ws_1", InviterId: "usr_1"}),
	}},
	"invitation by nobody": {"ws_1", &workspacev1.InvitationCreated{Invitation: &workspacev1.Invitation{Id: "inv_1", Email: "a@example.com"}}, []entity.Command{
		command(entity.KindEmail, "a@example.com", &emailv1.AddInvitation{InvitationId: "inv_1", WorkspaceId: "ws_1"}),
	}},
	"acceptance": {"ws_1", &workspacev1.InvitationAccepted{Person: &workspacev1.Person{UserId: "usr_1"}}, []entity.Command{
		command(entity.KindUser, "usr_1", &userv1.JoinWorkspace{WorkspaceId: "ws_1"}),
	}},
	"removal": {"ws_1", &workspacev1.MemberRemoved{UserId: "usr_1"}, []entity.Command{
		command(entity.KindUser, "usr_1", &userv1.LeaveWorkspace{WorkspaceId: "ws_1"}),
	}},
	"profile": {"usr_1", &userv1.ProfileChanged{Email: "e", Name: "n", WorkspaceIds: []string{"ws_1", "ws_2"}}, []entity.Command{
		command(entity.KindWorkspace, "ws_1", &workspacev1.UpdateMember{Person: &workspacev1.Person{UserId: "usr_1", Email: "e", Name: "n"}}),
		command(entity.KindWorkspace, "ws_2", &workspacev1.UpdateMember{Person: &workspacev1.Person{UserId: "usr_1", Email: "e", Name: "n"}}),
	}},
	"key": {"usr_1", &userv1.ApiKeyIssued{Key: &userv1.ApiKey{Id: "key_01j0abcdefghi", Name: "n", CreatedAt: 5}, UserId: "usr_1", WorkspaceIds: []string{"ws_1"}, By: "usr_1"}, []entity.Command{
		command(entity.KindCredential, "key_01j0abcdefghi", &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
			Id: "key_01j0abcdefghi", Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1", CreatedAt: 5,
		}}),
		record("ws_1", "api_key.created", "usr_1", &auditv1.Provenance{Name: "n", Prefix: "atl_01j0abcd"}),
	}},
	"key by the platform": {"usr_1", &userv1.ApiKeyRevoked{KeyId: "key_01j0abcdefghi", Name: "n", At: 5, WorkspaceIds: []string{"ws_1"}}, []entity.Command{
		command(entity.KindCredential, "key_01j0abcdefghi", &credentialv1.RevokeCredential{At: 5}),
		record("ws_1", "api_key.revoked", "", &auditv1.Provenance{Name: "n", Prefix: "atl_01j0abcd"}),
	}},
	"session": {"usr_1", &userv1.BrowserSessionStarted{Session: &userv1.BrowserSession{Id: "b", CreatedAt: 5, ExpiresAt: 9}, EndedSessionIds: []string{"a"}}, []entity.Command{
		command(entity.KindCredential, "b", &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
			Id: "b", Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: "usr_1", CreatedAt: 5, ExpiresAt: 9,
		}}),
		command(entity.KindCredential, "a", &credentialv1.RevokeCredential{At: 5}),
	}},
	"password": {"usr_1", &userv1.PasswordSet{At: 5, EndedSessionIds: []string{"a"}}, []entity.Command{
		command(entity.KindCredential, "a", &credentialv1.RevokeCredential{At: 5}),
	}},
	"unlinked": {"usr_1", &userv1.IdentitiesUnlinked{At: 5, EndedSessionIds: []string{"a"}}, []entity.Command{
		command(entity.KindCredential, "a", &credentialv1.RevokeCredential{At: 5}),
	}},
	"impersonation": {"usr_1", &userv1.ImpersonationStarted{
		CredentialId: "i", ImpersonatorId: "usr_2", UserId: "usr_1", At: 5, ExpiresAt: 9, Reason: "r", WorkspaceIds: []string{"ws_1"},
	}, []entity.Command{
		command(entity.KindCredential, "i", &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
			Id: "i", Kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, UserId: "usr_1", CreatedAt: 5, ExpiresAt: 9, ImpersonatorId: "usr_2",
		}}),
		record("ws_1", "impersonation.started", "usr_2", &auditv1.Provenance{Actor: "usr_2", MemberUserId: "usr_1", Reason: "r", ExpiresAt: 9}),
	}},
	"grant": {"usr_1", &userv1.GrantAllowed{UserId: "usr_1", Grant: &userv1.Grant{Id: "g", ClientName: "n", WorkspaceId: "ws_1", Scopes: []string{"s"}, CreatedAt: 5}}, []entity.Command{
		record("ws_1", "oauth_grant.created", "usr_1", &auditv1.Provenance{Name: "n", Scopes: []string{"s"}}),
	}},
	"grant revoked": {"usr_1", &userv1.GrantRevoked{GrantId: "g", ClientName: "n", WorkspaceId: "ws_1", At: 5, By: "usr_1", ImpersonatorId: "usr_2"}, []entity.Command{
		command(entity.KindGrant, "g", &grantv1.Revoke{At: 5}),
		record("ws_1", "oauth_grant.revoked", "usr_1", &auditv1.Provenance{Name: "n", Actor: "usr_2"}),
	}},
	"family revoked": {"g", &grantv1.Revoked{UserId: "usr_1", Reason: "refresh_replayed"}, []entity.Command{
		command(entity.KindUser, "usr_1", &userv1.RevokeGrant{GrantId: "g"}),
	}},
	"machine": {"usr_1", &userv1.MachineRegistered{UserId: "usr_1", Machine: &userv1.Machine{SyncDeviceId: "D", Name: "n", CreatedAt: 5}, WorkspaceIds: []string{"ws_1"}}, []entity.Command{
		record("ws_1", "sync_machine.registered", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n"}),
	}},
	"machine renamed": {"usr_1", &userv1.MachineRenamed{
		MachineId: "m", Name: "n", At: 5, UserId: "usr_1", SyncDeviceId: "D", WorkspaceIds: []string{"ws_1", "ws_2"}, ImpersonatorId: "usr_2",
	}, []entity.Command{
		record("ws_1", "sync_machine.registered", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n", Actor: "usr_2"}),
		record("ws_2", "sync_machine.registered", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n", Actor: "usr_2"}),
	}},
	"machine renamed before that was logged": {"usr_1", &userv1.MachineRenamed{MachineId: "m", Name: "n", At: 5}, nil},
	"machine removed": {"usr_1", &userv1.MachineRemoved{MachineId: "m", UserId: "usr_1", SyncDeviceId: "D", Name: "n", At: 5, By: "usr_1", WorkspaceIds: []string{"ws_1"}}, []entity.Command{
		command(entity.KindDevice, "D", &devicev1.ReleaseDevice{UserId: "usr_1", MachineId: "m"}),
		record("ws_1", "sync_machine.removed", "usr_1", &auditv1.Provenance{DeviceId: "D", DeviceName: "n"}),
	}},
	"opened again": {"ws_1", &workspacev1.StatusChanged{Status: workspacev1.Status_STATUS_ACTIVE, At: 5}, []entity.Command{
		command(entity.KindComputer, "ws_1", &computerv1.AnnounceLoss{At: 5}),
	}},
	"computer lost": {"ws_1", &computerv1.ComputerLost{}, []entity.Command{command(entity.KindWorkspace, "ws_1", &workspacev1.ReportUnhealthy{})}},
}

func TestNext(t *testing.T) {
	for name, test := range nexts {
		got := chain.Next(test.identity, test.event)
		if len(got) != len(test.want) {
			t.Errorf("%s: %v", name, got)
			continue
		}
		for i := range got {
			if got[i].Kind != test.want[i].Kind || got[i].Identity != test.want[i].Identity || !proto.Equal(got[i].Message, test.want[i].Message) {
				t.Errorf("%s: %v, want %v", name, got[i], test.want[i])
			}
		}
	}
}

func TestReactToAClaim(t *testing.T) {
	who := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}
	confirm := command(entity.KindDevice, "D", &devicev1.ConfirmClaim{MachineId: "m"})
	for _, test := range []struct {
		identity           string
		event              proto.Message
		condition          *entity.Command
		command, otherwise entity.Command
	}{
		{
			"b", &slugv1.SlugClaimed{Slug: "b", WorkspaceId: "ws_1", At: 5, Rename: &slugv1.Rename{Id: "r", Principal: who, Name: "n"}}, nil,
			command(entity.KindWorkspace, "ws_1", &workspacev1.RenameWorkspace{Slug: "b", Name: "n"}),
			command(entity.KindSlug, "b", &slugv1.ReleaseSlug{WorkspaceId: "ws_1", RefusedClaimId: "r"}),
		},
		{
			"D", &devicev1.DeviceClaimed{SyncDeviceId: "D", UserId: "usr_1", MachineId: "m", Name: "n", At: 5}, &confirm,
			command(entity.KindUser, "usr_1", &userv1.RegisterMachine{MachineId: "m", Name: "n", SyncDeviceId: "D"}),
			command(entity.KindDevice, "D", &devicev1.ReleaseDevice{UserId: "usr_1", MachineId: "m"}),
		},
	} {
		got := chain.React(test.identity, test.event)
		if len(got) != 1 || got[0].Otherwise == nil || (got[0].Condition == nil) != (test.condition == nil) {
			t.Fatalf("%T: %v", test.event, got)
		}
		if !same(got[0].Command, test.command) || !same(*got[0].Otherwise, test.otherwise) ||
			test.condition != nil && !same(*got[0].Condition, *test.condition) {
			t.Errorf("%T: %v", test.event, got[0])
		}
	}
	renamed := chain.React("b", &slugv1.SlugClaimed{Rename: &slugv1.Rename{Principal: who}})
	if !proto.Equal(renamed[0].Principal, who) {
		t.Errorf("renamed as %v", renamed[0].Principal)
	}
	if got := chain.React("a", &slugv1.SlugClaimed{}); len(got) != 1 || got[0].Otherwise != nil {
		t.Error("a new workspace's slug is nobody's to refuse")
	}
}

func same(a, b entity.Command) bool {
	return a.Kind == b.Kind && a.Identity == b.Identity && proto.Equal(a.Message, b.Message)
}
