package server

import (
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/keys"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// The starts of the keys of credentials and grants; see package keys.
const (
	KeyStart           = user.KeyStart
	LimitedKeyStart    = user.LimitedKeyStart
	SessionStart       = "atlses_"
	ImpersonationStart = "atlimp_"
	AccessTokenStart   = "atlat_"
	AppStart           = app.KeyStart
)

// keyKinds has the start of each kind of key, and the prefix of the ids of the credentials or grants that such keys open.
var keyKinds = []struct {
	start, prefix string
	kind          wirev1.CredentialKind
}{
	{KeyStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_USER},
	{LimitedKeyStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY},
	{AccessTokenStart, user.GrantPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH},
	{AppStart, app.IDPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_APP},
	{"atlvm_", user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM},
	{ImpersonationStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION},
	{SessionStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION},
}

// key is a parsed key of a request.
type key struct {
	kind wirev1.CredentialKind
	// id is the id of the credential or grant.
	id, secret string
}

// parseKey parses a key of any kind. It returns false if the text is not a key.
func parseKey(text string) (key, bool) {
	for _, s := range keyKinds {
		if id, secret, ok := keys.Split(s.start, text); ok {
			return key{s.kind, s.prefix + id, secret}, true
		}
	}
	return key{}, false
}

// SplitToken returns the ulid of the grant in a token, and the SHA-256 of the token's secret. ok is false if the text is not
// a token with the given start.
func SplitToken(start, text string) (id string, hash []byte, ok bool) {
	id, secret, ok := keys.Split(start, text)
	return id, keys.Hash(secret), ok
}

// readKey returns the key in the Authorization header or, if there is no such header, in the session cookie. A session's key
// is accepted in the cookie only, so that a leaked one is of no use to scripts; a request with it must come from this site.
// Errors: unauthorized, forbidden.
func (c *Call) readKey() (key, error) {
	const session = wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION
	if _, ok := c.Request.Header["Authorization"]; ok {
		k, ok := parseKey(readAuthorization(c.Request, c.Response.isDriveRequest()))
		if !ok || k.kind == session {
			return key{}, ErrUnauthorized
		}
		return k, nil
	}
	cookie, err := c.Request.Cookie(c.server.CookieName())
	if err != nil {
		return key{}, ErrUnauthorized
	}
	k, ok := parseKey(cookie.Value)
	if !ok || k.kind != session {
		return key{}, ErrUnauthorized
	}
	return k, c.CheckSameOrigin()
}

// CheckSameOrigin refuses requests that change something and that a page of another site made the browser send. Requests
// with a key in the header need no such check, because no browser adds that key by itself. Errors: forbidden.
func (c *Call) CheckSameOrigin() error {
	if err := c.server.crossOrigin.Check(c.Request); err != nil {
		return entity.Errorf(entity.Forbidden, "the request comes from another site")
	}
	return nil
}

// CookieName returns the name of the session cookie. Over TLS it has the prefix that binds the cookie to its host and to
// TLS. The names of all other cookies of the platform begin with it; package edge keeps each from apps (edge/cookies.go).
func (s *Server) CookieName() string {
	if s.options.PublicURL.Scheme == "https" {
		return "__Host-atelier"
	}
	return "atelier"
}

// readAuthorization returns the key in the Authorization header, or "". If basic is true, the password of HTTP Basic is one
// too.
func readAuthorization(r *http.Request, basic bool) string {
	header := r.Header["Authorization"]
	if len(header) != 1 {
		return ""
	}
	if _, password, ok := r.BasicAuth(); ok {
		if basic {
			return password
		}
		return ""
	}
	scheme, key, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(key, " ")
}

// CookieName returns the name of the session cookie.
func (c *Call) CookieName() string { return c.server.CookieName() }
