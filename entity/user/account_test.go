package user_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/user"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func TestDisplayName(t *testing.T) {
	for want, s := range map[string]*userv1.User{
		"given": {Name: "given"},
		"A L":   {Name: "given", FirstName: "A", LastName: "L"},
		"A":     {Name: "given", FirstName: "A"},
		"L":     {Name: "given", LastName: " L "},
		"blank": {Name: "blank", FirstName: " ", LastName: "\u00a0"},
		"":      {},
	} {
		if got := user.DisplayName(s); got != want {
			t.Errorf("%v: %q", s, got)
		}
	}
}

func TestChangeProfile(t *testing.T) {
	call := callBy(human(alice))
	s := must(t, callBy(entity.Platform()), created(t), &userv1.JoinWorkspace{WorkspaceId: "ws_1"})
	s, events, err := execute(t, call, s, &userv1.ChangeProfile{FirstName: new("Al"), LastName: new("Ice")})
	want := &userv1.ProfileChanged{
		FirstName: "Al", LastName: "Ice", At: call.At(), Email: "alice@example.com", Name: "Al Ice", WorkspaceIds: []string{"ws_1"},
	}
	if err != nil || len(events) != 1 || !proto.Equal(events[0], want) {
		t.Fatalf("%v, %v", events, err)
	}
	s, events, _ = execute(t, call, s, &userv1.ChangeProfile{FirstName: new("")})
	if len(events) != 1 || s.GetFirstName() != "" || s.GetLastName() != "Ice" {
		t.Fatalf("%v, %v", events, s)
	}
	if _, events, err := execute(t, call, s, &userv1.ChangeProfile{}); len(events) > 0 || err != nil {
		t.Fatalf("nothing to change: %v, %v", events, err)
	}
	reply := user.Reply(call, s, &userv1.ChangeProfile{}, nil).(*userv1.User)
	if reply.GetName() != "Ice" || len(reply.GetWorkspaces()) != 1 {
		t.Fatalf("the reply is %v", reply)
	}
	for name, test := range map[string]struct {
		c    *userv1.ChangeProfile
		want string
	}{
		"longest": {&userv1.ChangeProfile{FirstName: new(strings.Repeat("é", 100))}, ""},
		"long":    {&userv1.ChangeProfile{FirstName: new(strings.Repeat("é", 101))}, "firstName"},
		"last":    {&userv1.ChangeProfile{LastName: new(strings.Repeat("é", 101))}, "lastName"},
		"control": {&userv1.ChangeProfile{LastName: new("a\u0085")}, "lastName"},
		"text":    {&userv1.ChangeProfile{FirstName: new("a\xff")}, "firstName"},
	} {
		_, _, err := execute(t, call, s, test.c)
		if test.want == "" && err != nil || test.want != "" && (entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProfileHasNoSecrets checks that Profile omits keys, sessions, grants and machines.
func TestProfileHasNoSecrets(t *testing.T) {
	shown := user.Reply(callBy(human(alice)), full(), &userv1.DescribeUser{}, nil)
	want := &userv1.User{
		Id: alice, Email: "alice@example.com", Name: "A L", CreatedAt: 1, Workspaces: map[string]int64{"ws_1": 1},
		FirstName: "A", LastName: "L", DisabledAt: 2, InternalAdmin: true,
	}
	if !proto.Equal(shown, want) {
		t.Errorf("%v", shown)
	}
}

func TestJoinAndLeave(t *testing.T) {
	call := callBy(entity.Platform())
	s, events, _ := execute(t, call, created(t), &userv1.JoinWorkspace{WorkspaceId: "ws_1"})
	if joined, ok := events[0].(*userv1.WorkspaceJoined); !ok || joined.GetEmail() != "alice@example.com" || joined.GetName() != "Alice" {
		t.Fatalf("%v", events)
	}
	s.Grants = map[string]*userv1.Grant{
		"ogr_1": {Id: "ogr_1", WorkspaceId: "ws_1"}, "ogr_2": {Id: "ogr_2", WorkspaceId: "ws_2"},
		"ogr_3": {Id: "ogr_3", WorkspaceId: "ws_1", RevokedAt: 7},
	}
	if s = must(t, call, s, &userv1.LeaveWorkspace{WorkspaceId: "ws_1"}); len(s.GetWorkspaces()) != 0 {
		t.Fatalf("%v", s)
	}
	if g := s.GetGrants(); g["ogr_1"].GetRevokedAt() != call.At() || g["ogr_2"].GetRevokedAt() != 0 || g["ogr_3"].GetRevokedAt() != 7 {
		t.Errorf("after leaving ws_1: %v", g)
	}
}

func TestRows(t *testing.T) {
	call := callBy(entity.Platform())
	call.Version = 7
	for name, test := range map[string]struct {
		c      userv1.Command
		event  string
		people bool
	}{
		"disable":     {&userv1.Disable{}, "user.disabled", true},
		"admin":       {&userv1.SetInternalAdmin{InternalAdmin: true}, "user.admin_changed", true},
		"impersonate": {impersonation("imp_1"), "impersonation.started", false},
		"join":        {&userv1.JoinWorkspace{WorkspaceId: "ws_1"}, "", true},
		"profile":     {&userv1.ChangeProfile{FirstName: new("A")}, "", true},
		"key":         {&userv1.IssueApiKey{KeyId: keyID(1), Name: "n", SecretSha256: secret}, "", false},
		"nothing":     {&userv1.Enable{}, "", false},
		"look":        {&userv1.DescribeUser{}, "", false},
	} {
		before := created(t)
		after, events, err := execute(t, call, before, test.c)
		if err != nil {
			t.Fatal(err)
		}
		var event string
		people := false
		for _, row := range user.Rows(call, before, after, test.c, events) {
			switch row.List {
			case audit.List:
				event += row.Message.(*auditv1.Event).GetEvent()
			case user.People:
				people = row.Key == alice && proto.Equal(row.Message, user.Profile(after))
			}
		}
		if event != test.event || people != test.people {
			t.Errorf("%s: recorded %q, shown %v", name, event, people)
		}
	}
	s := created(t)
	created := user.Rows(call, user.Zero(alice), s, nil, []userv1.Event{&userv1.UserCreated{Email: s.GetEmail()}})
	if len(created) != 2 || created[0].Message.(*auditv1.Event).GetProvenance().GetCanonicalEmail() != "alice@example.com" {
		t.Errorf("created: %v", created)
	}
	enabled := user.Rows(call, s, s, nil, []userv1.Event{&userv1.UserEnabled{}})
	if len(enabled) != 2 || enabled[0].Message.(*auditv1.Event).GetActorId() != "system" {
		t.Errorf("enabled: %v", enabled)
	}
}

func TestImpersonation(t *testing.T) {
	call := callBy(entity.Platform())
	s := must(t, call, created(t), &userv1.JoinWorkspace{WorkspaceId: "ws_1"})
	_, events, _ := execute(t, call, s, impersonation("imp_1"))
	if started := events[0].(*userv1.ImpersonationStarted); started.GetUserId() != alice || len(started.GetWorkspaceIds()) != 1 {
		t.Fatalf("%v", started)
	}
	recorded := user.Rows(call, s, s, nil, events)[0].Message.(*auditv1.Event)
	if recorded.GetActorId() != "usr_bob" || recorded.GetProvenance().GetActor() != "usr_bob" || recorded.GetProvenance().GetReason() != "asked to" {
		t.Errorf("recorded %v", recorded)
	}
	for name, change := range map[string]func(*userv1.StartImpersonation){
		"no credential": func(c *userv1.StartImpersonation) { c.CredentialId = "" },
		"no secret":     func(c *userv1.StartImpersonation) { c.SecretSha256 = nil },
		"own id":        func(c *userv1.StartImpersonation) { c.ImpersonatorId = alice },
		"no operator":   func(c *userv1.StartImpersonation) { c.ImpersonatorId = "" },
		"expired":       func(c *userv1.StartImpersonation) { c.ExpiresAt = call.At() },
		"too long":      func(c *userv1.StartImpersonation) { c.ExpiresAt = call.At() + 3_600_001 },
		"no reason":     func(c *userv1.StartImpersonation) { c.Reason = " " },
		"long reason":   func(c *userv1.StartImpersonation) { c.Reason = strings.Repeat("é", 501) },
		"control":       func(c *userv1.StartImpersonation) { c.Reason = "a\x00" },
	} {
		c := impersonation("imp_1")
		change(c)
		if _, _, err := execute(t, call, s, c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	longest := impersonation("imp_1")
	longest.ExpiresAt, longest.Reason = call.At()+3_600_000, strings.Repeat("é", 500)
	s = must(t, call, s, longest)
	for n := range user.MaxImpersonations - 1 {
		s = must(t, call, s, impersonation(sessionID(n)))
	}
	if _, _, err := execute(t, call, s, impersonation("imp_2")); entitytest.Code(err) != entity.LimitReached {
		t.Errorf("one more: %v", err)
	}
	call.Now = call.Now.Add(60_000_000_000)
	later := impersonation("imp_2")
	later.ExpiresAt += 60_000
	if s = must(t, call, s, later); len(s.GetImpersonations()) != 2 {
		t.Errorf("what has expired stays: %v", s.GetImpersonations())
	}
}
