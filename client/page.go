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

// Page is a part of a collection. It may be short or empty while more follow.
type Page[Item any] struct {
	Items []Item `json:"items"`
	// NextCursor continues the walk; nil: this was the end.
	NextCursor *string `json:"nextCursor"`
}

// Paging says which page is asked for.
type Paging struct {
	// Cursor is a page's NextCursor; empty: the first page.
	Cursor string
	// Limit is from 1 to 100; 0: 50.
	Limit int
}

func (p Paging) add(to url.Values) {
	if p.Cursor != "" {
		to.Set("cursor", p.Cursor)
	}
	if p.Limit != 0 {
		to.Set("limit", strconv.Itoa(p.Limit))
	}
}

// Collection is something to be read page by page.
type Collection[Item any] struct {
	client *Client
	path   string
	query  url.Values
}

// Page reads one page.
func (l Collection[Item]) Page(ctx context.Context, p Paging) (Page[Item], error) {
	query := maps.Clone(l.query)
	if query == nil {
		query = url.Values{}
	}
	p.add(query)
	return call[Page[Item]](ctx, l.client, request{method: http.MethodGet, path: l.path, query: query})
}

// errStuck ends a walk that would not.
var errStuck = errors.New("client: the server's next page is the one that was asked for")

// longestPage is the API's.
const longestPage = 100

// All reads all there is, a page at a time. An error is the last thing that it yields.
func (l Collection[Item]) All(ctx context.Context) iter.Seq2[Item, error] { return l.From(ctx, "") }

// From does the same from a cursor on.
func (l Collection[Item]) From(ctx context.Context, cursor string) iter.Seq2[Item, error] {
	var none Item
	return func(yield func(Item, error) bool) {
		for at := cursor; ; {
			page, err := l.Page(ctx, Paging{Cursor: at, Limit: longestPage})
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
				yield(none, errStuck)
				return
			}
			at = *page.NextCursor
		}
	}
}
