package user_test

import (
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/user"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// These tables list the commands by the senders that may send them. Each command is valid for the user of TestAccess.
var (
	platforms = []userv1.Command{
		&userv1.CreateUser{Email: "alice@example.com"}, &userv1.JoinWorkspace{WorkspaceId: "ws_1"},
		&userv1.LeaveWorkspace{WorkspaceId: "ws_1"}, &userv1.ReserveWorkspace{WorkspaceId: "ws_2"},
		&userv1.ForgetWorkspace{WorkspaceId: "ws_2"}, &userv1.DescribeStanding{}, &userv1.Disable{}, &userv1.Enable{},
		&userv1.SetInternalAdmin{InternalAdmin: true}, link(noon.UnixMilli() + 1), &userv1.DescribePassword{},
		session(2), linking(issuer, "one"), &userv1.DescribeIdentities{}, &userv1.UnlinkIdentities{}, impersonation("imp_1"),
		&userv1.RegisterMachine{MachineId: machineID(2), Name: "m", SyncDeviceId: "B"},
	}
	lasting = []userv1.Command{
		&userv1.IssueApiKey{KeyId: keyID(9), Name: "laptop", SecretSha256: secret},
		allow(2), &userv1.EndBrowserSession{SessionId: "bse_1"},
	}
	personal = []userv1.Command{
		&userv1.RevokeApiKey{KeyId: keyID(1)}, &userv1.ListApiKeys{Limit: 1}, &userv1.ListBrowserSessions{},
		&userv1.ChangeProfile{FirstName: new("A")}, &userv1.RevokeGrant{GrantId: grantID(1)}, &userv1.ListGrants{Limit: 1},
		&userv1.RemoveMachine{MachineId: machineID(1)}, &userv1.ListMachines{Limit: 1},
	}
	anybodys = []userv1.Command{&userv1.DescribeUser{}}
)

// holder returns a user with one API key, session, grant and machine.
func holder(t *testing.T) *userv1.User {
	t.Helper()
	s := created(t)
	for _, c := range []userv1.Command{
		&userv1.IssueApiKey{KeyId: keyID(1), Name: "n", SecretSha256: secret}, session(1), allow(1),
		&userv1.RegisterMachine{MachineId: machineID(1), Name: "m", SyncDeviceId: "A"},
	} {
		s = must(t, callBy(entity.Platform()), s, c)
	}
	return s
}

func TestAccess(t *testing.T) {
	const yes, no, none = entity.Code(""), entity.Forbidden, entity.NotFound
	s := holder(t)
	for _, test := range []struct {
		who                                  *wirev1.Principal
		platform, lasting, personal, anybody entity.Code
		lists, alone                         entity.Code
	}{
		{entity.Platform(), yes, yes, yes, yes, yes, yes},
		{human(alice), no, yes, yes, yes, no, yes},
		{as(wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, alice), no, yes, yes, yes, no, yes},
		{as(wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, alice), no, no, yes, yes, no, yes},
		{as(wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, alice), no, no, no, yes, no, no},
		{as(wirev1.CredentialKind_CREDENTIAL_KIND_APP, alice), no, no, no, yes, no, no},
		{as(wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, alice), no, no, no, yes, no, no},
		{as(wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM, alice), no, no, no, yes, no, no},
		{as(wirev1.CredentialKind_CREDENTIAL_KIND_UNSPECIFIED, alice), none, none, none, none, none, none},
		{human("usr_bob"), none, none, none, none, none, none},
		{nil, none, none, none, none, none, none},
	} {
		for want, commands := range map[*entity.Code][]userv1.Command{
			&test.platform: platforms, &test.lasting: lasting, &test.personal: personal, &test.anybody: anybodys,
		} {
			for _, c := range commands {
				if _, _, err := execute(t, callBy(test.who), s, c); entitytest.Code(err) != *want {
					t.Errorf("%v, %T: %v, want %q", test.who, c, err, *want)
				}
			}
		}
		if err := user.Check(callBy(test.who), s, entity.Reads(entity.Admin)); entitytest.Code(err) != test.lists {
			t.Errorf("%v, an operator's list: %v", test.who, err)
		}
		if err := user.Check(callBy(test.who), s, entity.Need{Human: true}); entitytest.Code(err) != test.alone {
			t.Errorf("%v, the person's own: %v", test.who, err)
		}
	}
	if err := user.Check(callBy(entity.Platform()), user.Zero(alice), entity.Reads()); entitytest.Code(err) != none {
		t.Errorf("nobody: %v", err)
	}
}

func TestDisabled(t *testing.T) {
	s := must(t, callBy(entity.Platform()), holder(t), link(noon.UnixMilli()+1))
	s = must(t, callBy(entity.Platform()), s, &userv1.Disable{})
	refused := map[userv1.Command]bool{link(noon.UnixMilli() + 2): true, session(3): true, allow(3): true,
		&userv1.IssueApiKey{KeyId: keyID(8), Name: "n", SecretSha256: secret}: true,
		&userv1.SetPassword{LinkSecretSha256: secret, PasswordHash: argon}:    true,
		&userv1.DescribeStanding{}: false, &userv1.DescribePassword{}: false, &userv1.RevokeApiKey{KeyId: keyID(1)}: false,
		&userv1.EndBrowserSession{SessionId: "bse_1"}: false, impersonation("imp_9"): false, &userv1.LeaveWorkspace{}: false,
	}
	for c, refused := range refused {
		want := entity.Code("")
		if refused {
			want = entity.Forbidden
		}
		if _, _, err := execute(t, callBy(entity.Platform()), s, c); entitytest.Code(err) != want {
			t.Errorf("%T: %v, want %q", c, err, want)
		}
	}
	if standing := user.Reply(callBy(entity.Platform()), s, &userv1.DescribeStanding{}, nil).(*userv1.Standing); !standing.GetDisabled() {
		t.Error("stands as if not disabled")
	}
	s = must(t, callBy(entity.Platform()), s, &userv1.Enable{})
	must(t, callBy(entity.Platform()), s, session(3))
}
