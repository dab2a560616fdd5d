package http

import (
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// listing is the page of a collection that is asked for.
type listing struct {
	// after is where the page before ended; empty: the page is the first.
	after  string
	limit  int32
	search string
}

// collection is a page as it is answered.
type collection[Item any] struct {
	Items      []Item  `json:"items"`
	NextCursor *string `json:"nextCursor"`
}

// maxSearch bounds what members are searched for, in characters.
const maxSearch = 32

func decodePage(c *call) (listing, error) { return c.decodeListing("cursor", "limit") }

func decodeSearch(c *call) (listing, error) { return c.decodeListing("cursor", "limit", "search") }

func (c *call) decodeListing(known ...string) (listing, error) {
	q, err := parseQuery(c.r.URL.RawQuery, known...)
	if err != nil {
		return listing{}, err
	}
	in := listing{limit: q.limit(), search: q.text("search")}
	if n := utf8.RuneCountInString(in.search); q.has("search") && (n < 1 || n > maxSearch) {
		q.fail(invalid("search must have 1 to %d characters", maxSearch))
	}
	q.cursor(func(cursor string) (err error) {
		in.after, err = c.server.cursors.place(cursor, c.walk(in))
		return err
	})
	return in, q.err
}

// walk is what a page's cursors are bound to: the operation, the workspace or else the caller, and the filter.
func (c *call) walk(in listing) []byte {
	owner := c.caller.principal.GetUserId()
	if c.workspace != nil {
		owner = c.workspace.id
	}
	return walk(c.operation.path, owner, in.search)
}

// page answers with items, and a cursor of the place after them; empty: there are no more.
func page[Item any](c *call, in listing, items []Item, next string) collection[Item] {
	found := collection[Item]{Items: items}
	if next != "" {
		cursor := c.server.cursors.text(next, c.walk(in))
		found.NextCursor = &cursor
	}
	return found
}

// row is a message that a list has for entries.
type row[Fields any] interface {
	*Fields
	proto.Message
}

// readList answers with a page of one of the lists of the path's workspace, or of a part of it.
func readList[Item, Fields any, Row row[Fields]](
	c *call, kind, list string, in listing, view func(Row) Item,
) (collection[Item], error) {
	found, err := ask[*wirev1.Page](c, entity.Command{Kind: kind, Identity: c.workspace.id, Message: &wirev1.List{
		Name: list, After: []byte(in.after), Limit: in.limit, Search: in.search,
	}})
	if err != nil {
		return collection[Item]{}, err
	}
	items, err := entries(found, view)
	if err != nil {
		return collection[Item]{}, err
	}
	return page(c, in, items, string(found.GetNext())), nil
}

// entries are the rows of a page as they are answered.
func entries[Item, Fields any, Row row[Fields]](found *wirev1.Page, view func(Row) Item) ([]Item, error) {
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

// each carries out n pieces of work, some of them side by side, until one fails.
func each(n int, work func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(wide)
	for i := range n {
		group.Go(func() error { return work(i) })
	}
	return group.Wait()
}

// idAfter is where a page in the order of ids ended, where there are more.
func idAfter[Item interface{ GetId() string }](items []Item, more bool) string {
	if !more || len(items) == 0 {
		return ""
	}
	return items[len(items)-1].GetId()
}
