package user_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/user"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// full returns a user with every field set.
func full() *userv1.User {
	return &userv1.User{
		Id: alice, Email: "alice@example.com", Name: "Alice", CreatedAt: 1,
		FirstName: "A", LastName: "L", DisabledAt: 2, InternalAdmin: true, PasswordHash: argon,
		OneTimeLink: &userv1.OneTimeLink{SecretSha256: secret, ExpiresAt: 9},
		Workspaces:  map[string]int64{"ws_1": 1},
		ApiKeys: map[string]*userv1.ApiKey{
			"key_1": {Id: "key_1", Name: "n", SecretSha256: secret, CreatedAt: 1, ExpiresAt: 2, RevokedAt: 3, Limits: limits([]string{"apps"}, "ws_1")},
		},
		BrowserSessions: map[string]*userv1.BrowserSession{
			"bse_1": {Id: "bse_1", SecretSha256: secret, CreatedAt: 1, ExpiresAt: 9, UserAgent: "u", Address: "a"},
		},
		Grants: map[string]*userv1.Grant{"ogr_1": {
			Id: "ogr_1", ClientId: "c", ClientName: "C", RedirectHost: "h", WorkspaceId: "ws_1", Scopes: []string{"s"},
			CreatedAt: 1, RevokedAt: 3, WorkspaceSlug: "w", WorkspaceName: "W",
		}},
		Machines: map[string]*userv1.Machine{
			"mch_1": {Id: "mch_1", Name: "m", SyncDeviceId: "D", CreatedAt: 1, LastUsedAt: 1, RemovedAt: 3},
		},
		Impersonations:    map[string]int64{"imp_1": 9},
		CreatedWorkspaces: map[string]int64{"ws_1": 0, "ws_3": 9},
		LinkedIdentities:  map[string]*userv1.LinkedIdentity{issuer: {Issuer: issuer, Subject: "one", LinkedAt: 1}},
	}
}

func TestEvolveKeepsOtherFields(t *testing.T) {
	s := full()
	for _, m := range []proto.Message{
		s, s.GetApiKeys()["key_1"], s.GetBrowserSessions()["bse_1"], s.GetGrants()["ogr_1"], s.GetMachines()["mch_1"],
		s.GetLinkedIdentities()[issuer],
	} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if !m.ProtoReflect().Has(fields.Get(i)) {
				t.Fatalf("the sample lacks %s", fields.Get(i).FullName())
			}
		}
	}
	for _, e := range []userv1.Event{
		&userv1.UserCreated{Email: s.GetEmail(), Name: s.GetName(), At: s.GetCreatedAt()},
		&userv1.WorkspaceJoined{WorkspaceId: "ws_1", At: 1},
		&userv1.WorkspaceLeft{WorkspaceId: "ws_2"},
		&userv1.WorkspaceReserved{WorkspaceId: "ws_3", At: 1, ExpiresAt: 9},
		&userv1.WorkspaceForgotten{WorkspaceId: "ws_2"},
		&userv1.ProfileChanged{FirstName: "A", LastName: "L"},
		&userv1.UserDisabled{At: 2},
		&userv1.InternalAdminSet{InternalAdmin: true},
		&userv1.ApiKeyIssued{Key: s.GetApiKeys()["key_1"]},
		&userv1.ApiKeyRevoked{KeyId: "key_1", At: 3},
		&userv1.OneTimeLinkOffered{Link: s.GetOneTimeLink()},
		&userv1.BrowserSessionStarted{Session: s.GetBrowserSessions()["bse_1"]},
		&userv1.BrowserSessionEnded{SessionId: "bse_2"},
		&userv1.IdentityLinked{Identity: s.GetLinkedIdentities()[issuer]},
		&userv1.ImpersonationStarted{CredentialId: "imp_1", ExpiresAt: 9, At: 1},
		&userv1.GrantAllowed{Grant: s.GetGrants()["ogr_1"]},
		&userv1.GrantRevoked{GrantId: "ogr_1", At: 3},
		&userv1.MachineRegistered{Machine: s.GetMachines()["mch_1"]},
		&userv1.MachineRenamed{MachineId: "mch_1", Name: "m", At: 1},
		&userv1.MachineRemoved{MachineId: "mch_1", At: 3},
	} {
		if next := user.Evolve(s, e); !proto.Equal(next, s) {
			t.Errorf("%T repeated: %v", e, next)
		}
	}
	set := user.Evolve(s, &userv1.PasswordSet{PasswordHash: argon, EndedSessionIds: []string{"bse_1"}})
	set.OneTimeLink, set.BrowserSessions = s.GetOneTimeLink(), s.GetBrowserSessions()
	unlinked := user.Evolve(s, &userv1.IdentitiesUnlinked{EndedSessionIds: []string{"bse_1"}})
	unlinked.LinkedIdentities, unlinked.BrowserSessions = s.GetLinkedIdentities(), s.GetBrowserSessions()
	enabled := user.Evolve(s, &userv1.UserEnabled{})
	enabled.DisabledAt = 2
	if !proto.Equal(set, s) || !proto.Equal(unlinked, s) || !proto.Equal(enabled, s) {
		t.Errorf("%v, %v, %v", set, unlinked, enabled)
	}
}
