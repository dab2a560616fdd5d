package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A key reads <start><id>_<secret>: the id of a credential or grant without the prefix of its kind, and 200 random bits. The
// start names the kind, for people who find a key and for scanners that look for leaked secrets.
const (
	KeyStart           = user.KeyStart
	SessionStart       = "atlses_"
	ImpersonationStart = "atlimp_"
	AccessTokenStart   = "atlat_"

	secretBytes = 25
	// SecretLength is the length of a secret's text, in bytes.
	SecretLength = 40
)

// kinds lists the kinds of keys: how a key starts, and the prefix of the ids of what it opens.
var keyKinds = []struct {
	start, prefix string
	kind          wirev1.CredentialKind
}{
	{KeyStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_USER},
	{AccessTokenStart, user.GrantPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH},
	{"atlapp_", user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_APP},
	{"atlvm_", user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM},
	{ImpersonationStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION},
	{SessionStart, user.KeyPrefix, wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION},
}

// StartOf returns how keys of a kind start; "" for a kind without keys.
func StartOf(kind wirev1.CredentialKind) string {
	for _, k := range keyKinds {
		if k.kind == kind {
			return k.start
		}
	}
	return ""
}

// key is the key that a request carries, parsed.
type key struct {
	kind wirev1.CredentialKind
	// id is the identity of a credential or a grant.
	id, secret string
}

const secretAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

var secretEncoding = base32.NewEncoding(secretAlphabet).WithPadding(base32.NoPadding)

// NewKey is the text of a new key for an id, and what is stored of it.
func NewKey(start, id string) (text string, hash []byte) {
	secret, hash := NewSecret()
	return start + id[len(id)-entity.ULIDLength:] + "_" + secret, hash
}

// NewSecret is random text, and its SHA-256, which alone is stored.
func NewSecret() (secret string, hash []byte) {
	random := make([]byte, secretBytes)
	rand.Read(random) // never fails, as its documentation has it
	secret = secretEncoding.EncodeToString(random)
	return secret, Hash(secret)
}

// DerivedSecret returns the secret that follows from a key and a text.
func DerivedSecret(key, text []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return secretEncoding.EncodeToString(mac.Sum(nil)[:secretBytes])
}

func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// parseKey splits what is presented.
func parseKey(text string) (key, bool) {
	for _, s := range keyKinds {
		if id, secret, ok := splitKey(s.start, text); ok {
			return key{s.kind, s.prefix + id, secret}, true
		}
	}
	return key{}, false
}

// splitKey splits what begins with a start.
func splitKey(start, text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, start)
	if !ok || len(rest) != entity.ULIDLength+1+SecretLength || rest[entity.ULIDLength] != '_' {
		return "", "", false
	}
	id, secret = rest[:entity.ULIDLength], rest[entity.ULIDLength+1:]
	return id, secret, entity.IsULID(id) && IsSecret(secret)
}

// SplitToken takes a token of a grant apart.
func SplitToken(start, text string) (id string, hash []byte, ok bool) {
	id, secret, ok := splitKey(start, text)
	return id, Hash(secret), ok
}

func IsSecret(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// presentedKey is the key of a request: in the Authorization header or, without one, the browser's cookie. A session's key
// is good in the cookie alone, so that no page can use one that it came by.
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

// SameOrigin refuses changes that another site's page has a browser send. Requests with a key of their own are nobody's
// but their sender's, and are not held against it.
func (c *Call) CheckSameOrigin() error {
	if err := c.server.crossOrigin.Check(c.Request); err != nil {
		return entity.Errorf(entity.Forbidden, "the request comes from another site")
	}
	return nil
}

// CookieName has the prefix that binds a cookie to its host and to TLS, where there is TLS.
func (s *Server) CookieName() string {
	if s.options.PublicURL.Scheme == "https" {
		return "__Host-atelier"
	}
	return "atelier"
}

// authorization is the key in the header, if any; basic also admits it as the password of HTTP Basic.
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

// CookieName returns the name of the cookie with a browser session's key.
func (c *Call) CookieName() string { return c.server.CookieName() }
