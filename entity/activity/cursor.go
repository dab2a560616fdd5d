package activity

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/atelier-run/atelier/entity"
)

// CursorLength is the length of a cursor's text.
const CursorLength = 22

// Cursor turns positions in one workspace's sequence into opaque text and back. History, feed and stream share it.
//
// A position is one AES block: the seq and eight bytes that must come out as zero, so that a forged or edited cursor is
// recognised with a probability of 1 - 2^-64, at the price of tens of nanoseconds a row.
type Cursor struct{ block cipher.Block }

// NewCursor derives a workspace's cursor from the installation's secret.
func NewCursor(secret []byte, workspaceID string) Cursor {
	key, err := hkdf.Key(sha256.New, secret, nil, "activity cursor "+workspaceID, 16)
	if err != nil {
		panic("activity: " + err.Error()) // only for an output longer than HKDF allows
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("activity: " + err.Error()) // only for a key of a wrong length
	}
	return Cursor{block}
}

// Append appends the cursor of a position.
func (c Cursor) Append(b []byte, seq uint64) []byte {
	var block [aes.BlockSize]byte
	binary.BigEndian.PutUint64(block[:8], seq)
	c.block.Encrypt(block[:], block[:])
	return base64.RawURLEncoding.AppendEncode(b, block[:])
}

// Position is the seq that a cursor stands for. Errors: invalid_cursor.
func (c Cursor) Position(cursor string) (uint64, error) {
	invalid := entity.Errorf(entity.InvalidCursor, "")
	if len(cursor) != CursorLength {
		return 0, invalid
	}
	block, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(block) != aes.BlockSize {
		return 0, invalid
	}
	c.block.Decrypt(block, block)
	if binary.BigEndian.Uint64(block[8:]) != 0 {
		return 0, invalid
	}
	return binary.BigEndian.Uint64(block[:8]), nil
}
