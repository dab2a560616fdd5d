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

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
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

func DeriveKey(secret []byte, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, purpose, 32)
	if err != nil {
		panic("http: " + err.Error()) // only for an output longer than HKDF allows
	}
	return key
}

// Binding is what a cursor is bound to; its parts cannot run into each other.
func Binding(parts ...string) []byte {
	var b []byte
	for _, part := range parts {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// text is the cursor of a place in a walk. The nonce follows from both, so that no two differ under one.
func (c cursors) encode(place string, walk []byte) string {
	mac := hmac.New(sha256.New, c.nonce)
	mac.Write(binary.AppendUvarint(nil, uint64(len(walk))))
	mac.Write(walk)
	mac.Write([]byte(place))
	nonce := mac.Sum(nil)[:c.seal.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(c.seal.Seal(nonce, nonce, []byte(place), walk))
}

// place is what a cursor stands for. Errors: invalid_cursor.
func (c cursors) decode(text string, walk []byte) (string, error) {
	if len(text) > maxCursor || strings.ContainsAny(text, "\r\n") { // which the decoder would pass over
		return "", ErrInvalidCursor
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) < c.seal.NonceSize() {
		return "", ErrInvalidCursor
	}
	n := c.seal.NonceSize()
	place, err := c.seal.Open(nil, sealed[:n], sealed[n:], walk)
	if err != nil {
		return "", ErrInvalidCursor
	}
	return string(place), nil
}

// Listing is the page of a collection that is asked for.
type Listing struct {
	// After is where the page before ended; empty: the page is the first.
	After  string
	Limit  int32
	Search string
}

// Collection is a page as it is answered.
type Collection[Item any] struct {
	Items      []Item  `json:"items"`
	NextCursor *string `json:"nextCursor"`
}

// maxSearch bounds what members are searched for, in characters.
const maxSearch = 32

func DecodePage(c *Call) (Listing, error) { return c.decodeListing("cursor", "limit") }

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

// binding is what a page's cursors are bound to: the operation, the workspace or else the caller, and the filter.
func (c *Call) binding(in Listing) []byte {
	owner := c.Caller.Principal.GetUserId()
	if c.Workspace != nil {
		owner = c.Workspace.ID
	}
	return Binding(c.operation.Path, owner, in.Search)
}

// Page answers with items, and a cursor of the place after them; empty: there are no more.
func Page[Item any](c *Call, in Listing, items []Item, next string) Collection[Item] {
	found := Collection[Item]{Items: items}
	if next != "" {
		cursor := c.SealCursor(next, c.binding(in))
		found.NextCursor = &cursor
	}
	return found
}

// row is a message that a list has for entries.
type row[Fields any] interface {
	*Fields
	proto.Message
}

// ReadList answers with a page of one of the lists of the path's workspace, or of a part of it.
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

// Entries are the rows of a page as they are answered.
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

// concurrency bounds the commands that one request has under way at a time.
const concurrency = 16

// Each carries out n pieces of work, some of them side by side, until one fails.
func ForEach(n int, work func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i := range n {
		group.Go(func() error { return work(i) })
	}
	return group.Wait()
}
