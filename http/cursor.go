package http

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// maxCursor bounds a cursor's text.
const maxCursor = 1024

// cursors turns where a walk stands into opaque text and back. The text is authenticated and bound to the walk: the
// operation, the workspace, the filters, and the caller where the items depend on the caller. Positions in a
// workspace's activity have cursors of their own (entity/activity).
type cursors struct {
	seal  cipher.AEAD
	nonce []byte
}

func newCursors(secret []byte) cursors {
	block, err := aes.NewCipher(derive(secret, "http cursor"))
	if err != nil {
		panic("http: " + err.Error()) // only for a key of a wrong length
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		panic("http: " + err.Error()) // only for a block of a wrong size
	}
	return cursors{seal, derive(secret, "http cursor nonce")}
}

func derive(secret []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, purpose, 32)
	if err != nil {
		panic("http: " + err.Error()) // only for an output longer than HKDF allows
	}
	return key
}

// walk is what a cursor is bound to; its parts cannot run into each other.
func walk(parts ...string) []byte {
	var b []byte
	for _, part := range parts {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// text is the cursor of a place in a walk. The nonce follows from both, so that no two differ under one.
func (c cursors) text(place string, walk []byte) string {
	mac := hmac.New(sha256.New, c.nonce)
	mac.Write(binary.AppendUvarint(nil, uint64(len(walk))))
	mac.Write(walk)
	mac.Write([]byte(place))
	nonce := mac.Sum(nil)[:c.seal.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(c.seal.Seal(nonce, nonce, []byte(place), walk))
}

// place is what a cursor stands for. Errors: invalid_cursor.
func (c cursors) place(text string, walk []byte) (string, error) {
	if len(text) > maxCursor || strings.ContainsAny(text, "\r\n") { // which the decoder would pass over
		return "", errInvalid
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) < c.seal.NonceSize() {
		return "", errInvalid
	}
	n := c.seal.NonceSize()
	place, err := c.seal.Open(nil, sealed[:n], sealed[n:], walk)
	if err != nil {
		return "", errInvalid
	}
	return string(place), nil
}
