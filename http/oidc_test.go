package http_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/atelier-run/atelier/http"
	pages "github.com/atelier-run/atelier/http/browser"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// idp is an OpenID Connect provider that signs in every visitor at once, with its claims.
type idp struct {
	*testing.T
	live *httptest.Server
	key  *ecdsa.PrivateKey
	// signer is the key that signs id tokens; tests set a foreign one.
	signer *ecdsa.PrivateKey
	claims map[string]any
	// userinfo has the claims at the userinfo endpoint; nil: there is none.
	userinfo map[string]any
	now      func() time.Time

	mu    sync.Mutex
	down  bool
	asked int
	// limited makes the token endpoint refuse requests for their rate.
	limited bool
	// visits has the authorization request of each code.
	visits map[string]visit
}

// visit is an authorization request and its claims.
type visit struct {
	asked  url.Values
	claims map[string]any
}

func newIDP(t *testing.T) *idp {
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	p := &idp{T: t, key: key(), visits: map[string]visit{}, claims: map[string]any{}}
	p.signer = p.key
	mux := nethttp.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		metadata := map[string]any{
			"issuer": p.live.URL, "authorization_endpoint": p.live.URL + "/authorize", "token_endpoint": p.live.URL + "/token",
			"jwks_uri": p.live.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"},
		}
		if p.userinfo != nil {
			metadata["userinfo_endpoint"] = p.live.URL + "/userinfo"
		}
		p.answer(w, metadata)
	})
	mux.HandleFunc("GET /userinfo", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.Header.Get("Authorization") != "Bearer x" {
			w.WriteHeader(401)
			return
		}
		p.answer(w, p.userinfo)
	})
	mux.HandleFunc("GET /keys", func(w nethttp.ResponseWriter, r *nethttp.Request) {
		p.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &p.key.PublicKey, KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", p.token)
	p.live = httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if p.isDown() {
			w.WriteHeader(503)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.live.Close)
	return p
}

func (p *idp) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return p.down
}

func (p *idp) answer(w nethttp.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		p.Error(err)
	}
}

// visit goes to the provider, as a browser does, and returns the URL of the redirect with a code.
func (p *idp) visit(to string) (back string) {
	p.Helper()
	target, err := url.Parse(to)
	if err != nil || !strings.HasPrefix(to, p.live.URL+"/authorize?") {
		p.Fatalf("the browser is sent to %q", to)
	}
	q := target.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("client_id") != "atelier" ||
		q.Get("scope") != "openid email" || len(q.Get("state")) < 20 || len(q.Get("nonce")) < 20 {
		p.Errorf("asked for %v", q)
	}
	code := rand.Text()
	p.mu.Lock()
	p.visits[code] = visit{q, maps.Clone(p.claims)}
	p.mu.Unlock()
	return "/sign-in/oidc/callback?" + url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
}

func (p *idp) token(w nethttp.ResponseWriter, r *nethttp.Request) {
	if p.limited {
		w.WriteHeader(429)
		return
	}
	p.mu.Lock()
	v := p.visits[r.FormValue("code")]
	delete(p.visits, r.FormValue("code"))
	p.mu.Unlock()
	q := v.asked
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	id, password, basic := r.BasicAuth()
	if q == nil || base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") || r.FormValue("redirect_uri") != q.Get("redirect_uri") ||
		!basic || id != "atelier" || password != "agreed" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		p.answer(w, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": p.live.URL, "aud": "atelier", "sub": "1", "nonce": q.Get("nonce"), "iat": p.now().Unix(), "exp": p.now().Add(time.Minute).Unix(),
	}
	maps.Copy(claims, v.claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.signer, KeyID: "one"}}, nil)
	if err != nil {
		p.Error(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		p.Error(err)
	}
	p.answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": text})
}

func newProvided(t *testing.T) (*idp, *site) {
	p := newIDP(t)
	s := newSite(t, func(o *http.Options) {
		o.OIDC = &pages.OIDC{Issuer: p.live.URL, ClientID: "atelier", ClientSecret: "agreed", Name: "Example & Sons"}
	})
	p.now = s.clock.Now
	return p, s
}

func TestProvider(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	b := s.browser()
	b.get("/sign-in?next=/account?done=joined").expectPage(200, "Continue with Example &amp; Sons", `href="/sign-in/oidc?next=%2Faccount%3Fdone%3Djoined"`)
	p.claims = map[string]any{"email": "Alice@example.com", "email_verified": true}
	away := b.get("/sign-in/oidc?next=/account?done=joined")
	cookie := away.cookie(attemptCookie(away.to))
	if cookie == nil || !cookie.HttpOnly || cookie.SameSite != nethttp.SameSiteLaxMode || cookie.MaxAge != 600 {
		t.Fatalf("cookie: %+v", cookie)
	}
	back := p.visit(away.to)
	b.headers["Sec-Fetch-Site"] = "cross-site"
	in := b.get(back).expectRedirect("/account?done=joined")
	if gone := in.cookie(cookie.Name); gone == nil || gone.MaxAge >= 0 || in.cookie("atelier") == nil {
		t.Errorf("cookies: %v", in.Cookies())
	}
	b.get("/account").expectPage(200, "alice@example.com")
	b.get(back).expectPage(403, "start again")
	b.get(b.get("/sign-in/oidc?next=//evil.example").cookieless(t)).expectPage(403)
}

// cookieless returns the path of a callback that the provider never sent.
func (s *pageResponse) cookieless(t *testing.T) string {
	t.Helper()
	if s.to == "" {
		t.Fatalf("%d %s", s.StatusCode, s.body())
	}
	return "/sign-in/oidc/callback?code=x&state=" + strings.Repeat("A", 26)
}

func TestProviderResponsesAreVerified(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	s.person("gone")
	s.change("gone", &userv1.Disable{})
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]any{"email": "alice@example.com", "email_verified": true}
	with := func(name string, value any) map[string]any {
		claims := map[string]any{name: value}
		for k, v := range good {
			if k != name {
				claims[k] = v
			}
		}
		return claims
	}
	for name, test := range map[string]struct {
		claims map[string]any
		signer *ecdsa.PrivateKey
		edit   func(back string) string
		text   string
	}{
		"the address is not verified":      {claims: with("email_verified", false), text: "has not verified"},
		"email_verified is a text":         {claims: with("email_verified", "true"), text: "email_verified in another form"},
		"email_verified is missing":        {claims: map[string]any{"email": "alice@example.com"}, text: "without the claim email_verified"},
		"the address is missing":           {claims: with("email", ""), text: "has sent no email address"},
		"the address has no account":       {claims: with("email", "nobody@example.com"), text: "ask a member of a workspace"},
		"the address has a similar letter": {claims: with("email", "al\u0130ce@example.com"), text: "not valid here"}, // lower case: alice
		"the person is disabled":           {claims: with("email", "gone@example.com"), text: "ask a member of a workspace"},
		"the audience is wrong":            {claims: with("aud", "another"), text: "did not sign you in"},
		"the issuer is wrong":              {claims: with("iss", "https://evil.example"), text: "did not sign you in"},
		"the token has expired":            {claims: with("exp", s.clock.Now().Add(-time.Minute).Unix()), text: "did not sign you in"},
		"the subject is missing":           {claims: with("sub", ""), text: "did not sign you in"},
		"the subject is too long":          {claims: with("sub", strings.Repeat("s", 256)), text: "did not sign you in"},
		"the subject is not ASCII":         {claims: with("sub", "\u00e9"), text: "did not sign you in"},
		"the nonce is wrong":               {claims: with("nonce", "another"), text: "did not sign you in"},
		"the signature is wrong":           {claims: good, signer: stranger, text: "did not sign you in"},
		"the code is wrong":                {claims: good, edit: func(back string) string { return strings.Replace(back, "code=", "code=x", 1) }, text: "did not sign you in"},
		"the code is missing":              {claims: good, edit: func(back string) string { return strings.Replace(back, "code=", "error=", 1) }, text: "did not sign you in"},
		"the state is wrong":               {claims: good, edit: func(back string) string { return back + "x" }, text: "start again"},
		"the state is missing":             {claims: good, edit: func(back string) string { return strings.Replace(back, "state=", "estate=", 1) }, text: "start again"},
		"the sign-in took too long":        {claims: good, edit: func(back string) string { s.clock.advance(10 * time.Minute); return back }, text: "start again"},
	} {
		t.Run(name, func(t *testing.T) {
			p.claims, p.signer = test.claims, p.key
			if test.signer != nil {
				p.signer = test.signer
			}
			b := s.browser()
			back := p.visit(b.get("/sign-in/oidc").to)
			if test.edit != nil {
				back = test.edit(back)
			}
			refused := b.get(back).expectPage(403, test.text)
			if refused.cookie("atelier") != nil {
				t.Error("and is signed in")
			}
		})
	}
	// A code that was meant for one browser opens nothing in another.
	p.claims, p.signer = good, p.key
	s.browser().get(p.visit(s.browser().get("/sign-in/oidc").to)).expectPage(403, "start again")
	other := s.browser()
	own := p.visit(other.get("/sign-in/oidc").to)
	other.get(p.visit(s.browser().get("/sign-in/oidc").to)).expectPage(403, "start again")
	other.get(own).expectRedirect("/account")
}

// A provider may give the address only at its userinfo endpoint (OpenID Connect Core 1.0, section 5.4).
func TestProviderUserinfo(t *testing.T) {
	given := func(email string, verified any) map[string]any {
		return map[string]any{"sub": "1", "email": email, "email_verified": verified}
	}
	for name, test := range map[string]struct {
		claims, userinfo map[string]any
		text             string
	}{
		"address at userinfo":             {userinfo: given("Alice@example.com", true)},
		"verification at userinfo":        {claims: map[string]any{"email": "alice@example.com"}, userinfo: given("alice@example.com", true)},
		"the id token suffices":           {claims: given("alice@example.com", true), userinfo: map[string]any{"sub": "2"}},
		"the id token denies it":          {claims: given("alice@example.com", false), userinfo: given("alice@example.com", true), text: "has not verified"},
		"another subject":                 {userinfo: map[string]any{"sub": "2", "email": "alice@example.com", "email_verified": true}, text: "did not sign you in"},
		"no subject":                      {userinfo: map[string]any{"email": "alice@example.com", "email_verified": true}, text: "did not sign you in"},
		"not verified at userinfo":        {userinfo: given("alice@example.com", false), text: "has not verified"},
		"verification missing everywhere": {userinfo: map[string]any{"sub": "1", "email": "alice@example.com"}, text: "without the claim email_verified"},
		"address missing everywhere":      {userinfo: map[string]any{"sub": "1"}, text: "neither in the ID token nor from its userinfo endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := newProvided(t)
			s.person("alice")
			p.claims, p.userinfo = test.claims, test.userinfo
			b := s.browser()
			answer := b.get(b.signInAtProvider(p))
			if test.text != "" {
				answer.expectPage(403, test.text)
				return
			}
			answer.expectRedirect("/account")
			b.get("/account").expectPage(200, "alice@example.com")
		})
	}
}

// The server starts without the provider, reports the failure, waits before it asks again, and finds the provider once it is
// back.
func TestProviderIsUnavailable(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	p.down = true
	b := s.browser()
	b.get("/sign-in").expectPage(200)
	if refused := b.get("/sign-in/oidc").expectPage(503, "The sign-in provider does not answer"); refused.Header.Get("Retry-After") == "" {
		t.Errorf("head: %v", refused.Header)
	}
	asked := p.asked
	b.get("/sign-in/oidc").expectPage(503)
	if p.asked != asked {
		t.Error("it is not left alone")
	}
	p.down = false
	s.clock.advance(3 * time.Second)
	p.claims = map[string]any{"email": "alice@example.com", "email_verified": true}
	back := p.visit(b.get("/sign-in/oidc").to)
	p.down = true
	b.get(back).expectPage(503, "The sign-in provider does not answer", "Try again")
	p.down = false
	// As the page advises, the same request again signs in.
	b.get(p.visit(b.get(b.get(back).expectRedirect("/sign-in/oidc?next=%2Faccount").to).to)).expectRedirect("/account")
	b.get(back).expectPage(403, "start again")
	back, p.limited = p.visit(b.get("/sign-in/oidc?next=/account?done=key").to), true
	b.get(back).expectPage(503, "The sign-in provider does not answer")
	p.limited = false
	b.get(p.visit(b.get(b.get(back).to).to)).expectRedirect("/account?done=key")
}

// After a sign-in with the provider, the invitation's link no longer sets a password.
func TestProviderSignInEndsTheInvitationLink(t *testing.T) {
	p, s := newProvided(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	link := s.invite(key, "acme", "bob@example.com")
	s.browser().post(link, "name", "Bob")
	s.browser().get(link).expectPage(200, "Set your password")
	p.claims = map[string]any{"email": "bob@example.com", "email_verified": true}
	b := s.browser()
	b.get(p.visit(b.get("/sign-in/oidc").to)).expectRedirect("/account")
	b.post("/sign-out")
	s.browser().get(link).expectPage(409, "This invitation was already accepted")
	s.browser().post(link).expectPage(409)
}

// An invited person signs in with the provider before accepting, and is told of the invitation.
func TestProviderNamesTheInvitation(t *testing.T) {
	p, s := newProvided(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	link := s.invite(key, "acme", "bob@example.com")
	p.claims = map[string]any{"email": "bob@example.com", "email_verified": true}
	b := s.browser()
	b.get(b.signInAtProvider(p)).expectPage(403, "There is no account for bob@example.com yet", "alice (alice@example.com) has invited you", "The acme people", "open the link of the invitation")
	b.post(link, "name", "Bob")
	b.get(b.signInAtProvider(p)).expectRedirect("/account")
	p.claims = map[string]any{"email": "carol@example.com", "email_verified": true, "sub": "2"}
	s.invite(key, "acme", "carol@example.com")
	s.clock.advance(8 * 24 * time.Hour)
	b = s.browser()
	b.get(b.signInAtProvider(p)).expectPage(403, "ask a member of a workspace")
}

func TestNoProvider(t *testing.T) {
	s := newSite(t)
	s.browser().get("/sign-in").expectPage(200).expectNot(t, "Continue with")
	s.browser().get("/sign-in/oidc").expectPage(404)
	s.browser().get("/sign-in/oidc/callback?code=x&state=y").expectPage(404)
}

func TestProviderOptions(t *testing.T) {
	for _, o := range []*pages.OIDC{{}, {Issuer: "https://id.example"}, {Issuer: "id.example", ClientID: "a"}, {Issuer: "ftp://id.example", ClientID: "a"},
		{Issuer: "https://id.example/" + strings.Repeat("a", 512), ClientID: "a"}} {
		if _, err := http.New(http.Options{Options: server.Options{Asker: newFakeEntities(), Secret: secret}, Streams: newFakeEntities(), Drive: newFakeEntities(), Skills: newFakeEntities(), Sessions: fakeSessions(), OIDC: o}); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
