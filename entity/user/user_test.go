package user_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/user"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const alice = "usr_01j00000000000000000000000"

var (
	noon   = time.UnixMilli(1_800_000_000_000)
	secret = bytes.Repeat([]byte("secret! "), 4)
)

func keyID(n int) string { return fmt.Sprintf("key_01j%023d", n) }

func as(kind wirev1.CredentialKind, person string) *wirev1.Principal {
	return &wirev1.Principal{Kind: kind, UserId: person}
}

func human(person string) *wirev1.Principal {
	return as(wirev1.CredentialKind_CREDENTIAL_KIND_USER, person)
}

func callBy(p *wirev1.Principal) entity.Call {
	return entity.Call{Now: noon, Identity: alice, Principal: p}
}

var rules = entitytest.Rules[*userv1.User, userv1.Command, userv1.Event]{Decide: user.Rules.AuthorizeAndDecide, Evolve: user.Evolve}

// execute decides a command and applies its events. It fails the test if a law of rules is broken, see entitytest.Rules.
func execute(
	t rapid.TB, call entity.Call, s *userv1.User, c userv1.Command,
) (*userv1.User, []userv1.Event, error) {
	t.Helper()
	if _, ends := c.(*userv1.EndBrowserSession); ends {
		return end(t, call, s, c) // a session that was ended is not found a second time
	}
	s, events, err := rules.Execute(t, call, s, c)
	if err != nil {
		return s, nil, err
	}
	encoded, failed := proto.Marshal(user.Reply(call, s, c, events))
	_, shows := c.(*userv1.DescribePassword)
	if failed != nil || bytes.Contains(encoded, secret[:8]) && !shows {
		t.Fatalf("%T: the reply shows a secret's hash or cannot be encoded: %v", c, failed)
	}
	return s, events, nil
}

// end decides a command that ends an element, applies its events and checks that a repetition returns not_found.
func end(t rapid.TB, call entity.Call, s *userv1.User, c userv1.Command) (*userv1.User, []userv1.Event, error) {
	t.Helper()
	events, err := user.Rules.AuthorizeAndDecide(call, s, c)
	if err != nil {
		return s, nil, err
	}
	for _, e := range events {
		s = user.Evolve(s, e)
	}
	if _, err := user.Rules.AuthorizeAndDecide(call, s, c); entitytest.Code(err) != entity.NotFound {
		t.Fatalf("%T a second time: %v", c, err)
	}
	return s, events, nil
}

// replay encodes and decodes events and applies them to the zero state.
func replay(t rapid.TB, events []userv1.Event) *userv1.User {
	t.Helper()
	s := user.Zero(alice)
	for _, e := range events {
		stored, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		read := e.ProtoReflect().New().Interface().(userv1.Event)
		if err := proto.Unmarshal(stored, read); err != nil {
			t.Fatal(err)
		}
		s = user.Evolve(s, read)
	}
	return s
}

func created(t rapid.TB) *userv1.User {
	t.Helper()
	s, _, err := execute(t, callBy(entity.Platform()), user.Zero(alice), &userv1.CreateUser{Email: "alice@example.com", Name: "Alice"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t rapid.TB, call entity.Call, s *userv1.User, c userv1.Command) *userv1.User {
	t.Helper()
	s, _, err := execute(t, call, s, c)
	if err != nil {
		t.Fatalf("%T: %v", c, err)
	}
	return s
}

func principals() *rapid.Generator[*wirev1.Principal] {
	return rapid.Custom(func(t *rapid.T) *wirev1.Principal {
		return &wirev1.Principal{
			Kind:        wirev1.CredentialKind(rapid.Int32Range(0, 8).Draw(t, "kind")),
			UserId:      rapid.SampledFrom([]string{alice, alice, "usr_bob", ""}).Draw(t, "person"),
			WorkspaceId: rapid.SampledFrom([]string{"", "", "ws_1", "ws_2"}).Draw(t, "bound to"),
		}
	})
}

func commands(now time.Time) *rapid.Generator[userv1.Command] {
	key := rapid.Map(rapid.IntRange(1, 4), keyID)
	expiry := rapid.SampledFrom([]int64{0, -1, now.UnixMilli(), now.UnixMilli() + 1, now.UnixMilli() + 90_000, entity.MaxTime + 1})
	return rapid.Custom(func(t *rapid.T) userv1.Command {
		switch rapid.IntRange(0, 8).Draw(t, "command") {
		case 0:
			return &userv1.CreateUser{Email: "alice@example.com", Name: rapid.String().Draw(t, "name")}
		case 1:
			return &userv1.RevokeApiKey{KeyId: key.Draw(t, "key")}
		case 2:
			return &userv1.ListApiKeys{
				After: rapid.OneOf(key, rapid.Just("")).Draw(t, "after"),
				Limit: rapid.Int32Range(-1, 4).Draw(t, "limit"),
			}
		case 3, 4:
			return &userv1.IssueApiKey{
				KeyId:        key.Draw(t, "key"),
				Name:         rapid.StringN(0, 3, -1).Draw(t, "name"),
				SecretSha256: secret,
				ExpiresAt:    expiry.Draw(t, "expiry"),
			}
		default:
			return rapid.OneOf(drawAccountCommand(now), drawSignInCommand(now), drawGrantCommand()).Draw(t, "other")
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := user.Zero(alice), noon
		var log []userv1.Event
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60_000).Draw(t, "ms later")) * time.Millisecond)
			call := entity.Call{Now: now, Identity: alice, Principal: principals().Draw(t, "principal")}
			next, events, err := execute(t, call, s, commands(now).Draw(t, "command"))
			if foreign(call.Principal) && entitytest.Code(err) != entity.NotFound {
				t.Fatalf("%v was let at alice: %v", call.Principal, err)
			}
			for id, key := range s.GetApiKeys() {
				if key.GetRevokedAt() != 0 && next.GetApiKeys()[id].GetRevokedAt() != key.GetRevokedAt() {
					t.Fatalf("the revocation of %s moved", id)
				}
			}
			for issuer, known := range s.GetLinkedIdentities() {
				if now := next.GetLinkedIdentities()[issuer]; now != nil && now.GetSubject() != known.GetSubject() {
					t.Fatalf("another subject of %s took over", issuer)
				}
			}
			s, log = next, append(log, events...)
		}
		if replayed := replay(t, log); !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

func foreign(p *wirev1.Principal) bool {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM:
		return false
	case wirev1.CredentialKind_CREDENTIAL_KIND_UNSPECIFIED, wirev1.CredentialKind(8):
		return true
	default:
		return p.GetUserId() != alice
	}
}

func TestUserThatDoesNotExist(t *testing.T) {
	for _, who := range []*wirev1.Principal{human(alice), entity.Platform()} {
		for _, c := range []userv1.Command{&userv1.DescribeUser{}, &userv1.ListApiKeys{Limit: 1}, &userv1.IssueApiKey{}} {
			if _, _, err := execute(t, callBy(who), user.Zero(alice), c); entitytest.Code(err) != entity.NotFound {
				t.Errorf("%T: %v", c, err)
			}
		}
	}
	empty := entity.Call{Now: noon, Principal: human("")}
	if _, err := user.Rules.AuthorizeAndDecide(empty, &userv1.User{Email: "a@example.com"}, &userv1.DescribeUser{}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("a principal without a user id: %v", err)
	}
}

func TestIssueApiKeyValidation(t *testing.T) {
	at := noon.UnixMilli()
	for name, test := range map[string]struct {
		key  *userv1.IssueApiKey
		want string
	}{
		"good":            {&userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret}, ""},
		"longest name":    {&userv1.IssueApiKey{KeyId: keyID(1), Name: strings.Repeat("é", 200), SecretSha256: secret}, ""},
		"latest expiry":   {&userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret, ExpiresAt: entity.MaxTime}, ""},
		"next expiry":     {&userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret, ExpiresAt: at + 1}, ""},
		"no name":         {&userv1.IssueApiKey{KeyId: keyID(1), SecretSha256: secret}, "name"},
		"blank name":      {&userv1.IssueApiKey{KeyId: keyID(1), Name: " \u00a0", SecretSha256: secret}, "name"},
		"control":         {&userv1.IssueApiKey{KeyId: keyID(1), Name: "a\nb", SecretSha256: secret}, "name"},
		"no UTF-8":        {&userv1.IssueApiKey{KeyId: keyID(1), Name: "a\xff", SecretSha256: secret}, "name"},
		"long name":       {&userv1.IssueApiKey{KeyId: keyID(1), Name: strings.Repeat("é", 201), SecretSha256: secret}, "name"},
		"expires now":     {&userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret, ExpiresAt: at}, "expiresAt is in the past"},
		"negative expiry": {&userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret, ExpiresAt: -1}, "expiresAt is in the past"},
		"late expiry":     {&userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret, ExpiresAt: entity.MaxTime + 1}, "expiresAt"},
		"no key id":       {&userv1.IssueApiKey{Name: "x", SecretSha256: secret}, "keyId"},
		"other prefix":    {&userv1.IssueApiKey{KeyId: "usr" + keyID(1)[3:], Name: "x", SecretSha256: secret}, "keyId"},
		"upper case":      {&userv1.IssueApiKey{KeyId: "key_" + strings.ToUpper(keyID(1)[4:]), Name: "x", SecretSha256: secret}, "keyId"},
		"no ULID letter":  {&userv1.IssueApiKey{KeyId: "key_01j0000000000000000000000u", Name: "x", SecretSha256: secret}, "keyId"},
		"130 bits":        {&userv1.IssueApiKey{KeyId: "key_8" + strings.Repeat("0", 25), Name: "x", SecretSha256: secret}, "keyId"},
		"short id":        {&userv1.IssueApiKey{KeyId: keyID(1)[:29], Name: "x", SecretSha256: secret}, "keyId"},
		"short hash":      {&userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret[1:]}, "secretSha256"},
	} {
		_, _, err := execute(t, callBy(human(alice)), created(t), test.key)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want invalid_request with %q", name, err, test.want)
		}
	}
}

func TestKeyLimit(t *testing.T) {
	s, call := created(t), callBy(human(alice))
	issue := func(n int, expires int64) error {
		next, _, err := execute(t, call, s, &userv1.IssueApiKey{KeyId: keyID(n), Name: "x", SecretSha256: secret, ExpiresAt: expires})
		s = next
		return err
	}
	for n := range user.MaxKeys {
		if err := issue(n, int64(n%2)*(call.At()+60_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := issue(5000, 0); entitytest.Code(err) != entity.LimitReached {
		t.Fatalf("one more: %v", err)
	}
	s, _, _ = execute(t, call, s, &userv1.RevokeApiKey{KeyId: keyID(0)})
	if err := issue(5000, 0); err != nil {
		t.Fatalf("after a revocation: %v", err)
	}
	if err := issue(5001, 0); entitytest.Code(err) != entity.LimitReached {
		t.Fatalf("one more: %v", err)
	}
	call.Now = call.Now.Add(time.Hour)
	if err := issue(5001, 0); err != nil {
		t.Fatalf("after half have expired: %v", err)
	}
}

// limits returns limits with capabilities, to workspaces.
func limits(capabilities []string, workspaces ...string) *userv1.KeyLimits {
	return &userv1.KeyLimits{Capabilities: capabilities, WorkspaceIds: workspaces}
}

func TestLimitsOfKeys(t *testing.T) {
	s := created(t)
	s, _, _ = execute(t, callBy(entity.Platform()), s, &userv1.JoinWorkspace{WorkspaceId: "ws_1"})
	for name, test := range map[string]struct {
		limits *userv1.KeyLimits
		want   entity.Code
	}{
		"capabilities":            {limits([]string{entity.Admin, entity.FilesRead}), ""},
		"a workspace":             {limits([]string{entity.FilesRead}, "ws_1"), ""},
		"no capability":           {limits(nil), entity.InvalidRequest},
		"an unknown capability":   {limits([]string{"files:*"}), entity.InvalidRequest},
		"a capability twice":      {limits([]string{entity.Apps, entity.Apps}), entity.InvalidRequest},
		"a workspace of others":   {limits([]string{entity.Apps}, "ws_2"), entity.InvalidRequest},
		"a workspace twice":       {limits([]string{entity.Apps}, "ws_1", "ws_1"), entity.InvalidRequest},
		"all and a foreign one":   {limits([]string{entity.Apps}, "ws_1", "ws_2"), entity.InvalidRequest},
		"an empty workspace's id": {limits([]string{entity.Apps}, ""), entity.InvalidRequest},
	} {
		next, _, err := execute(t, callBy(human(alice)), s, &userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret, Limits: test.limits})
		if entitytest.Code(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && !proto.Equal(next.GetApiKeys()[keyID(1)].GetLimits(), test.limits) {
			t.Errorf("%s: the key is %v", name, next.GetApiKeys())
		}
	}
	for n, of := range []*userv1.KeyLimits{nil, limits([]string{entity.Apps}), nil, limits([]string{entity.Members})} {
		s, _, _ = execute(t, callBy(human(alice)), s, &userv1.IssueApiKey{KeyId: keyID(n), Name: "x", SecretSha256: secret, Limits: of})
	}
	all := user.Reply(callBy(human(alice)), s, &userv1.ListApiKeys{Limit: 10}, nil).(*userv1.ApiKeyPage)
	first := user.Reply(callBy(human(alice)), s, &userv1.ListApiKeys{Limit: 1, Limited: true}, nil).(*userv1.ApiKeyPage)
	second := user.Reply(callBy(human(alice)), s, &userv1.ListApiKeys{Limit: 1, Limited: true, After: first.GetKeys()[0].GetId()}, nil).(*userv1.ApiKeyPage)
	if len(all.GetKeys()) != 4 || !first.GetMore() || first.GetKeys()[0].GetId() != keyID(1) || second.GetMore() || second.GetKeys()[0].GetId() != keyID(3) {
		t.Errorf("all: %v, the limited ones: %v and %v", all, first, second)
	}
}

func TestListApiKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, call := created(t), callBy(human(alice))
		ids := rapid.SliceOfDistinct(rapid.IntRange(0, 50), rapid.ID).Draw(t, "keys")
		for _, n := range ids {
			s, _, _ = execute(t, call, s, &userv1.IssueApiKey{KeyId: keyID(n), Name: "x", SecretSha256: secret})
		}
		walk := &userv1.ListApiKeys{Limit: rapid.Int32Range(1, 10).Draw(t, "limit")}
		seen := 0
		for more := true; more; {
			page := user.Reply(call, s, walk, nil).(*userv1.ApiKeyPage)
			more = page.GetMore()
			if len(page.GetKeys()) > int(walk.GetLimit()) || more && len(page.GetKeys()) == 0 {
				t.Fatalf("a page of %d, limit %d, more %v", len(page.GetKeys()), walk.GetLimit(), more)
			}
			for _, key := range page.GetKeys() {
				if key.GetId() <= walk.GetAfter() {
					t.Fatalf("%s after %s", key.GetId(), walk.GetAfter())
				}
				walk.After = key.GetId()
				seen++
			}
		}
		if seen != len(ids) {
			t.Fatalf("saw %d of %d keys", seen, len(ids))
		}
	})
}

func TestDescribeUser(t *testing.T) {
	s := created(t)
	for _, workspace := range []string{"ws_1", "ws_2"} {
		s, _, _ = execute(t, callBy(entity.Platform()), s, &userv1.JoinWorkspace{WorkspaceId: workspace})
	}
	s, _, _ = execute(t, callBy(human(alice)), s, &userv1.IssueApiKey{KeyId: keyID(1), Name: "x", SecretSha256: secret})

	shown := user.Reply(callBy(human(alice)), s, &userv1.DescribeUser{}, nil).(*userv1.User)
	if shown.GetEmail() != "alice@example.com" || len(shown.GetWorkspaces()) != 2 || len(shown.GetApiKeys()) != 0 {
		t.Errorf("alice sees %v", shown)
	}
	for limit, want := range map[string]int{"": 2, "ws_1": 1, "ws_3": 0} {
		key := as(wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, alice)
		if limit != "" {
			key.WorkspaceIds = []string{limit}
		}
		shown := user.Reply(callBy(key), s, &userv1.DescribeUser{}, nil).(*userv1.User)
		if len(shown.GetWorkspaces()) != want {
			t.Errorf("a key limited to %q sees %v", limit, shown)
		}
	}
	for bound, want := range map[string]int{"ws_1": 1, "ws_3": 0} {
		app := as(wirev1.CredentialKind_CREDENTIAL_KIND_APP, alice)
		app.WorkspaceId = bound
		shown := user.Reply(callBy(app), s, &userv1.DescribeUser{}, nil).(*userv1.User)
		if len(shown.GetWorkspaces()) != want {
			t.Errorf("an app of %s sees %v", bound, shown)
		}
	}
}

func TestCreateUserValidation(t *testing.T) {
	for name, c := range map[string]*userv1.CreateUser{
		"email": {Name: "Alice"},
		"name":  {Email: "alice@example.com", Name: "a\x00"},
	} {
		_, _, err := execute(t, callBy(entity.Platform()), user.Zero(alice), c)
		if entitytest.Code(err) != entity.InvalidRequest || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
