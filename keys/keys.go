// Package keys makes and splits the keys of the platform: API keys, tokens, and the secrets in links and addresses.
//
// A key has the form <start><ulid>_<secret>: the id of an entity without the prefix of its kind, and 200 random bits in base32. The
// start shows people, and scanners for leaked secrets, which kind of key it is. Only the SHA-256 of a secret is stored.
package keys

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

const (
	secretBytes = 25
	// SecretLength is the length of a secret in a key, in bytes.
	SecretLength = 40
)

var secretEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New returns a new key for the entity with an id, and the SHA-256 of the key's secret.
func New(start, id string) (text string, hash []byte) {
	secret, hash := NewSecret()
	return start + id[len(id)-entity.ULIDLength:] + "_" + secret, hash
}

// NewSecret returns a random secret and its SHA-256.
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

// Derive derives a key for one purpose from the installation's secret.
func Derive(installation []byte, purpose string) []byte {
	mac := hmac.New(sha256.New, installation)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// Binding encodes the parts that a secret or a cursor is bound to. Different parts have different encodings.
func Binding(parts ...string) []byte {
	var b []byte
	for _, part := range parts {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// LinkToken returns the token of a link: ids without the prefixes that name their kinds, and a secret.
func LinkToken(secret string, ids ...string) string {
	var token strings.Builder
	for _, id := range ids {
		token.WriteString(id[max(0, len(id)-entity.ULIDLength):] + ".")
	}
	return token.String() + secret
}

// SplitLinkToken splits the token of a link into n ids without their prefixes, and a secret. ids is nil if the token is malformed.
func SplitLinkToken(token string, n int) (ids []string, secret string) {
	if len(token) != n*(entity.ULIDLength+1)+SecretLength {
		return nil, ""
	}
	parts := strings.Split(token, ".")
	if len(parts) != n+1 || len(parts[n]) != SecretLength || !IsSecret(parts[n]) {
		return nil, ""
	}
	for _, id := range parts[:n] {
		if !entity.IsULID(id) {
			return nil, ""
		}
	}
	return parts[:n], parts[n]
}

// Hash returns the SHA-256 of a secret.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// Split returns the ULID and the secret of a key with the given start. ok is false if the text is not such a key.
func Split(start, text string) (ulid, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, start)
	if !ok || len(rest) != entity.ULIDLength+1+SecretLength || rest[entity.ULIDLength] != '_' {
		return "", "", false
	}
	ulid, secret = rest[:entity.ULIDLength], rest[entity.ULIDLength+1:]
	return ulid, secret, entity.IsULID(ulid) && IsSecret(secret)
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
