package slug_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var noon = time.UnixMilli(1_800_000_000_000)

func platformCall(identity string) entity.Call {
	return entity.Call{Now: noon, Identity: identity, Principal: entity.Platform()}
}

var rules = entitytest.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{Decide: slug.Rules.AuthorizeAndDecide, Evolve: slug.Evolve}

// execute decides a command and applies its events. It fails the test if a law of rules is broken, see entitytest.Rules.
func execute(
	t rapid.TB, call entity.Call, s *slugv1.Slug, c slugv1.Command,
) (*slugv1.Slug, []slugv1.Event, error) {
	t.Helper()
	s, events, err := rules.Execute(t, call, s, c)
	if err != nil {
		return s, nil, err
	}
	if reply := slug.Reply(call, s, c, events); !proto.Equal(reply, s) {
		t.Fatalf("%T: reply %v, state %v", c, reply, s)
	}
	return s, events, nil
}

func renameRequest(name string) *slugv1.Rename {
	return &slugv1.Rename{
		Id:        "cmd_1",
		Principal: &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}, Name: name,
	}
}

func commands() *rapid.Generator[slugv1.Command] {
	workspace := rapid.SampledFrom([]string{"ws_1", "ws_2", "ws_3", ""})
	return rapid.Custom(func(t *rapid.T) slugv1.Command {
		switch rapid.IntRange(0, 5).Draw(t, "command") {
		case 0:
			return &slugv1.ResolveSlug{}
		case 1, 2:
			until := rapid.SampledFrom([]time.Duration{-noon.Sub(time.UnixMilli(0)), 0, time.Hour, 24 * time.Hour})
			return &slugv1.ReleaseSlug{
				WorkspaceId: workspace.Draw(t, "workspace"), ReservedUntil: noon.Add(until.Draw(t, "until")).UnixMilli(),
			}
		case 3:
			return &slugv1.ClaimSlug{WorkspaceId: workspace.Draw(t, "workspace"), Rename: renameRequest("")}
		default:
			return &slugv1.ClaimSlug{
				WorkspaceId:   workspace.Draw(t, "workspace"),
				WorkspaceName: rapid.StringN(0, 3, -1).Draw(t, "name"),
				CreatorId:     rapid.SampledFrom([]string{"usr_1", "usr_2", ""}).Draw(t, "creator"),
			}
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		identity := rapid.SampledFrom([]string{"acme", "acme-2", "Acme", "root"}).Draw(t, "slug")
		s, now := slug.Zero(identity), noon
		var log []slugv1.Event
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			call := platformCall(identity)
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "hours")) * time.Hour)
			call.Now = now
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 0, 2, 7, 8}).Draw(t, "kind"))
			c := commands().Draw(t, "command")
			next, events, err := execute(t, call, s, c)
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was authorized: %v", call.Principal, err)
			}
			checkHandover(t, call, s, next, c)
			s, log = next, append(log, events...)
		}
		if s.GetWorkspaceId() != "" && slug.Check(identity) != nil {
			t.Fatalf("%s was taken", identity)
		}
		replayed := slug.Zero(identity)
		for _, e := range log {
			replayed = slug.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

// checkHandover fails the test if a slug changes hands without a release by its holder, or during the reservation of
// another workspace.
func checkHandover(t *rapid.T, call entity.Call, before, after *slugv1.Slug, c slugv1.Command) {
	t.Helper()
	holder, next := before.GetWorkspaceId(), after.GetWorkspaceId()
	release, given := c.(*slugv1.ReleaseSlug)
	switch {
	case next == holder:
	case holder != "" && (!given || release.GetWorkspaceId() != holder || next != ""):
		t.Fatalf("%T: %v became %v", c, before, after)
	case next != "" && call.At() < before.GetReservedUntil() && before.GetReservedFor() != next:
		t.Fatalf("%v was claimed at %d by %s during the reservation of another workspace", before, call.At(), next)
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"abc":                         "",
		"a1b":                         "",
		"a-b-c":                       "",
		"roots":                       "",
		"a" + strings.Repeat("b", 29): "",
		"":                            "3 to 30",
		"ab":                          "3 to 30",
		"a" + strings.Repeat("b", 30): "3 to 30",
		"Abc":                         "a-z",
		"a_b":                         "a-z",
		"a.b":                         "a-z",
		"abç":                         "a-z",
		"a b":                         "a-z",
		"ab\xff":                      "a-z",
		"1ab":                         "start",
		"-ab":                         "start",
		"ab-":                         "end",
		"a--b":                        "two hyphens",
		"xn--abc":                     "two hyphens",
		"root":                        "reserved",
		"sign-in":                     "reserved",
		"healthz":                     "reserved",
	} {
		err := slug.Check(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want == "":
		case entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Message, want) || !strings.Contains(err.Message, "slug"):
			t.Errorf("%q: %v, want slug and %q", text, err, want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("acme")
	f.Add("a--b")
	f.Fuzz(func(t *testing.T, text string) {
		if slug.Check(text) != nil {
			return
		}
		if len(text) < 3 || len(text) > 30 || strings.Contains(text, "--") || strings.Trim(text, "-") != text ||
			strings.ToLower(text) != text || strings.ContainsAny(text, "./ :\x00") {
			t.Errorf("%q passed", text)
		}
	})
}

func TestClaim(t *testing.T) {
	claim := func(workspace, name, creator string) *slugv1.ClaimSlug {
		return &slugv1.ClaimSlug{WorkspaceId: workspace, WorkspaceName: name, CreatorId: creator}
	}
	taken, _, err := execute(t, platformCall("acme"), slug.Zero("acme"), claim("ws_1", "Acme", "usr_1"))
	if err != nil || taken.GetWorkspaceId() != "ws_1" {
		t.Fatalf("%v, %v", taken, err)
	}
	for name, test := range map[string]struct {
		state   *slugv1.Slug
		command *slugv1.ClaimSlug
		code    entity.Code
		text    string
	}{
		"repeated":            {taken, claim("ws_1", "Acme", "usr_1"), "", ""},
		"another workspace":   {taken, claim("ws_2", "Acme", "usr_1"), entity.SlugTaken, "slug"},
		"invalid name, taken": {taken, claim("ws_2", "", "usr_1"), entity.InvalidRequest, "name"},
		"longest name":        {slug.Zero("acme"), claim("ws_1", strings.Repeat("é", 200), "usr_1"), "", ""},
		"long name":           {slug.Zero("acme"), claim("ws_1", strings.Repeat("é", 201), "usr_1"), entity.InvalidRequest, "name"},
		"no name":             {slug.Zero("acme"), claim("ws_1", "", "usr_1"), entity.InvalidRequest, "name"},
		"control":             {slug.Zero("acme"), claim("ws_1", "a\tb", "usr_1"), entity.InvalidRequest, "name"},
		"no UTF-8":            {slug.Zero("acme"), claim("ws_1", "a\xffb", "usr_1"), entity.InvalidRequest, "name"},
		"no creator":          {slug.Zero("acme"), claim("ws_1", "Acme", ""), entity.InvalidRequest, "creatorId"},
		"no workspace":        {slug.Zero("acme"), claim("", "Acme", "usr_1"), entity.InvalidRequest, "workspaceId"},
		"no slug":             {slug.Zero("-"), claim("ws_1", "Acme", "usr_1"), entity.InvalidRequest, "slug"},
	} {
		_, _, err := execute(t, platformCall(test.state.GetSlug()), test.state, test.command)
		if entitytest.Code(err) != test.code || err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %q and %q", name, err, test.code, test.text)
		}
	}
}

func TestRename(t *testing.T) {
	rename := func(name string) *slugv1.ClaimSlug {
		return &slugv1.ClaimSlug{WorkspaceId: "ws_1", Rename: renameRequest(name)}
	}
	for _, name := range []string{"", "Apex"} {
		_, events, err := execute(t, platformCall("apex"), slug.Zero("apex"), rename(name))
		want := &slugv1.SlugClaimed{Slug: "apex", WorkspaceId: "ws_1", Rename: renameRequest(name), At: noon.UnixMilli()}
		if err != nil || len(events) != 1 || !proto.Equal(events[0], want) {
			t.Errorf("%v, %v, want %v", events, err, want)
		}
	}
	for name, c := range map[string]*slugv1.ClaimSlug{
		"name": rename("a\tb"), "rename.principal": {WorkspaceId: "ws_1", Rename: &slugv1.Rename{Id: "cmd_1", Name: "Apex"}},
		"rename.id": {WorkspaceId: "ws_1", Rename: &slugv1.Rename{Principal: renameRequest("").GetPrincipal()}},
	} {
		_, _, err := execute(t, platformCall("apex"), slug.Zero("apex"), c)
		if entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConcurrentRenamesToOneSlug(t *testing.T) {
	claim := func(id string) *slugv1.ClaimSlug {
		r := renameRequest("")
		r.Id = id
		return &slugv1.ClaimSlug{WorkspaceId: "ws_1", Rename: r}
	}
	s, _, err := execute(t, platformCall("apex"), slug.Zero("apex"), claim("cmd_1"))
	if err != nil || s.GetClaimId() != "cmd_1" {
		t.Fatalf("%v, %v", s, err)
	}
	if _, _, err := execute(t, platformCall("apex"), s, claim("cmd_2")); entitytest.Code(err) != entity.Unavailable {
		t.Errorf("a second claim of the same workspace: %v", err)
	}
	if _, events, err := execute(t, platformCall("apex"), s, &slugv1.ReleaseSlug{WorkspaceId: "ws_1", RefusedClaimId: "cmd_0"}); err != nil || len(events) > 0 {
		t.Errorf("the refusal of an earlier claim: %v, %v", events, err)
	}
	s, _, err = execute(t, platformCall("apex"), s, &slugv1.ReleaseSlug{WorkspaceId: "ws_1", RefusedClaimId: "cmd_1"})
	want := &slugv1.Slug{Slug: "apex", ClaimId: "cmd_1", RefusedClaimId: "cmd_1"}
	if err != nil || !proto.Equal(s, want) {
		t.Errorf("%v, %v, want %v", s, err, want)
	}
	s, _, err = execute(t, platformCall("apex"), s, claim("cmd_2"))
	want = &slugv1.Slug{Slug: "apex", WorkspaceId: "ws_1", ClaimId: "cmd_2", RefusedClaimId: "cmd_1"}
	if err != nil || !proto.Equal(s, want) {
		t.Errorf("%v, %v, want %v", s, err, want)
	}
}

func TestClaimHasTheCreator(t *testing.T) {
	c := &slugv1.ClaimSlug{WorkspaceId: "ws_1", WorkspaceName: "Acme", CreatorId: "usr_1", CreatorEmail: "ann@example.com", CreatorName: "Ann"}
	_, events, err := execute(t, platformCall("acme"), slug.Zero("acme"), c)
	want := &slugv1.SlugClaimed{
		Slug: "acme", WorkspaceId: "ws_1", WorkspaceName: "Acme", CreatorId: "usr_1", CreatorEmail: "ann@example.com",
		CreatorName: "Ann", At: noon.UnixMilli(),
	}
	if err != nil || len(events) != 1 || !proto.Equal(events[0], want) {
		t.Errorf("%v, %v", events, err)
	}
}

func TestReservation(t *testing.T) {
	until := noon.Add(30 * 24 * time.Hour)
	at := func(now time.Time) entity.Call {
		call := platformCall("acme")
		call.Now = now
		return call
	}
	must := func(now time.Time, s *slugv1.Slug, c slugv1.Command) *slugv1.Slug {
		t.Helper()
		next, _, err := execute(t, at(now), s, c)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	claim := func(workspace string) *slugv1.ClaimSlug {
		return &slugv1.ClaimSlug{WorkspaceId: workspace, Rename: renameRequest("")}
	}
	taken := must(noon, slug.Zero("acme"), claim("ws_1"))
	if same := must(noon, taken, &slugv1.ReleaseSlug{WorkspaceId: "ws_2"}); same.GetWorkspaceId() != "ws_1" {
		t.Errorf("released by another workspace: %v", same)
	}
	reserved := must(noon, taken, &slugv1.ReleaseSlug{WorkspaceId: "ws_1", ReservedUntil: until.UnixMilli()})
	want := &slugv1.Slug{Slug: "acme", ClaimId: "cmd_1", ReservedFor: "ws_1", ReservedUntil: until.UnixMilli()}
	if !proto.Equal(reserved, want) {
		t.Errorf("%v, want %v", reserved, want)
	}
	if _, _, err := execute(t, at(until.Add(-time.Millisecond)), reserved, claim("ws_2")); entitytest.Code(err) != entity.SlugTaken {
		t.Errorf("during the reservation: %v", err)
	}
	if next := must(until, reserved, claim("ws_2")); !proto.Equal(next, &slugv1.Slug{Slug: "acme", WorkspaceId: "ws_2", ClaimId: "cmd_1"}) {
		t.Errorf("after the reservation: %v", next)
	}
	back := must(noon, reserved, claim("ws_1"))
	if back.GetWorkspaceId() != "ws_1" {
		t.Errorf("claimed again: %v", back)
	}
	if again := must(noon, back, &slugv1.ReleaseSlug{WorkspaceId: "ws_1"}); !proto.Equal(again, want) {
		t.Errorf("claimed again and released: %v, want %v", again, want)
	}
	if free := must(noon, taken, &slugv1.ReleaseSlug{WorkspaceId: "ws_1"}); !proto.Equal(free, &slugv1.Slug{Slug: "acme", ClaimId: "cmd_1"}) {
		t.Errorf("released at once: %v", free)
	}
	for _, c := range []*slugv1.ReleaseSlug{{}, {WorkspaceId: "ws_1", ReservedUntil: -1}} {
		if _, _, err := execute(t, platformCall("acme"), taken, c); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%v: %v", c, err)
		}
	}
}

var requester = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"slug": {"a", &slugv1.SlugClaimed{Slug: "a", WorkspaceId: "ws_1", CreatorId: "usr_1", CreatorEmail: "e", CreatorName: "n"}, []entity.Reaction{
			entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.CreateWorkspace{Slug: "a", CreatorId: "usr_1", CreatorEmail: "e", CreatorName: "n"}),
		}},
		"renaming": {"b", &slugv1.SlugClaimed{Slug: "b", WorkspaceId: "ws_1", At: 5, Rename: &slugv1.Rename{Id: "r", Principal: requester, Name: "n"}}, []entity.Reaction{{
			Command: entity.Command{
				Kind: entity.KindWorkspace, Identity: "ws_1", Principal: requester,
				Message: &workspacev1.RenameWorkspace{Slug: "b", Name: "n"},
			},
			Otherwise: &entity.Command{
				Kind: entity.KindSlug, Identity: "b", Message: &slugv1.ReleaseSlug{WorkspaceId: "ws_1", RefusedClaimId: "r"},
			},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, slug.Kind.React(test.identity, test.event), test.want)
		})
	}
}
