package activity

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// RowName is the event name of rows in the journal.
const RowName = "atelier.activity.v1.row"

// Row is one operation in the sequence of a workspace.
type Row struct {
	Seq uint64
	// At is the time of the operation in milliseconds since the Unix epoch.
	At        int64
	Operation *activityv1.Operation
}

var kindNames = map[activityv1.Kind]string{
	activityv1.Kind_KIND_WRITE:           "write",
	activityv1.Kind_KIND_CREATE:          "create",
	activityv1.Kind_KIND_DELETE:          "delete",
	activityv1.Kind_KIND_RENAME:          "rename",
	activityv1.Kind_KIND_READ:            "read",
	activityv1.Kind_KIND_CHANGED_SUMMARY: "changed-summary",
	activityv1.Kind_KIND_VIEWED_SUMMARY:  "viewed-summary",
	activityv1.Kind_KIND_RESTORE:         "restore",
}

var entryKindNames = map[activityv1.EntryKind]string{
	activityv1.EntryKind_ENTRY_KIND_FILE:   "file",
	activityv1.EntryKind_ENTRY_KIND_FOLDER: "folder",
}

// concernsFiles reports whether rows of a kind always concern a file, so that they omit the kind of entry.
func concernsFiles(k activityv1.Kind) bool {
	switch k {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_READ, activityv1.Kind_KIND_RESTORE:
		return true
	default:
		return false
	}
}

// Stored is a row in the form in which the journal stores it: one byte for its kind, followed by the JSON that pages and
// streams send.
type Stored []byte

// Kind returns the kind of the row; KIND_UNSPECIFIED for an empty slice.
func (s Stored) Kind() activityv1.Kind {
	if len(s) == 0 {
		return activityv1.Kind_KIND_UNSPECIFIED
	}
	return activityv1.Kind(s[0])
}

// JSON returns the row in the form in which clients receive it. The row must not be empty.
func (s Stored) JSON() []byte { return s[1:] }

// Read reports whether rows of a kind are read markers, which feeds and streams omit unless the client requests them.
func Read(k activityv1.Kind) bool { return k == activityv1.Kind_KIND_READ }

// Encode returns the stored form of a row.
func Encode(r Row) Stored {
	op := r.Operation
	b := make([]byte, 0, 160+len(op.GetPath())+len(op.GetFromPath()))
	b = append(b, byte(op.GetKind()))
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, r.Seq, 10)
	b = append(b, `,"event":{"kind":"`...)
	b = append(b, kindNames[op.GetKind()]...)
	b = append(b, `","actor":`...)
	b = appendString(b, op.GetAuthor().GetActor())
	b = append(b, `,"at":`...)
	b = strconv.AppendInt(b, r.At, 10)
	if user := op.GetAuthor().GetUserId(); user != "" {
		b = append(b, `,"userId":`...)
		b = appendString(b, user)
	}
	if name := entryKindNames[op.GetEntryKind()]; name != "" && !concernsFiles(op.GetKind()) {
		b = append(b, `,"entryKind":"`...)
		b = append(b, name...)
		b = append(b, '"')
	}
	if op.GetPath() != "" {
		b = append(b, `,"path":`...)
		b = appendString(b, op.GetPath())
	}
	if op.GetFromPath() != "" {
		b = append(b, `,"fromPath":`...)
		b = appendString(b, op.GetFromPath())
	}
	if op.GetCount() > 0 {
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, op.GetCount(), 10)
	}
	return append(b, `}}`...)
}

// appendString appends a JSON string. Paths and actors have been validated as UTF-8.
func appendString(b []byte, s string) []byte {
	quoted, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return append(b, `""`...)
	}
	return quoted
}

// AppendFrame appends a row as a server-sent event, with its cursor as the event id.
func AppendFrame(b []byte, cursor Cursor, seq uint64, row Stored) []byte {
	b = append(b, "id: "...)
	b = cursor.Append(b, seq)
	b = append(b, "\nevent: "...)
	b = append(b, kindNames[row.Kind()]...)
	b = append(b, "\ndata: "...)
	b = append(b, entity.EscapeLineEnds(row.JSON())...)
	return append(b, "\n\n"...)
}

// Decode parses the stored form of a row, without its entry kind. It fails for bytes that are not a result of Encode.
func Decode(s Stored) (Row, error) {
	if len(s) == 0 || kindNames[s.Kind()] == "" {
		return Row{}, errors.New("activity: decode a row: unknown kind")
	}
	var row struct {
		Seq   uint64
		Event struct {
			Actor, UserID, Path, FromPath string
			At                            int64
			Count                         uint64
		}
	}
	if err := json.Unmarshal(s.JSON(), &row); err != nil {
		return Row{}, fmt.Errorf("activity: decode a row: %w", err)
	}
	e := row.Event
	return Row{Seq: row.Seq, At: e.At, Operation: &activityv1.Operation{
		Kind: s.Kind(), Path: e.Path, FromPath: e.FromPath, Count: e.Count,
		Author: &activityv1.Author{Actor: e.Actor, UserId: e.UserID},
	}}, nil
}

// On reports whether a row concerns a path itself. A rename concerns both of its paths.
func (r Row) On(path string) bool {
	return r.Operation.GetPath() == path || r.Operation.GetFromPath() == path
}

// Below reports whether a row concerns a path below a folder.
func (r Row) Below(folder string) bool {
	return isBelow(r.Operation.GetPath(), folder) || isBelow(r.Operation.GetFromPath(), folder)
}

// isBelow reports whether a path lies below a folder.
func isBelow(path, folder string) bool {
	return len(path) > len(folder) && path[len(folder)] == '/' && path[:len(folder)] == folder
}

// CursorLength is the length of an encoded cursor.
const CursorLength = 22

// Cursor encodes positions in the sequence of one workspace as opaque text, and decodes them. History, feed and streams use
// the same cursors.
//
// A cursor is one encrypted AES block: the seq and eight zero bytes. A forged or edited cursor decrypts to eight zero
// bytes with a probability of 2^-64, so it is detected without a separate authentication code. Encoding costs tens of
// nanoseconds.
type Cursor struct{ block cipher.Block }

// NewCursor derives the key of a workspace's cursors from the secret of the installation.
func NewCursor(secret []byte, workspaceID string) Cursor {
	key, err := hkdf.Key(sha256.New, secret, nil, "activity cursor "+workspaceID, 16)
	if err != nil {
		panic("activity: " + err.Error()) // impossible: HKDF fails only for longer keys
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic("activity: " + err.Error()) // impossible: the key has 16 bytes
	}
	return Cursor{block}
}

// Append appends the cursor for a seq.
func (c Cursor) Append(b []byte, seq uint64) []byte {
	var block [aes.BlockSize]byte
	binary.BigEndian.PutUint64(block[:8], seq)
	c.block.Encrypt(block[:], block[:])
	return base64.RawURLEncoding.AppendEncode(b, block[:])
}

// Position returns the seq that a cursor encodes. Errors: invalid_cursor.
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
