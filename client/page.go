package client

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// Page is a page of a collection. It may be short or empty although more items follow.
type Page[Item any] struct {
	Items []Item `json:"items"`
	// NextCursor is the cursor of the next page; nil after the last page.
	NextCursor *string `json:"nextCursor"`
}

// Paging selects a page.
type Paging struct {
	// Cursor is the NextCursor of the previous page; empty for the first page.
	Cursor string
	// Limit is the greatest number of items, 1 to 100; 0 means 50.
	Limit int
}

// add adds the parameters of a page to a query.
func (p Paging) add(to url.Values) {
	if p.Cursor != "" {
		to.Set("cursor", p.Cursor)
	}
	if p.Limit != 0 {
		to.Set("limit", strconv.Itoa(p.Limit))
	}
}

// Collection is a list that the server returns in pages. Its methods send the requests.
type Collection[Item any] struct {
	client *Client
	path   string
	query  url.Values
}

// Page requests one page.
func (l Collection[Item]) Page(ctx context.Context, p Paging) (Page[Item], error) {
	query := maps.Clone(l.query)
	if query == nil {
		query = url.Values{}
	}
	p.add(query)
	return call[Page[Item]](ctx, l.client, request{method: http.MethodGet, path: l.path, query: query})
}

// errRepeatedCursor ends an iteration that would never end.
var errRepeatedCursor = errors.New("client: the server returned the cursor of the requested page as that of the next page")

// maxPageLimit is the greatest Limit of the API.
const maxPageLimit = 100

// All iterates over all items and requests pages as needed. If a request fails, the last value that it yields is the error.
func (l Collection[Item]) All(ctx context.Context) iter.Seq2[Item, error] { return l.From(ctx, "") }

// From iterates like All, but begins after a cursor.
func (l Collection[Item]) From(ctx context.Context, cursor string) iter.Seq2[Item, error] {
	var none Item
	return func(yield func(Item, error) bool) {
		for at := cursor; ; {
			page, err := l.Page(ctx, Paging{Cursor: at, Limit: maxPageLimit})
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == nil {
				return
			}
			if *page.NextCursor == at {
				yield(none, errRepeatedCursor)
				return
			}
			at = *page.NextCursor
		}
	}
}
