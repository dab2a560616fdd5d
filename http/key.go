package http

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// What is presented reads <start><id>_<secret>: the id of a credential or a grant without its kind prefix, and 200
// random bits. The start tells the kind: whoever finds a key knows what it opens, and so do scanners for secrets.
const (
	keyStart     = "atl_"
	sessionStart = "atlses_"
	accessStart  = "atlat_"
	keyKind      = "key_"
	grantKind    = "ogr_"
	ulidLength   = 26
	secretBytes  = 25
	secretLength = 40
)

var starts = []struct {
	start, prefix string
	kind          wirev1.CredentialKind
}{
	{keyStart, keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_USER},
	{accessStart, grantKind, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH},
	{"atlapp_", keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_APP},
	{"atlvm_", keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM},
	{"atlimp_", keyKind, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION},
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
		rest, ok := strings.CutPrefix(text, s.start)
		if !ok || len(rest) != ulidLength+1+secretLength {
			continue
		}
		id, secret := rest[:ulidLength], rest[ulidLength+1:]
		if rest[ulidLength] == '_' && isULID(id) && isSecret(secret) {
			return key{s.kind, s.prefix + id, secret}, true
		}
	}
	return key{}, false
}

// keyPrefix is what is shown of a key for its holder to recognise it.
func keyPrefix(keyID string) string {
	id := strings.TrimPrefix(keyID, keyKind)
	return keyStart + id[:min(8, len(id))]
}

// isULID tells whether text is a lower-case ULID in its one canonical spelling.
func isULID(text string) bool {
	if len(text) != ulidLength || text[0] > '7' {
		return false
	}
	for i := range len(text) {
		c := text[i]
		digit, letter := c >= '0' && c <= '9', c >= 'a' && c <= 'z'
		if !digit && !letter || c == 'i' || c == 'l' || c == 'o' || c == 'u' {
			return false
		}
	}
	return true
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
