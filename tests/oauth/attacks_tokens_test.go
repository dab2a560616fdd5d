package oauth

import (
	"bytes"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/entity"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

// another is a PKCE verifier that no request here was made with.
const another = "another-verifier-that-nobody-guesses-0123456789-ABC"

// 4.5: the attacker has the victim's code, and redeems it or injects it into a session of their own.
func TestAttackAuthorizationCodeInjection(t *testing.T) {
	w, alice, client := stage(t)
	evil := w.register(callback)
	code := w.code(alice, asking(client, "files:read"))
	for name, form := range map[string]url.Values{
		"the attacker's session":        with(redeeming(client, code), "code_verifier", another),
		"no session":                    without(redeeming(client, code), "code_verifier"),
		"the challenge as verifier":     with(redeeming(client, code), "code_verifier", asking(client).Get("code_challenge")),
		"the attacker's client":         redeeming(evil, code),
		"the attacker's redirect":       with(redeeming(client, code), "redirect_uri", "https://evil.example/callback"),
		"the code as a refresh token":   refreshing(client, code),
		"the code with another's grant": redeeming(client, strings.Replace(code, "_01j", "_01k", 1)),
	} {
		if status, answer := w.post("/oauth/token", form); status != 400 || answer["error"] != "invalid_grant" {
			t.Errorf("%s: %d %v", name, status, answer)
		}
	}
	if w.opens(code) {
		t.Error("a code opens the API")
	}
	w.exchange(redeeming(client, code)) // the victim's own exchange still works
}

// 4.8: the attacker removes the challenge from the victim's request, or weakens it.
func TestAttackPKCEDowngrade(t *testing.T) {
	w, alice, client := stage(t)
	good := func() url.Values { return asking(client, "files:read") }
	for name, query := range map[string]url.Values{
		"no challenge":           without(without(good(), "code_challenge"), "code_challenge_method"),
		"no method":              without(good(), "code_challenge_method"),
		"plain":                  with(with(good(), "code_challenge_method", "plain"), "code_challenge", verifier),
		"lower case":             with(good(), "code_challenge_method", "s256"),
		"an empty challenge":     with(good(), "code_challenge", ""),
		"a challenge with a =":   with(good(), "code_challenge", good().Get("code_challenge")+"="),
		"a challenge of nothing": with(good(), "code_challenge", strings.Repeat("A", 42)),
	} {
		w.wantRefusal(name, alice, query, "invalid_request")
	}
	code := w.code(alice, good())
	for name, form := range map[string]url.Values{
		"no verifier":              without(redeeming(client, code), "code_verifier"),
		"an empty verifier":        with(redeeming(client, code), "code_verifier", ""),
		"a method at the exchange": with(with(redeeming(client, code), "code_verifier", good().Get("code_challenge")), "code_challenge_method", "plain"),
	} {
		if status, answer := w.post("/oauth/token", form); status != 400 || answer["error"] != "invalid_grant" {
			t.Errorf("%s: %d %v", name, status, answer)
		}
	}
	_, metadata := w.send("GET", "/.well-known/oauth-authorization-server", "")
	if !strings.Contains(metadata, `"code_challenge_methods_supported":["S256"]`) {
		t.Errorf("metadata: %s", metadata)
	}
}

// 4.5 and RFC 6749, section 4.1.2: a code that was used comes again. Everything that it led to is revoked.
func TestAttackCodeReplay(t *testing.T) {
	for name, replay := range map[string]func(client, code string) url.Values{
		"the same request": redeeming,
		"without the verifier": func(client, code string) url.Values {
			return without(redeeming(client, code), "code_verifier")
		},
	} {
		w, alice, client := stage(t)
		code := w.code(alice, asking(client, "files:read"))
		first := w.exchange(redeeming(client, code))
		second := w.exchange(refreshing(client, first.refresh))
		if !w.opens(second.access) { // which the server remembers for a second
			t.Fatal("no access")
		}
		w.refused(replay(client, code), 400, "invalid_grant")
		if w.opens(first.access) || w.opens(second.access) {
			t.Errorf("%s: access tokens live on", name)
		}
		w.refused(refreshing(client, second.refresh), 400, "invalid_grant")
	}
}

// 4.9.1: a counterfeit API has the client ask for a token of the real one, or for one of its own.
func TestAttackCounterfeitResourceServer(t *testing.T) {
	w, alice, client := stage(t)
	for _, resource := range []string{"https://evil.example", w.url + ".evil.example", w.url + "/evil", w.url + "@evil.example"} {
		w.wantRefusal(resource, alice, with(asking(client, "files:read"), "resource", resource), "invalid_target")
		both := asking(client, "files:read")
		both["resource"] = []string{w.url, resource}
		w.wantRefusal(resource, alice, both, "invalid_target")
		code := w.code(alice, asking(client, "files:read"))
		w.refused(with(redeeming(client, code), "resource", resource), 400, "invalid_target")
		granted := w.exchange(redeeming(client, code))
		w.refused(with(refreshing(client, granted.refresh), "resource", resource), 400, "invalid_target")
	}
}

// 4.9.2: a reader of the store must not find a token in it.
func TestAttackCompromisedStore(t *testing.T) {
	w, alice, client := stage(t)
	code := w.code(alice, asking(client, "files:read"))
	granted := w.exchange(redeeming(client, code))
	stored := w.stored(w.dir)
	if id := strings.Split(code, "_")[1]; !bytes.Contains(stored, []byte("ogr_"+id)) {
		t.Fatal("the grant is not in what was read of the store")
	}
	for _, text := range []string{code, granted.access, granted.refresh} {
		if secret := text[strings.LastIndex(text, "_")+1:]; bytes.Contains(stored, []byte(secret)) {
			t.Errorf("the secret of %s… is in the store", text[:6])
		}
	}
}

// stored returns the content of all files below a folder.
func (w *world) stored(dir string) []byte {
	w.Helper()
	names, err := w.disk.List(dir)
	if err != nil {
		w.Fatal(err)
	}
	var all []byte
	for _, name := range names {
		path := w.disk.PathJoin(dir, name)
		if found, err := w.disk.Stat(path); err == nil && found.IsDir() {
			all = append(all, w.stored(path)...)
			continue
		}
		all = append(all, readWhole(w, path)...)
	}
	return all
}

func readWhole(w *world, path string) []byte {
	w.Helper()
	file, err := w.disk.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		w.Fatal(err)
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		w.Fatal(err)
	}
	return text
}

// 4.10.2: a token for one server is presented to another, which trusts the same store.
func TestAttackTokenOfAnotherAudience(t *testing.T) {
	w, alice, client := stage(t)
	granted := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	if !w.opens(granted.access) {
		t.Fatal("no access")
	}
	w.stop()
	w.url = strings.Replace(w.url, "127.0.0.1", "localhost", 1)
	w.start()
	if w.opens(granted.access) || w.opens(w.exchange(refreshing(client, granted.refresh)).access) {
		t.Error("a token for another audience opens the API")
	}
}

// 4.14: a refresh token was copied, and both copies are used. Everything that it led to is revoked.
func TestAttackRefreshTokenReplay(t *testing.T) {
	w, alice, client := stage(t)
	first := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	stolen := w.exchange(refreshing(client, first.refresh))
	if !w.opens(stolen.access) { // which the server remembers for a second
		t.Fatal("no access")
	}
	w.refused(refreshing(client, first.refresh), 400, "invalid_grant")
	if w.opens(first.access) || w.opens(stolen.access) {
		t.Error("access tokens live on")
	}
	w.refused(refreshing(client, stolen.refresh), 400, "invalid_grant")
	w.audited(alice, "acme", "oauth_grant.revoked", 1)
}

// 4.14: a refresh token is used by another client, for more than was granted, or long after its client went away.
func TestAttackStolenRefreshToken(t *testing.T) {
	w, alice, client := stage(t)
	evil := w.register(callback)
	granted := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	w.refused(refreshing(evil, granted.refresh), 400, "invalid_grant")
	w.refused(with(refreshing(client, granted.refresh), "scope", "files:read admin"), 400, "invalid_scope")
	w.refused(refreshing(client, granted.access), 400, "invalid_grant")
	if w.opens(granted.refresh) {
		t.Error("a refresh token opens the API")
	}
	w.advance(30 * 24 * time.Hour)
	w.refused(refreshing(client, granted.refresh), 400, "invalid_grant")
}

// 4.15: a client chooses an id that the API takes for a person's, or gets tokens for itself.
func TestAttackClientImpersonatesResourceOwner(t *testing.T) {
	w, alice, client := stage(t)
	response, text := w.send("POST", "/oauth/register",
		`{"client_id":"`+alice.id+`","client_name":"T","redirect_uris":["https://a.example"]}`, "Content-Type", "application/json")
	if response.StatusCode != 201 || strings.Contains(text, alice.id) || !strings.Contains(text, `"client_id":"oc_`) {
		t.Errorf("%d %s", response.StatusCode, text)
	}
	w.refused(url.Values{"grant_type": {"client_credentials"}, "client_id": {client}}, 400, "unsupported_grant_type")
	granted := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	status, who := w.api("GET", "/v1/whoami", granted.access, "")
	if status != 200 || !strings.Contains(who, `"id":"`+alice.id+`"`) || !strings.Contains(who, `"kind":"oauth"`) {
		t.Errorf("%d %s", status, who)
	}
	for _, target := range []string{"/v1/user/profile", "/v1/user/api-keys", "/v1/user/oauth-grants"} { // which are the person's own
		if status, text := w.api("GET", target, granted.access, ""); status != 403 {
			t.Errorf("%s: %d %s", target, status, text)
		}
	}
}

// 2.4: a client that sees the person's password.
func TestAttackPasswordGrant(t *testing.T) {
	w, alice, client := stage(t)
	w.password(alice, "four words or so")
	w.refused(url.Values{
		"grant_type": {"password"}, "client_id": {client}, "username": {alice.email}, "password": {"four words or so"},
	}, 400, "unsupported_grant_type")
}

// RFC 8252, section 8.6: public clients cannot prove their identity, so a second client takes the name and the redirect URI of a
// client that the person trusts.
func TestAttackPublicClientImpersonation(t *testing.T) {
	w, alice, client := stage(t)
	evil := w.register(callback)
	trusted := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	for _, id := range []string{client, evil} { // consent to one client is no consent to the next request
		response, page := w.open(alice, asking(id, "files:read"))
		if response.StatusCode != 200 || !strings.Contains(page, "client.example") {
			t.Errorf("%s: %d %v", id, response.StatusCode, w.led(response))
		}
	}
	code := w.code(alice, asking(client, "files:read"))
	w.refused(redeeming(evil, code), 400, "invalid_grant")
	w.refused(refreshing(evil, trusted.refresh), 400, "invalid_grant")
	if status, answer := w.post("/oauth/revoke", url.Values{"client_id": {evil}, "token": {trusted.refresh}}); status != 200 || !w.opens(trusted.access) {
		t.Errorf("another client's token was revoked: %d %v", status, answer)
	}
	w.refused(with(redeeming(client, code), "client_secret", "x"), 401, "invalid_client")
	if found := w.ask(entity.KindClient, evil, &clientv1.DescribeClient{}).(*clientv1.Client); found.GetId() == client {
		t.Error("two clients share an id")
	}
}
