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
)

var noon = time.UnixMilli(1_800_000_000_000)

func platform(identity string) entity.Call {
	return entity.Call{Now: noon, Identity: identity, Principal: entity.Platform()}
}

var rules = entitytest.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{Decide: slug.Decide, Evolve: slug.Evolve}

// ask carries a command out and fails the test where a law of rules is broken.
func ask(
	t rapid.TB, call entity.Call, s *slugv1.Slug, c slugv1.Command,
) (*slugv1.Slug, []slugv1.Event, error) {
	t.Helper()
	s, events, err := rules.Carry(t, call, s, c)
	if err != nil {
		return s, nil, err
	}
	if reply := slug.Reply(call, s, c, events); !proto.Equal(reply, s) {
		t.Fatalf("%T: reply %v, state %v", c, reply, s)
	}
	return s, events, nil
}

func commands() *rapid.Generator[slugv1.Command] {
	workspace := rapid.SampledFrom([]string{"ws_1", "ws_2", "ws_3", ""})
	return rapid.Custom(func(t *rapid.T) slugv1.Command {
		if rapid.Bool().Draw(t, "resolve") {
			return &slugv1.ResolveSlug{}
		}
		return &slugv1.ClaimSlug{
			WorkspaceId:   workspace.Draw(t, "workspace"),
			WorkspaceName: rapid.StringN(0, 3, -1).Draw(t, "name"),
			CreatorId:     rapid.SampledFrom([]string{"usr_1", "usr_2", ""}).Draw(t, "creator"),
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		identity := rapid.SampledFrom([]string{"acme", "acme-2", "Acme", "root"}).Draw(t, "slug")
		s := slug.Zero(identity)
		var log []slugv1.Event
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			call := platform(identity)
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 0, 2, 7, 8}).Draw(t, "kind"))
			next, events, err := ask(t, call, s, commands().Draw(t, "command"))
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was let in: %v", call.Principal, err)
			}
			if s.GetWorkspaceId() != "" && next.GetWorkspaceId() != s.GetWorkspaceId() {
				t.Fatalf("%s went from %s to %s", identity, s.GetWorkspaceId(), next.GetWorkspaceId())
			}
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
			t.Fatalf("replayed %v, lived %v", replayed, s)
		}
	})
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
	taken, _, err := ask(t, platform("acme"), slug.Zero("acme"), claim("ws_1", "Acme", "usr_1"))
	if err != nil || taken.GetWorkspaceId() != "ws_1" {
		t.Fatalf("%v, %v", taken, err)
	}
	for name, test := range map[string]struct {
		state   *slugv1.Slug
		command *slugv1.ClaimSlug
		code    entity.Code
		text    string
	}{
		"again":              {taken, claim("ws_1", "Acme", "usr_1"), "", ""},
		"another":            {taken, claim("ws_2", "Acme", "usr_1"), entity.SlugTaken, "slug"},
		"another, malformed": {taken, claim("ws_2", "", "usr_1"), entity.InvalidRequest, "name"},
		"longest name":       {slug.Zero("acme"), claim("ws_1", strings.Repeat("é", 200), "usr_1"), "", ""},
		"long name":          {slug.Zero("acme"), claim("ws_1", strings.Repeat("é", 201), "usr_1"), entity.InvalidRequest, "name"},
		"no name":            {slug.Zero("acme"), claim("ws_1", "", "usr_1"), entity.InvalidRequest, "name"},
		"control":            {slug.Zero("acme"), claim("ws_1", "a\tb", "usr_1"), entity.InvalidRequest, "name"},
		"no UTF-8":           {slug.Zero("acme"), claim("ws_1", "a\xffb", "usr_1"), entity.InvalidRequest, "name"},
		"no creator":         {slug.Zero("acme"), claim("ws_1", "Acme", ""), entity.InvalidRequest, "creatorId"},
		"no workspace":       {slug.Zero("acme"), claim("", "Acme", "usr_1"), entity.InvalidRequest, "workspaceId"},
		"no slug":            {slug.Zero("-"), claim("ws_1", "Acme", "usr_1"), entity.InvalidRequest, "slug"},
	} {
		_, _, err := ask(t, platform(test.state.GetSlug()), test.state, test.command)
		if entitytest.Code(err) != test.code || err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %q and %q", name, err, test.code, test.text)
		}
	}
}
