package server

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/keys"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// maxCursor bounds the text of a cursor, in bytes.
const maxCursor = 1024

// cursors encodes positions in lists as opaque text. The text is encrypted, authenticated and bound to the request: the
// operation, the workspace, the filters, and the caller if the items depend on the caller. Positions in a workspace's
// activity have cursors of their own (entity/activity).
type cursors struct {
	seal  cipher.AEAD
	nonce []byte
}

func newCursors(secret []byte) cursors {
	block, err := aes.NewCipher(DeriveKey(secret, "http cursor"))
	if err != nil {
		panic("http: " + err.Error()) // only for a key of a wrong length
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		panic("http: " + err.Error()) // only for a block of a wrong size
	}
	return cursors{seal, DeriveKey(secret, "http cursor nonce")}
}

// DeriveKey derives a key of 32 bytes for one purpose from the installation's secret.
func DeriveKey(secret []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, purpose, 32)
	if err != nil {
		panic("http: " + err.Error()) // only for an output longer than HKDF allows
	}
	return key
}

// Binding returns the binding of a cursor, which is valid with the same parts only.
func Binding(parts ...string) []byte { return keys.Binding(parts...) }

// encode returns the cursor of a position. The nonce is derived from the position and the binding, so that no two plaintexts
// share one.
func (c cursors) encode(position string, binding []byte) string {
	mac := hmac.New(sha256.New, c.nonce)
	mac.Write(binary.AppendUvarint(nil, uint64(len(binding))))
	mac.Write(binding)
	mac.Write([]byte(position))
	nonce := mac.Sum(nil)[:c.seal.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(c.seal.Seal(nonce, nonce, []byte(position), binding))
}

// decode returns the position in a cursor. Errors: invalid_cursor.
func (c cursors) decode(text string, binding []byte) (string, error) {
	if len(text) > maxCursor || strings.ContainsAny(text, "\r\n") { // the decoder would ignore these
		return "", ErrInvalidCursor
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) < c.seal.NonceSize() {
		return "", ErrInvalidCursor
	}
	n := c.seal.NonceSize()
	position, err := c.seal.Open(nil, sealed[:n], sealed[n:], binding)
	if err != nil {
		return "", ErrInvalidCursor
	}
	return string(position), nil
}

// Listing is a request for a page of a list.
type Listing struct {
	// After is the position at which the previous page ended; empty for the first page.
	After  string
	Limit  int32
	Search string
}

// Collection is a page of a list as JSON.
type Collection[Item any] struct {
	Items      []Item  `json:"items"`
	NextCursor *string `json:"nextCursor"`
}

// maxSearch bounds the search text, in characters.
const maxSearch = 32

// DecodePage decodes the parameters cursor and limit.
func DecodePage(c *Call) (Listing, error) { return c.decodeListing("cursor", "limit") }

// DecodeSearch decodes the parameters cursor, limit and search.
func DecodeSearch(c *Call) (Listing, error) { return c.decodeListing("cursor", "limit", "search") }

func (c *Call) decodeListing(known ...string) (Listing, error) {
	q, err := ParseQuery(c.Request.URL.RawQuery, known...)
	if err != nil {
		return Listing{}, err
	}
	in := Listing{Limit: q.Limit(), Search: q.Text("search")}
	if n := utf8.RuneCountInString(in.Search); q.Has("search") && (n < 1 || n > maxSearch) {
		q.Fail(Invalid("search must have 1 to %d characters", maxSearch))
	}
	q.Cursor(func(cursor string) (err error) {
		in.After, err = c.OpenCursor(cursor, c.binding(in))
		return err
	})
	return in, q.Err
}

// binding returns the binding of a list's cursors: the operation, the workspace or else the caller, and the search text.
func (c *Call) binding(in Listing) []byte {
	owner := c.Caller.Principal.GetUserId()
	if c.Workspace != nil {
		owner = c.Workspace.ID
	}
	return Binding(c.operation.Path, owner, in.Search)
}

// Page returns a page of items, with a cursor for the position next; empty if it is the last page.
func Page[Item any](c *Call, in Listing, items []Item, next string) Collection[Item] {
	found := Collection[Item]{Items: items}
	if next != "" {
		cursor := c.SealCursor(next, c.binding(in))
		found.NextCursor = &cursor
	}
	return found
}

// row is the type of messages that a list stores.
type row[Fields any] interface {
	*Fields
	proto.Message
}

// ReadList returns a page of a list of the workspace in the path, or of an entity that the workspace owns.
func ReadList[Item, Fields any, Row row[Fields]](
	c *Call, kind, list string, in Listing, view func(Row) Item,
) (Collection[Item], error) {
	found, err := Ask[*wirev1.Page](c, entity.Command{Kind: kind, Identity: c.Workspace.ID, Message: &wirev1.List{
		Name: list, After: []byte(in.After), Limit: in.Limit, Search: in.Search,
	}})
	if err != nil {
		return Collection[Item]{}, err
	}
	items, err := DecodeRows(found, view)
	if err != nil {
		return Collection[Item]{}, err
	}
	return Page(c, in, items, string(found.GetNext())), nil
}

// DecodeRows decodes the rows of a page and converts each with view.
func DecodeRows[Item, Fields any, Row row[Fields]](found *wirev1.Page, view func(Row) Item) ([]Item, error) {
	items := make([]Item, len(found.GetRows()))
	for i, bytes := range found.GetRows() {
		entry := Row(new(Fields))
		if err := proto.Unmarshal(bytes, entry); err != nil {
			return nil, err
		}
		items[i] = view(entry)
	}
	return items, nil
}
