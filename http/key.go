package http

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// A personal API key reads atl_<id>_<secret>: the key id without its kind prefix, and 200 random bits.
const (
	keyStart     = "atl_"
	keyKind      = "key_"
	ulidLength   = 26
	secretBytes  = 25
	secretLength = 40
	keyLength    = len(keyStart) + ulidLength + 1 + secretLength
)

const secretAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

var secretEncoding = base32.NewEncoding(secretAlphabet).WithPadding(base32.NoPadding)

// newKey is the text of a new key for a key id, and what is stored of it.
func newKey(keyID string) (text string, hash []byte) {
	random := make([]byte, secretBytes)
	rand.Read(random) // never fails, as its documentation has it
	secret := secretEncoding.EncodeToString(random)
	sum := sha256.Sum256([]byte(secret))
	return keyStart + strings.TrimPrefix(keyID, keyKind) + "_" + secret, sum[:]
}

// parseKey splits a key's text into the key id and the secret.
func parseKey(text string) (keyID, secret string, ok bool) {
	if len(text) != keyLength || text[:len(keyStart)] != keyStart {
		return "", "", false
	}
	id, secret := text[len(keyStart):len(keyStart)+ulidLength], text[keyLength-secretLength:]
	if text[len(keyStart)+ulidLength] != '_' || !isULID(id) || !isSecret(secret) {
		return "", "", false
	}
	return keyKind + id, secret, true
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
