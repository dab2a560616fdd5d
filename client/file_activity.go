package client

import (
	"context"
	"net/http"
	"net/url"
)

// Row is an event of a workspace's files, at its place in the workspace's one sequence.
type Row struct {
	Seq   uint64    `json:"seq"`
	Event FileEvent `json:"event"`
}

// FileEvent is what somebody did to a path. Each kind has its choice of fields.
type FileEvent struct {
	// Kind is write, create, delete, rename, read, changed-summary, viewed-summary or restore.
	Kind string `json:"kind"`
	// Actor is a kind and an id, as "api-key:key_…", or a kind alone.
	Actor  string `json:"actor"`
	At     int64  `json:"at"`
	UserID string `json:"userId,omitempty"`
	// Path is, of a rename, the new one.
	Path     string `json:"path,omitempty"`
	FromPath string `json:"fromPath,omitempty"`
	// EntryKind is file or folder.
	EntryKind string `json:"entryKind,omitempty"`
	Count     int    `json:"count,omitempty"`
}

const activityPath = "/file-activity"

// FeedQuery chooses rows of a workspace's feed.
type FeedQuery struct {
	// Reads adds read markers.
	Reads bool
	// Newest begins with the newest.
	Newest bool
	// Path alone; with Subtree, the folder and everything below.
	Path    string
	Subtree bool
}

// Feed is a workspace's sequence.
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

// FileHistory is what happened to one file, oldest first, with or without read markers.
func (c *Client) FileHistory(slug, path string, reads bool) Collection[Row] {
	query := url.Values{"path": {path}}
	if !reads {
		query.Set("reads", "0")
	}
	return Collection[Row]{c, workspacePath(slug, activityPath), query}
}

// Reader is somebody who read or wrote a file, with totals.
type Reader struct {
	Actor       string `json:"actor"`
	UserID      string `json:"userId,omitempty"`
	FirstAt     int64  `json:"firstAt"`
	LastAt      int64  `json:"lastAt"`
	ReadCount   uint64 `json:"readCount"`
	WriteCount  uint64 `json:"writeCount"`
	LastWriteAt int64  `json:"lastWriteAt,omitempty"`
}

// SeenBy is who read and wrote one file, most recently active first.
func (c *Client) SeenBy(slug, path string) Collection[Reader] {
	return Collection[Reader]{c, workspacePath(slug, activityPath+"/seen-by"), url.Values{"path": {path}}}
}

// Writer is who wrote an entry last.
type Writer struct {
	Path        string `json:"path"`
	Actor       string `json:"actor"`
	UserID      string `json:"userId,omitempty"`
	LastWriteAt int64  `json:"lastWriteAt"`
}

type writersAnswer struct {
	Writers []Writer `json:"writers"`
}

// LatestWriters tells who wrote entries of one folder last; "" is the root. At most 500 names; what nobody wrote is left
// out.
func (c *Client) LatestWriters(ctx context.Context, slug, dir string, names ...string) ([]Writer, error) {
	found, err := call[writersAnswer](ctx, c, request{
		method: http.MethodGet, path: workspacePath(slug, activityPath+"/latest-writers"),
		query: url.Values{"dir": {dir}, "path": names},
	})
	return found.Writers, err
}
