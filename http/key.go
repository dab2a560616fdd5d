package http

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/oauth"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// What is presented reads <start><id>_<secret>: the id of a credential or a grant without its kind prefix, and 200
// random bits. The start tells the kind: whoever finds a key knows what it opens, and so do scanners for secrets.
const (
	keyStart           = user.KeyStart
	sessionStart       = "atlses_"
	impersonationStart = "atlimp_"
	keyKind            = user.KeyPrefix
	grantKind          = user.GrantPrefix
	ulidLength         = entity.ULIDLength
	secretBytes        = 25
	secretLength       = 40
)

var starts = []struct {
	start, prefix string
	kind          wirev1.CredentialKind
}{
	{keyStart, keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_USER},
	{oauth.AccessStart, grantKind, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH},
	{"atlapp_", keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_APP},
	{"atlvm_", keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM},
	{impersonationStart, keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION},
	{sessionStart, keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION},
}

// key is what a request presents.
type key struct {
	kind wirev1.CredentialKind
	// id is the identity of a credential, or of a grant.
	id, secret string
}

const secretAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

var secretEncoding = base32.NewEncoding(secretAlphabet).WithPadding(base32.NoPadding)

// newKey is the text of a new key for an id, and what is stored of it.
func newKey(start, id string) (text string, hash []byte) {
	secret, hash := newSecret()
	return start + id[len(id)-ulidLength:] + "_" + secret, hash
}

// newSecret is random text, and its SHA-256, which alone is stored.
func newSecret() (secret string, hash []byte) {
	random := make([]byte, secretBytes)
	rand.Read(random) // never fails, as its documentation has it
	secret = secretEncoding.EncodeToString(random)
	return secret, hashOf(secret)
}

func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// parseKey splits what is presented.
func parseKey(text string) (key, bool) {
	for _, s := range starts {
		if id, secret, ok := splitKey(s.start, text); ok {
			return key{s.kind, s.prefix + id, secret}, true
		}
	}
	return key{}, false
}

// splitKey splits what begins with a start.
func splitKey(start, text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, start)
	if !ok || len(rest) != ulidLength+1+secretLength || rest[ulidLength] != '_' {
		return "", "", false
	}
	id, secret = rest[:ulidLength], rest[ulidLength+1:]
	return id, secret, entity.IsULID(id) && isSecret(secret)
}

// splitToken takes a token of a grant apart.
func splitToken(start, text string) (id string, hash []byte, ok bool) {
	id, secret, ok := splitKey(start, text)
	return id, hashOf(secret), ok
}

func isSecret(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}
