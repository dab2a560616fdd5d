package credential_test

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/credential"
	"github.com/atelier-run/atelier/entity/entitytest"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const identity = "key_01j00000000000000000000000"

var (
	noon   = time.UnixMilli(1_800_000_000_000)
	secret = bytes.Repeat([]byte("secret! "), 4)
)

func platformCall(now time.Time) entity.Call {
	return entity.Call{Now: now, Identity: identity, Principal: entity.Platform()}
}

var rules = entitytest.Rules[*credentialv1.Credential, credentialv1.Command, credentialv1.Event]{Decide: credential.Rules.AuthorizeAndDecide, Evolve: credential.Evolve}

// execute decides a command and applies its events. It fails the test if a law of rules is broken, see entitytest.Rules.
func execute(
	t rapid.TB, call entity.Call, s *credentialv1.Credential, c credentialv1.Command,
) (*credentialv1.Credential, []credentialv1.Event, error) {
	t.Helper()
	s, events, err := rules.Execute(t, call, s, c)
	if err != nil {
		return s, nil, err
	}
	var want proto.Message = &wirev1.Done{}
	if _, describes := c.(*credentialv1.DescribeCredential); describes {
		want = s
	}
	if reply := credential.Reply(call, s, c, events); !proto.Equal(reply, want) {
		t.Fatalf("%T: reply %v, want %v", c, reply, want)
	}
	return s, events, nil
}

func good() *credentialv1.Credential {
	return &credentialv1.Credential{
		Id:           identity,
		Kind:         wirev1.CredentialKind_CREDENTIAL_KIND_USER,
		UserId:       "usr_1",
		SecretSha256: secret,
		CreatedAt:    noon.UnixMilli(),
	}
}

func commands() *rapid.Generator[credentialv1.Command] {
	return rapid.Custom(func(t *rapid.T) credentialv1.Command {
		switch rapid.IntRange(0, 9).Draw(t, "command") {
		case 0, 1, 2:
			c := good()
			c.ExpiresAt = rapid.SampledFrom([]int64{0, noon.UnixMilli() + 200_000}).Draw(t, "expiry")
			c.UserId = rapid.SampledFrom([]string{"usr_1", "usr_1", "usr_2"}).Draw(t, "user")
			return &credentialv1.RegisterCredential{Credential: c}
		case 3:
			return &credentialv1.RevokeCredential{At: rapid.SampledFrom([]int64{0, 7}).Draw(t, "at")}
		case 4:
			return &credentialv1.DescribeCredential{}
		default:
			return &credentialv1.UseCredential{}
		}
	})
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := credential.Zero(identity), noon
		var log []credentialv1.Event
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			// The time may also go back: the clock of the next leader may be late.
			now = now.Add(time.Duration(rapid.IntRange(-10_000, 50_000).Draw(t, "ms later")) * time.Millisecond)
			call := platformCall(now)
			call.Principal.Kind = wirev1.CredentialKind(rapid.SampledFrom([]int32{1, 1, 1, 0, 2, 7, 8}).Draw(t, "kind"))
			next, events, err := execute(t, call, s, commands().Draw(t, "command"))
			if !entity.IsPlatform(call.Principal) && entitytest.Code(err) != entity.Forbidden {
				t.Fatalf("%v was authorized: %v", call.Principal, err)
			}
			checkStep(t, s, next, now)
			s, log = next, append(log, events...)
		}
		replayed := credential.Zero(identity)
		for _, e := range log {
			replayed = credential.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, s) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, s)
		}
	})
}

func checkStep(t *rapid.T, s, next *credentialv1.Credential, now time.Time) {
	if s.GetRevokedAt() != 0 && (next.GetRevokedAt() != s.GetRevokedAt() || credential.IsUsable(next, now.UnixMilli())) {
		t.Fatalf("revoked %v became %v", s, next)
	}
	if len(s.GetSecretSha256()) > 0 && s.GetUserId() != next.GetUserId() {
		t.Fatalf("%s's became %s's", s.GetUserId(), next.GetUserId())
	}
	if from, to := s.GetLastUsedAt(), next.GetLastUsedAt(); from != to {
		if from != 0 && to-from < 60_000 {
			t.Fatalf("lastUsedAt moved by %d ms", to-from)
		}
		if !credential.IsUsable(s, now.UnixMilli()) {
			t.Fatalf("used: %v", s)
		}
	}
}

func TestRevokedBeforeRegistered(t *testing.T) {
	s, _, err := execute(t, platformCall(noon), credential.Zero(identity), &credentialv1.RevokeCredential{At: 7})
	if err != nil || s.GetRevokedAt() != 7 {
		t.Fatalf("%v, %v", s, err)
	}
	s, events, err := execute(t, platformCall(noon), s, &credentialv1.RegisterCredential{Credential: good()})
	if err != nil || len(events) != 0 || credential.IsUsable(s, noon.UnixMilli()) {
		t.Fatalf("%v, %v, %v", s, events, err)
	}
	if s := credential.Evolve(s, &credentialv1.CredentialRegistered{Credential: good()}); s.GetRevokedAt() != 7 {
		t.Fatalf("a registration undid the revocation: %v", s)
	}
}

func TestRegisterValidation(t *testing.T) {
	registered, _, err := execute(t, platformCall(noon), credential.Zero(identity), &credentialv1.RegisterCredential{Credential: good()})
	if err != nil || !credential.IsUsable(registered, noon.UnixMilli()) {
		t.Fatalf("%v, %v", registered, err)
	}
	for name, change := range map[string]func(c *credentialv1.Credential){
		"id":           func(c *credentialv1.Credential) { c.Id = "key_2" },
		"no kind":      func(c *credentialv1.Credential) { c.Kind = 0 },
		"the platform": func(c *credentialv1.Credential) { c.Kind = wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM },
		"no secret":    func(c *credentialv1.Credential) { c.SecretSha256 = nil },
		"an app's":     func(c *credentialv1.Credential) { c.Kind = wirev1.CredentialKind_CREDENTIAL_KIND_APP },
		"a computer's": func(c *credentialv1.Credential) { c.Kind = wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM },
		"an operator's": func(c *credentialv1.Credential) {
			c.Kind = wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION
		},
		"long secret": func(c *credentialv1.Credential) { c.SecretSha256 = append([]byte{1}, secret...) },
	} {
		c := good()
		change(c)
		for _, s := range []*credentialv1.Credential{credential.Zero(identity), registered} {
			if _, _, err := execute(t, platformCall(noon), s, &credentialv1.RegisterCredential{Credential: c}); entitytest.Code(err) != entity.InvalidRequest {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, change := range map[string]func(c *credentialv1.Credential){
		"person": func(c *credentialv1.Credential) { c.UserId = "usr_2" },
		"secret": func(c *credentialv1.Credential) { c.SecretSha256 = bytes.ToUpper(secret) },
	} {
		c := good()
		change(c)
		if _, _, err := execute(t, platformCall(noon), registered, &credentialv1.RegisterCredential{Credential: c}); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if _, err := credential.Rules.AuthorizeAndDecide(platformCall(noon), registered, &credentialv1.RegisterCredential{}); entitytest.Code(err) != entity.InvalidRequest {
		t.Errorf("no credential: %v", err)
	}
}

func TestRegisterBound(t *testing.T) {
	for _, kind := range []wirev1.CredentialKind{
		wirev1.CredentialKind_CREDENTIAL_KIND_APP, wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM,
		wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION,
	} {
		c := good()
		c.Kind, c.WorkspaceId, c.ImpersonatorId, c.Grants = kind, "ws_1", "usr_2", []string{"files:read"}
		s, _, err := execute(t, platformCall(noon), credential.Zero(identity), &credentialv1.RegisterCredential{Credential: c})
		if err != nil || !proto.Equal(s, c) {
			t.Errorf("%s: %v, %v", kind, s, err)
		}
	}
}

// TestNumberedSecrets sends the commands for the keys of an app in many orders. The secret with the highest number is usable unless a
// revocation up to it was sent.
func TestNumberedSecrets(t *testing.T) {
	key := func(n uint64) *credentialv1.RegisterCredential {
		c := good()
		c.Kind, c.WorkspaceId, c.Number, c.SecretSha256 = wirev1.CredentialKind_CREDENTIAL_KIND_APP, "ws_1", n, bytes.Repeat([]byte{byte(n)}, 32)
		return &credentialv1.RegisterCredential{Credential: c}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := credential.Zero(identity)
		highest, revoked := uint64(0), uint64(0)
		final := false
		for range rapid.IntRange(1, 8).Draw(t, "commands") {
			n := rapid.Uint64Range(1, 4).Draw(t, "number")
			var c credentialv1.Command
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1, 2:
				c = key(n)
				if n > highest && n > revoked && !final {
					highest = n
				}
			case 3, 4:
				c = &credentialv1.RevokeCredential{Number: n, At: 5}
				revoked = max(revoked, n)
			default:
				c = &credentialv1.RevokeCredential{At: 5}
				final = true
			}
			var err error
			if s, _, err = execute(t, platformCall(noon), s, c); err != nil {
				t.Fatal(err)
			}
			if want := highest > revoked && !final; credential.IsUsable(s, noon.UnixMilli()) != want || s.GetNumber() != highest {
				t.Fatalf("after %v: %v, want usable: %v", c, s, want)
			}
		}
	})
}

func TestUse(t *testing.T) {
	s := good()
	s.ExpiresAt = noon.UnixMilli() + 1000
	revoked := good()
	revoked.RevokedAt = 1
	for name, test := range map[string]struct {
		s    *credentialv1.Credential
		at   time.Time
		want entity.Code
	}{
		"usable":  {s, noon, ""},
		"expired": {s, noon.Add(time.Second), entity.Unauthorized},
		"revoked": {revoked, noon, entity.Unauthorized},
		"unknown": {credential.Zero(identity), noon, entity.Unauthorized},
	} {
		if _, _, err := execute(t, platformCall(test.at), test.s, &credentialv1.UseCredential{}); entitytest.Code(err) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEvolveKeepsOtherFields(t *testing.T) {
	s := good()
	s.ExpiresAt, s.RevokedAt, s.LastUsedAt = 1, 2, 3
	s.Grants, s.WorkspaceId, s.ImpersonatorId = []string{"files:read"}, "ws_1", "usr_2"
	s.Number, s.RevokedNumber = 4, 4
	s.WorkspaceIds, s.ReadOnly = []string{"ws_1"}, true
	fields := s.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !s.ProtoReflect().Has(fields.Get(i)) {
			t.Fatalf("the sample lacks %s", fields.Get(i).FullName())
		}
	}
	for _, e := range []credentialv1.Event{
		&credentialv1.CredentialRegistered{Credential: s},
		&credentialv1.CredentialRevoked{At: 2, Number: 4},
		&credentialv1.CredentialUsed{At: 3},
	} {
		if next := credential.Evolve(s, e); !proto.Equal(next, s) {
			t.Errorf("%T repeated: %v", e, next)
		}
	}
}
