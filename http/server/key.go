package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/user"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A key has the form <start><id>_<secret>: the id of a credential or grant without the prefix of its kind, and 200 random
// bits in base32. The start shows people, and scanners for leaked secrets, which kind of key it is.
const (
	KeyStart           = user.KeyStart
	SessionStart       = "atlses_"
	ImpersonationStart = "atlimp_"
	AccessTokenStart   = "atlat_"
	// AppStart begins the key of an app; see package computer/apps, which mints it.
	AppStart = "atlapp_"

	secretBytes = 25
	// SecretLength is the length of a secret in a key, in bytes.
	SecretLength = 40
)

// keyKinds has the start of each kind of key, and the prefix of the ids of the credentials or grants that such keys open.
var keyKinds = []struct {
	start, prefix string
	kind          wirev1.CredentialKind
}{
	{KeyStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_USER},
	{AccessTokenStart, user.GrantPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH},
	{AppStart, app.IDPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_APP},
	{"atlvm_", user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM},
	{ImpersonationStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION},
	{SessionStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION},
}

// StartOf returns the start of keys of a kind; "" for a kind without keys.
func StartOf(kind wirev1.CredentialKind) string {
	for _, k := range keyKinds {
		if k.kind == kind {
			return k.start
		}
	}
	return ""
}

// key is a parsed key of a request.
type key struct {
	kind wirev1.CredentialKind
	// id is the id of the credential or grant.
	id, secret string
}

const secretAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

var secretEncoding = base32.NewEncoding(secretAlphabet).WithPadding(base32.NoPadding)

// NewKey returns a new key for the credential or grant with an id, and the SHA-256 of the key's secret, which alone is
// stored.
func NewKey(start, id string) (text string, hash []byte) {
	secret, hash := NewSecret()
	return start + id[len(id)-entity.ULIDLength:] + "_" + secret, hash
}

// NewSecret returns a random secret and its SHA-256, which alone is stored.
func NewSecret() (secret string, hash []byte) {
	random := make([]byte, secretBytes)
	rand.Read(random) // never fails, according to its documentation
	secret = secretEncoding.EncodeToString(random)
	return secret, Hash(secret)
}

// DerivedSecret returns the secret that is derived from a key and a text: the same secret for the same arguments.
func DerivedSecret(key, text []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return secretEncoding.EncodeToString(mac.Sum(nil)[:secretBytes])
}

// Hash returns the SHA-256 of a secret.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// parseKey parses a key of any kind. It returns false if the text is not a key.
func parseKey(text string) (key, bool) {
	for _, s := range keyKinds {
		if id, secret, ok := splitKey(s.start, text); ok {
			return key{s.kind, s.prefix + id, secret}, true
		}
	}
	return key{}, false
}

// splitKey returns the id, without its prefix, and the secret of a key with the given start.
func splitKey(start, text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, start)
	if !ok || len(rest) != entity.ULIDLength+1+SecretLength || rest[entity.ULIDLength] != '_' {
		return "", "", false
	}
	id, secret = rest[:entity.ULIDLength], rest[entity.ULIDLength+1:]
	return id, secret, entity.IsULID(id) && IsSecret(secret)
}

// SplitToken returns the ulid of the grant in a token, and the SHA-256 of the token's secret. ok is false if the text is not
// a token with the given start.
func SplitToken(start, text string) (id string, hash []byte, ok bool) {
	id, secret, ok := splitKey(start, text)
	return id, Hash(secret), ok
}

// IsSecret reports whether a text has only characters of secrets.
func IsSecret(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
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
// TLS.
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
