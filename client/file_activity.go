package client

import (
	"context"
	"net/http"
	"net/url"
)

// Row is a file event with its position in the sequence of the workspace.
type Row struct {
	Seq   uint64    `json:"seq"`
	Event FileEvent `json:"event"`
}

// FileEvent is an operation on a path of the drive. Each kind sets some of the fields.
type FileEvent struct {
	// Kind is write, create, delete, rename, read, changed-summary, viewed-summary or restore.
	Kind string `json:"kind"`
	// Actor is a kind and an id, such as "api-key:key_…", or a kind alone, such as "system".
	Actor  string `json:"actor"`
	At     int64  `json:"at"`
	UserID string `json:"userId,omitempty"`
	// Path is the path of the operation. Of a rename, it is the new path, and FromPath is the old one.
	Path     string `json:"path,omitempty"`
	FromPath string `json:"fromPath,omitempty"`
	// EntryKind is file or folder.
	EntryKind string `json:"entryKind,omitempty"`
	Count     int    `json:"count,omitempty"`
}

const activityPath = "/file-activity"

// FeedQuery selects and orders the rows of a feed.
type FeedQuery struct {
	// Reads includes read markers.
	Reads bool
	// Newest orders the rows newest first.
	Newest bool
	// Path restricts the rows to one path, and with Subtree to a folder and all paths below it. Empty: all rows.
	Path    string
	Subtree bool
}

// Feed returns the rows of a workspace.
func (c *Client) Feed(slug string, q FeedQuery) Collection[Row] {
	query := url.Values{}
	if q.Reads {
		query.Set("reads", "1")
	}
	if q.Newest {
		query.Set("order", "desc")
	}
	if q.Path != "" {
		query.Set("path", q.Path)
	}
	if q.Subtree {
		query.Set("scope", "subtree")
	}
	return Collection[Row]{c, workspacePath(slug, activityPath+"/feed"), query}
}

// FileHistory returns the rows of one file, oldest first. reads includes read markers.
func (c *Client) FileHistory(slug, path string, reads bool) Collection[Row] {
	query := url.Values{"path": {path}}
	if !reads {
		query.Set("reads", "0")
	}
	return Collection[Row]{c, workspacePath(slug, activityPath), query}
}

// Reader is an author with the totals of the author's operations on a file.
type Reader struct {
	Actor       string `json:"actor"`
	UserID      string `json:"userId,omitempty"`
	FirstAt     int64  `json:"firstAt"`
	LastAt      int64  `json:"lastAt"`
	ReadCount   uint64 `json:"readCount"`
	WriteCount  uint64 `json:"writeCount"`
	LastWriteAt int64  `json:"lastWriteAt,omitempty"`
}

// SeenBy returns the authors that have read or written a file, the most recently active one first.
func (c *Client) SeenBy(slug, path string) Collection[Reader] {
	return Collection[Reader]{c, workspacePath(slug, activityPath+"/seen-by"), url.Values{"path": {path}}}
}

// Writer is the latest writer of a file or folder.
type Writer struct {
	Path        string `json:"path"`
	Actor       string `json:"actor"`
	UserID      string `json:"userId,omitempty"`
	LastWriteAt int64  `json:"lastWriteAt"`
}

type writersAnswer struct {
	Writers []Writer `json:"writers"`
}

// LatestWriters returns the latest writers of entries of a folder; "" is the root. names are the names of at most 500
// entries. The result omits entries that have no writer.
func (c *Client) LatestWriters(ctx context.Context, slug, dir string, names ...string) ([]Writer, error) {
	found, err := call[writersAnswer](ctx, c, request{
		method: http.MethodGet, path: workspacePath(slug, activityPath+"/latest-writers"),
		query: url.Values{"dir": {dir}, "path": names},
	})
	return found.Writers, err
}
