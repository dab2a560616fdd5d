package edge_test

import (
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/keys"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// family is a grant of a person to an OAuth client.
type family struct {
	*wirev1.Principal
	refresh []byte
}

// grant opens a grant of a person. The access token of the grant expires after a time.
func (s *stage) grant(p *wirev1.Principal, expires time.Duration) *family {
	s.Helper()
	f := &family{&wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, CredentialId: newID(user.GrantPrefix), UserId: p.GetUserId(), WorkspaceId: s.workspaceID,
		Grants: []string{entity.Apps},
	}, nil}
	code := s.token(time.Minute)
	s.ask(entity.KindGrant, f.CredentialId, &grantv1.OpenGrant{Grant: &grantv1.Grant{
		Id: f.CredentialId, UserId: f.UserId, ClientId: "oc_1", WorkspaceId: s.workspaceID, Scopes: f.Grants, Audience: "http://atelier.test",
		RedirectUri: "http://127.0.0.1/", CodeChallenge: code.SecretSha256, Code: code, CreatedAt: s.now().UnixMilli(),
	}})
	refresh := s.token(24 * time.Hour)
	s.ask(entity.KindGrant, f.CredentialId, &grantv1.RedeemCode{CodeSha256: code.SecretSha256, Access: s.token(expires), Refresh: refresh})
	f.refresh = refresh.SecretSha256
	return f
}

// token returns a token with a new secret.
func (s *stage) token(expires time.Duration) *grantv1.Token {
	_, hash := keys.New("atlat_", newID("ogr_"))
	return &grantv1.Token{SecretSha256: hash, ExpiresAt: s.now().Add(expires).UnixMilli()}
}

// renew exchanges the refresh token of a grant for an access token that expires after a time.
func (s *stage) renew(f *family, expires time.Duration) {
	s.Helper()
	next := s.token(24 * time.Hour)
	s.ask(entity.KindGrant, f.CredentialId, &grantv1.Refresh{RefreshSha256: f.refresh, Access: s.token(expires), Refresh: next})
	f.refresh = next.SecretSha256
}

// A visit that an OAuth client has begun lasts while the client has an access token, of the launch or a later one, and no longer.
func TestVisitsOfOAuthClients(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	visited := func(cookie string, status int) {
		t.Helper()
		s.advance(time.Second)
		response, body := s.get("/", "Cookie", cookie)
		s.expect(response, body, status, "")
	}
	f := s.grant(s.alice, time.Hour)
	cookie := s.visit(f.Principal, id)
	s.advance(50 * time.Minute)
	visited(cookie, 200)
	s.renew(f, time.Hour)
	s.advance(30 * time.Minute)
	visited(cookie, 200) // with the second token
	s.advance(30 * time.Minute)
	visited(cookie, 401)
	s.renew(f, time.Hour)
	visited(cookie, 401) // for good
	again := s.visit(f.Principal, id)
	visited(again, 200)
	s.ask(entity.KindGrant, f.CredentialId, &grantv1.Revoke{})
	visited(again, 401)

	target, _ := s.launch(s.grant(s.alice, 20*time.Second).Principal, id, "", "")
	s.advance(30 * time.Second)
	response, _ := s.get(target) // the grant of the visit is still valid, and opens nothing
	if len(response.Cookies()) != 1 {
		t.Fatalf("redeeming: %s", response.Status)
	}
	visited(response.Cookies()[0].Name+"="+response.Cookies()[0].Value, 401)
}

// A visit ends with a key of a person that expires, too.
func TestVisitsEndWithAnExpiredKey(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	p := &wirev1.Principal{Kind: kindUser, CredentialId: newID(user.KeyPrefix), UserId: s.alice.GetUserId()}
	s.ask(entity.KindCredential, p.CredentialId, &credentialv1.RegisterCredential{Credential: &credentialv1.Credential{
		Id: p.CredentialId, Kind: kindUser, UserId: p.UserId, SecretSha256: s.token(0).SecretSha256, ExpiresAt: s.now().Add(time.Hour).UnixMilli(),
	}})
	cookie := s.visit(p, id)
	s.advance(59 * time.Minute)
	response, body := s.get("/", "Cookie", cookie)
	s.expect(response, body, 200, "")
	s.advance(time.Minute)
	response, body = s.get("/", "Cookie", cookie)
	s.expect(response, body, 401, "unauthorized")
}

// What lasts ends when the token of the client expires, and when its grant is revoked.
func TestLastingConnectionsEndWithTheToken(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", echo(nil))
	expiring, revoked, lasting := s.grant(s.alice, time.Hour), s.grant(s.alice, 7*time.Hour), s.grant(s.alice, 7*time.Hour)
	one, two, three := s.dial(s.visit(expiring.Principal, id)), s.dial(s.visit(revoked.Principal, id)), s.dial(s.visit(lasting.Principal, id))
	s.echoes(one, "before")
	s.echoes(two, "before")
	s.advance(time.Hour)
	s.ends(one)
	s.echoes(two, "after")
	s.ask(entity.KindGrant, revoked.CredentialId, &grantv1.Revoke{})
	s.ends(two)
	s.echoes(three, "after")
}
