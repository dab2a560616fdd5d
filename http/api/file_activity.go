package api

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/http/server"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// fileActivity serves a workspace's file activity: the sequence of all reads and changes of its files.
type fileActivity struct{ streams Streams }

func (f fileActivity) routes() []server.Route {
	const activityPath = server.WorkspacePath + "/file-activity"
	return []server.Route{
		{Method: http.MethodGet, Path: activityPath + "/feed", Scope: server.ScopeReadFiles, Summary: "List the workspace's file activity",
			Handler: server.Answer(http.StatusOK, decodeFeed, f.feed)},
		{Method: http.MethodGet, Path: activityPath + "/events", Scope: server.ScopeReadFiles, Summary: "Follow the workspace's file activity",
			Handler: f.stream, Timing: server.Streaming},
		{Method: http.MethodGet, Path: activityPath, Scope: server.ScopeReadFiles, Summary: "List the activity of one file",
			Handler: server.Answer(http.StatusOK, decodeHistory, f.history)},
		{Method: http.MethodGet, Path: activityPath + "/seen-by", Scope: server.ScopeReadFiles, Summary: "List the readers and writers of one file",
			Handler: server.Answer(http.StatusOK, decodeSeenBy, f.seenBy)},
		{Method: http.MethodGet, Path: activityPath + "/latest-writers", Scope: server.ScopeReadFiles, Summary: "List the last writers of entries of one folder",
			Handler: server.Answer(http.StatusOK, decodeLatestWriters, f.latestWriters)},
	}
}

// maxWriterPaths bounds the number of entries in a request for latest writers.
const maxWriterPaths = 500

// writerBytes is about the size of a latest writer as JSON, without the folder.
const writerBytes = 300

func decodeHistory(c *server.Call) (*activityv1.ReadHistory, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "path", "cursor", "limit", "reads")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadHistory{Path: q.Path("path"), Limit: q.Limit(), Reads: q.Flag("reads", true)}
	decodePosition(q, c, &in.After)
	return in, q.Err
}

func decodeFeed(c *server.Call) (*activityv1.ReadFeed, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "cursor", "limit", "reads", "order", "path", "scope")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadFeed{
		Limit:      q.Limit(),
		Reads:      q.Flag("reads", false),
		Descending: q.Choice("order", "asc", "desc") == "desc",
		Subtree:    q.Choice("scope", "exact", "subtree") == "subtree",
	}
	if q.Has("path") {
		in.Path = q.Path("path")
	} else if q.Has("scope") {
		q.Fail(server.Invalid("scope needs a path"))
	}
	decodePosition(q, c, &in.Position)
	return in, q.Err
}

// decodePosition decodes the cursor, a position in the workspace's sequence, into at.
func decodePosition(q *server.Query, c *server.Call, at *uint64) {
	q.Cursor(func(cursor string) (err error) {
		*at, err = c.Workspace.Cursor.Position(cursor)
		return err
	})
}

func (f fileActivity) history(c *server.Call, in *activityv1.ReadHistory) (server.RawJSON, error) {
	return readPage(c, in)
}

func (f fileActivity) feed(c *server.Call, in *activityv1.ReadFeed) (server.RawJSON, error) {
	return readPage(c, in)
}

var (
	pageStart   = []byte(`{"items":[`)
	pageMore    = []byte(`],"nextCursor":"`)
	pageMoreEnd = []byte(`"}`)
	pageEnd     = []byte(`],"nextCursor":null}`)
)

// readPage asks for a page of rows and sends them as they are stored, without decoding them.
func readPage(c *server.Call, query proto.Message) (server.RawJSON, error) {
	page, err := server.Ask[*activityv1.Page](c, activityQuery(c, query))
	switch {
	case err != nil:
		return nil, err
	case page.GetNext() == 0:
		linkToNewer(c, query, page)
		return server.RawJSON{pageStart, page.GetItems(), pageEnd}, nil
	}
	next := c.Workspace.Cursor.Append(nil, page.GetNext())
	return server.RawJSON{pageStart, page.GetItems(), pageMore, next, pageMoreEnd}, nil
}

// linkToNewer adds a Link header with rel="next" to the last page in ascending order: the same request with a cursor after the
// newest row. A polling client follows it to get the rows that are recorded later.
func linkToNewer(c *server.Call, query proto.Message, page *activityv1.Page) {
	if feed, is := query.(*activityv1.ReadFeed); is && feed.GetDescending() {
		return
	}
	parameters := c.Request.URL.Query()
	parameters.Set("cursor", string(c.Workspace.Cursor.Append(nil, page.GetResume())))
	c.Response.Header()["Link"] = []string{"<" + c.Request.URL.EscapedPath() + "?" + parameters.Encode() + `>; rel="next"`}
}

// activityQuery returns a query to the activity of the workspace in the path.
func activityQuery(c *server.Call, query proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindActivity, Identity: c.Workspace.ID, Message: query}
}

type readerView struct {
	Actor       string `json:"actor"`
	UserID      string `json:"userId,omitzero"`
	FirstAt     int64  `json:"firstAt"`
	LastAt      int64  `json:"lastAt"`
	ReadCount   uint64 `json:"readCount"`
	WriteCount  uint64 `json:"writeCount"`
	LastWriteAt int64  `json:"lastWriteAt,omitzero"`
}

func decodeSeenBy(c *server.Call) (*activityv1.ReadSeenBy, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "path", "cursor", "limit")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadSeenBy{Path: q.Path("path"), Limit: q.Limit()}
	q.Cursor(func(cursor string) error {
		place, err := c.OpenCursor(cursor, seenByBinding(c, in))
		in.After = []byte(place)
		return err
	})
	return in, q.Err
}

// seenByBinding returns the binding of cursors for the readers of a file.
func seenByBinding(c *server.Call, in *activityv1.ReadSeenBy) []byte {
	return server.Binding("seen-by", c.Workspace.ID, in.GetPath())
}

func (f fileActivity) seenBy(c *server.Call, in *activityv1.ReadSeenBy) (server.Collection[readerView], error) {
	found, err := server.Ask[*activityv1.SeenBy](c, activityQuery(c, in))
	if err != nil {
		return server.Collection[readerView]{}, err
	}
	list := server.Collection[readerView]{Items: make([]readerView, len(found.GetReaders()))}
	for i, r := range found.GetReaders() {
		list.Items[i] = readerView{
			Actor: r.GetAuthor().GetActor(), UserID: r.GetAuthor().GetUserId(), FirstAt: r.GetFirstAt(),
			LastAt: r.GetLastAt(), ReadCount: r.GetReadCount(), WriteCount: r.GetWriteCount(),
			LastWriteAt: r.GetLastWriteAt(),
		}
	}
	if len(found.GetNext()) > 0 {
		next := c.SealCursor(string(found.GetNext()), seenByBinding(c, in))
		list.NextCursor = &next
	}
	return list, nil
}

type writersView struct {
	Writers []writerView `json:"writers"`
}

type writerView struct {
	Path        string `json:"path"`
	Actor       string `json:"actor"`
	UserID      string `json:"userId,omitzero"`
	LastWriteAt int64  `json:"lastWriteAt"`
}

func decodeLatestWriters(c *server.Call) (*activityv1.ReadLatestWriters, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "dir", "path*")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadLatestWriters{Dir: q.Text("dir")}
	if !q.Has("dir") {
		q.Fail(server.Invalid("dir is required"))
	} else if in.Dir != "" {
		q.Path("dir")
	}
	names := q.All("path")
	if len(names) < 1 || len(names) > maxWriterPaths {
		q.Fail(server.Invalid("path must be given 1 to %d times", maxWriterPaths))
		return in, q.Err
	}
	in.Names, err = entryNames(in.Dir, names)
	if err != nil {
		q.Fail(err)
	}
	return in, q.Err
}

// entryNames checks that each name names an entry of the folder, and removes duplicates. Errors: invalid_request.
func entryNames(dir string, names []string) ([]string, error) {
	if dir != "" {
		dir += "/"
	}
	seen := make(map[string]bool, len(names))
	unique := names[:0]
	for _, name := range names {
		if err := server.CheckPath("path", dir+name); err != nil {
			return nil, err
		}
		if !server.IsEntryName(name) {
			return nil, server.Invalid("path must be the name of one entry of dir")
		}
		if !seen[name] {
			seen[name] = true
			unique = append(unique, name)
		}
	}
	return unique, nil
}

func (f fileActivity) latestWriters(c *server.Call, in *activityv1.ReadLatestWriters) (writersView, error) {
	if err := c.ReserveAnswer(len(in.GetNames()) * (len(in.GetDir()) + writerBytes)); err != nil {
		return writersView{}, err
	}
	found, err := server.Ask[*activityv1.LatestWriters](c, activityQuery(c, in))
	if err != nil {
		return writersView{}, err
	}
	view := writersView{Writers: make([]writerView, len(found.GetWriters()))}
	for i, w := range found.GetWriters() {
		view.Writers[i] = writerView{w.GetPath(), w.GetAuthor().GetActor(), w.GetAuthor().GetUserId(), w.GetLastWriteAt()}
	}
	return view, nil
}

// stream sends the workspace's rows as server-sent events. Package server describes the whole flow.
func (f fileActivity) stream(c *server.Call) error {
	subscription, err := decodeStream(c)
	if err != nil {
		return c.Withhold(err)
	}
	return c.StreamTo(func(ctx context.Context, client server.StreamClient) (func(context.Context) error, error) {
		subscription.Send, subscription.TrySend = client.Send, client.TrySend
		return f.streams.Subscribe(ctx, subscription)
	})
}

// decodeStream decodes the position at which the stream begins. The header Last-Event-ID takes precedence over the cursor.
func decodeStream(c *server.Call) (activity.Subscription, error) {
	in := activity.Subscription{WorkspaceID: c.Workspace.ID, Principal: c.Caller.Principal}
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "cursor", "reads")
	if err != nil {
		return in, err
	}
	in.Reads = q.Flag("reads", false)
	last := c.Request.Header["Last-Event-Id"]
	switch {
	case len(last) > 1:
		q.Fail(server.ErrInvalidCursor)
	case len(last) == 1 && last[0] != "":
		if in.After, err = c.Workspace.Cursor.Position(last[0]); err != nil {
			q.Fail(err)
		}
	default:
		decodePosition(q, c, &in.After)
	}
	return in, q.Err
}
