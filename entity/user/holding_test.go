package user_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/user"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestAllowGrantValidation(t *testing.T) {
	call := callBy(human(alice))
	for name, change := range map[string]func(*userv1.Grant){
		"id":          func(g *userv1.Grant) { g.Id = "ogr_1" },
		"client":      func(g *userv1.Grant) { g.ClientId = "" },
		"client name": func(g *userv1.Grant) { g.ClientName = " " },
		"host":        func(g *userv1.Grant) { g.RedirectHost = strings.Repeat("a", 256) },
		"workspace":   func(g *userv1.Grant) { g.WorkspaceId = "" },
		"slug":        func(g *userv1.Grant) { g.WorkspaceSlug = "a\x00" },
		"name":        func(g *userv1.Grant) { g.WorkspaceName = strings.Repeat("a", 201) },
		"no scopes":   func(g *userv1.Grant) { g.Scopes = nil },
		"scopes":      func(g *userv1.Grant) { g.Scopes = make([]string, 65) },
		"empty scope": func(g *userv1.Grant) { g.Scopes = []string{"a", ""} },
		"long scope":  func(g *userv1.Grant) { g.Scopes = []string{strings.Repeat("a", 129)} },
		"two scopes":  func(g *userv1.Grant) { g.Scopes = []string{"a b"} },
	} {
		c := allow(1)
		change(c.Grant)
		if _, _, err := execute(t, call, created(t), c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	most := allow(1)
	most.Grant.Scopes = nil
	for n := range 64 {
		most.Grant.Scopes = append(most.Grant.Scopes, strings.Repeat("a", 64+n+1))
	}
	most.Grant.RevokedAt, most.Grant.CreatedAt = 1, 1
	kept := must(t, call, created(t), most).GetGrants()[grantID(1)]
	if kept.GetRevokedAt() != 0 || kept.GetCreatedAt() != call.At() {
		t.Errorf("kept %v", kept)
	}
}

func TestGrants(t *testing.T) {
	s, call := created(t), callBy(human(alice))
	for n := range user.MaxGrants {
		s = must(t, call, s, allow(n))
	}
	if _, _, err := execute(t, call, s, allow(900)); entitytest.Code(err) != entity.LimitReached {
		t.Fatalf("one more: %v", err)
	}
	operator := call
	operator.Principal = as(7, alice)
	operator.Principal.ImpersonatorId = "usr_bob"
	s, events, err := execute(t, operator, s, &userv1.RevokeGrant{GrantId: grantID(0)})
	want := &userv1.GrantRevoked{
		GrantId: grantID(0), At: call.At(), UserId: alice, WorkspaceId: "ws_1", ClientName: "Editor", By: alice, ImpersonatorId: "usr_bob",
	}
	if err != nil || !proto.Equal(events[0], want) {
		t.Fatalf("%v, %v", events, err)
	}
	s = must(t, call, s, allow(900))
	call.Now = call.Now.Add(time.Second)
	s = must(t, call, s, &userv1.RevokeGrant{GrantId: grantID(0)})
	reply := user.Reply(call, s, &userv1.RevokeGrant{GrantId: grantID(0)}, nil).(*userv1.Grant)
	if reply.GetRevokedAt() != noon.UnixMilli() || reply.GetClientName() != "Editor" || reply.GetWorkspaceSlug() != "acme" || reply.GetWorkspaceName() != "Acme" {
		t.Errorf("revoked again: %v", reply)
	}
	if _, _, err := execute(t, call, s, &userv1.RevokeGrant{GrantId: grantID(901)}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("revoking none: %v", err)
	}
	page := user.Reply(call, s, &userv1.ListGrants{After: grantID(198), Limit: 2}, nil).(*userv1.GrantPage)
	if len(page.GetGrants()) != 2 || page.GetMore() || page.GetGrants()[0].GetId() != grantID(199) {
		t.Errorf("the last page: %v", page)
	}
	for _, limit := range []int32{0, 101} {
		if _, _, err := execute(t, call, s, &userv1.ListGrants{Limit: limit}); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("a page of %d: %v", limit, err)
		}
	}
}

// TestEndedElementsAreBounded checks that the number of revoked grants and removed machines in the state is bounded.
func TestEndedElementsAreBounded(t *testing.T) {
	s, call := created(t), callBy(entity.Platform())
	for n := range user.MaxEnded + 5 {
		call.Now = noon.Add(time.Duration(n) * time.Millisecond)
		for _, c := range []userv1.Command{
			allow(n), &userv1.RevokeGrant{GrantId: grantID(n)},
			&userv1.RegisterMachine{MachineId: machineID(n), Name: "m", SyncDeviceId: "A"}, &userv1.RemoveMachine{MachineId: machineID(n)},
		} {
			events, err := user.Rules.AuthorizeAndDecide(call, s, c)
			if err != nil || len(events) != 1 {
				t.Fatalf("%v, %v", events, err)
			}
			s = user.Evolve(s, events[0])
		}
	}
	if len(s.GetGrants()) != user.MaxEnded || s.GetGrants()[grantID(4)] != nil || s.GetGrants()[grantID(5)] == nil {
		t.Errorf("%d grants", len(s.GetGrants()))
	}
	if len(s.GetMachines()) != user.MaxEnded || s.GetMachines()[machineID(4)] != nil || s.GetMachines()[machineID(5)] == nil {
		t.Errorf("%d machines", len(s.GetMachines()))
	}
}

// TestEndedKeysAreBounded revokes every second key and lets the others expire.
func TestEndedKeysAreBounded(t *testing.T) {
	s, call := created(t), callBy(human(alice))
	s = must(t, call, s, &userv1.IssueApiKey{KeyId: keyID(900_000), Name: "kept", SecretSha256: secret})
	for n := range user.MaxEnded + 6 {
		call.Now = noon.Add(time.Duration(n) * time.Millisecond)
		issue := &userv1.IssueApiKey{KeyId: keyID(n), Name: "x", SecretSha256: secret}
		commands := []userv1.Command{issue, &userv1.RevokeApiKey{KeyId: issue.KeyId}}
		if n%2 == 1 {
			issue.ExpiresAt, commands = call.At()+1, commands[:1]
		}
		for _, c := range commands {
			events, err := user.Rules.AuthorizeAndDecide(call, s, c)
			if err != nil || len(events) != 1 {
				t.Fatalf("%v, %v", events, err)
			}
			s = user.Evolve(s, events[0])
		}
	}
	keys := s.GetApiKeys()
	if len(keys) > user.MaxEnded+2 || keys[keyID(3)] != nil || keys[keyID(user.MaxEnded)] == nil || keys[keyID(900_000)] == nil {
		t.Errorf("%d keys", len(keys))
	}
}

func TestMachines(t *testing.T) {
	s, call := created(t), callBy(entity.Platform())
	register := &userv1.RegisterMachine{MachineId: machineID(1), Name: "laptop", SyncDeviceId: "A"}
	s = must(t, call, must(t, call, s, &userv1.JoinWorkspace{WorkspaceId: "ws_1"}), register)
	renamed := &userv1.RegisterMachine{MachineId: machineID(2), Name: "desk", SyncDeviceId: "A", ImpersonatorId: "usr_bob"}
	s, events, err := execute(t, call, s, renamed)
	reply := user.Reply(call, s, renamed, events).(*userv1.Machine)
	under := &userv1.MachineRenamed{
		MachineId: machineID(1), Name: "desk", At: call.At(), UserId: alice, SyncDeviceId: "A", WorkspaceIds: []string{"ws_1"},
		ImpersonatorId: "usr_bob",
	}
	if err != nil || !proto.Equal(events[0], under) || reply.GetId() != machineID(1) || reply.GetName() != "desk" {
		t.Fatalf("%v, %v, %v", events, reply, err)
	}
	if _, events, err = execute(t, call, s, renamed); len(events) > 0 || err != nil {
		t.Errorf("the same again: %v, %v", events, err)
	}
	s, events, _ = execute(t, call, s, &userv1.RemoveMachine{MachineId: machineID(1)})
	want := &userv1.MachineRemoved{
		MachineId: machineID(1), At: call.At(), UserId: alice, SyncDeviceId: "A", Name: "desk", WorkspaceIds: []string{"ws_1"},
	}
	if !proto.Equal(events[0], want) {
		t.Fatalf("%v", events)
	}
	call.Now = call.Now.Add(time.Second)
	s = must(t, call, s, &userv1.RemoveMachine{MachineId: machineID(1)})
	if s.GetMachines()[machineID(1)].GetRemovedAt() != noon.UnixMilli() {
		t.Errorf("removed again: %v", s)
	}
	if s = must(t, call, s, register); s.GetMachines()[machineID(1)].GetRemovedAt() == 0 {
		t.Error("a removed machine came back")
	}
	s = must(t, call, s, renamed)
	page := user.Reply(call, s, &userv1.ListMachines{Limit: 1}, nil).(*userv1.MachinePage)
	if len(page.GetMachines()) != 1 || !page.GetMore() || page.GetMachines()[0].GetRemovedAt() == 0 {
		t.Errorf("the first page: %v", page)
	}
	for name, c := range map[string]*userv1.RegisterMachine{
		"name":      {MachineId: machineID(3), SyncDeviceId: "B"},
		"long name": {MachineId: machineID(3), SyncDeviceId: "B", Name: strings.Repeat("é", 201)},
		"id":        {MachineId: "mch_", SyncDeviceId: "B", Name: "n"},
		"device":    {MachineId: machineID(3), Name: "n"},
	} {
		if _, _, err := execute(t, call, s, c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := execute(t, call, s, &userv1.RemoveMachine{MachineId: machineID(9)}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("removing none: %v", err)
	}
}

func TestMachineLimit(t *testing.T) {
	s, call := created(t), callBy(entity.Platform())
	register := func(n int) ([]userv1.Event, error) {
		return user.Rules.AuthorizeAndDecide(call, s, &userv1.RegisterMachine{MachineId: machineID(n), Name: "m", SyncDeviceId: machineID(n)})
	}
	for n := range user.MaxMachines {
		events, err := register(n)
		if err != nil {
			t.Fatal(err)
		}
		s = user.Evolve(s, events[0])
	}
	if _, err := register(900); entitytest.Code(err) != entity.LimitReached {
		t.Fatalf("one more: %v", err)
	}
	s = must(t, call, s, &userv1.RemoveMachine{MachineId: machineID(0)})
	if _, err := register(900); err != nil {
		t.Fatalf("after a removal: %v", err)
	}
}
