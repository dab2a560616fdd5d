package http

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// maxWriterPaths bounds the entries of one latest-writers request.
const maxWriterPaths = 500

func decodeHistory(c *call) (*activityv1.ReadHistory, error) {
	q, err := parseQuery(c.r.URL.RawQuery, "path", "cursor", "limit", "reads")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadHistory{Path: q.path("path"), Limit: q.limit(), Reads: q.flag("reads", true)}
	q.position(c, &in.After)
	return in, q.err
}

func decodeFeed(c *call) (*activityv1.ReadFeed, error) {
	q, err := parseQuery(c.r.URL.RawQuery, "cursor", "limit", "reads", "order", "path", "scope")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadFeed{
		Limit:      q.limit(),
		Reads:      q.flag("reads", false),
		Descending: q.choice("order", "asc", "desc") == "desc",
		Subtree:    q.choice("scope", "exact", "subtree") == "subtree",
	}
	if q.has("path") {
		in.Path = q.path("path")
	} else if q.has("scope") {
		q.fail(invalid("scope needs a path"))
	}
	q.position(c, &in.Position)
	return in, q.err
}

// position is the place in the workspace's sequence that the cursor stands for.
func (q *query) position(c *call, at *uint64) {
	q.cursor(func(cursor string) (err error) {
		*at, err = c.workspace.cursor.Position(cursor)
		return err
	})
}

func (s *Server) readHistory(c *call, in *activityv1.ReadHistory) (verbatim, error) {
	return c.readPage(in)
}

func (s *Server) readFeed(c *call, in *activityv1.ReadFeed) (verbatim, error) { return c.readPage(in) }

var (
	pageStart   = []byte(`{"items":[`)
	pageMore    = []byte(`],"nextCursor":"`)
	pageMoreEnd = []byte(`"}`)
	pageEnd     = []byte(`],"nextCursor":null}`)
)

// readPage sends the rows as they are stored.
func (c *call) readPage(query proto.Message) (verbatim, error) {
	page, err := ask[*activityv1.Page](c, c.ofActivity(query))
	switch {
	case err != nil:
		return nil, err
	case page.GetNext() == 0:
		return verbatim{pageStart, page.GetItems(), pageEnd}, nil
	}
	next := c.workspace.cursor.Append(nil, page.GetNext())
	return verbatim{pageStart, page.GetItems(), pageMore, next, pageMoreEnd}, nil
}

func (c *call) ofActivity(query proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindActivity, Identity: c.workspace.id, Message: query}
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

func (s *Server) decodeSeenBy(c *call) (*activityv1.ReadSeenBy, error) {
	q, err := parseQuery(c.r.URL.RawQuery, "path", "cursor", "limit")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadSeenBy{Path: q.path("path"), Limit: q.limit()}
	q.cursor(func(cursor string) error {
		place, err := s.cursors.place(cursor, seenByWalk(c, in))
		in.After = []byte(place)
		return err
	})
	return in, q.err
}

func seenByWalk(c *call, in *activityv1.ReadSeenBy) []byte {
	return walk("seen-by", c.workspace.id, in.GetPath())
}

func (s *Server) readSeenBy(c *call, in *activityv1.ReadSeenBy) (collection[readerView], error) {
	found, err := ask[*activityv1.SeenBy](c, c.ofActivity(in))
	if err != nil {
		return collection[readerView]{}, err
	}
	list := collection[readerView]{Items: make([]readerView, len(found.GetReaders()))}
	for i, r := range found.GetReaders() {
		list.Items[i] = readerView{
			Actor: r.GetAuthor().GetActor(), UserID: r.GetAuthor().GetUserId(), FirstAt: r.GetFirstAt(),
			LastAt: r.GetLastAt(), ReadCount: r.GetReadCount(), WriteCount: r.GetWriteCount(),
			LastWriteAt: r.GetLastWriteAt(),
		}
	}
	if len(found.GetNext()) > 0 {
		next := s.cursors.text(string(found.GetNext()), seenByWalk(c, in))
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

func decodeLatestWriters(c *call) (*activityv1.ReadLatestWriters, error) {
	q, err := parseQuery(c.r.URL.RawQuery, "dir", "path*")
	if err != nil {
		return nil, err
	}
	in := &activityv1.ReadLatestWriters{Dir: q.text("dir")}
	if !q.has("dir") {
		q.fail(invalid("dir is required"))
	} else if in.Dir != "" {
		q.path("dir")
	}
	names := q.all("path")
	if len(names) < 1 || len(names) > maxWriterPaths {
		q.fail(invalid("path must be given 1 to %d times", maxWriterPaths))
		return in, q.err
	}
	in.Names, err = entryNames(in.Dir, names)
	if err != nil {
		q.fail(err)
	}
	return in, q.err
}

// entryNames checks that each names an entry of the folder; one that comes again counts once.
func entryNames(dir string, names []string) ([]string, error) {
	if dir != "" {
		dir += "/"
	}
	seen := make(map[string]bool, len(names))
	unique := names[:0]
	for _, name := range names {
		if err := checkPath("path", dir+name); err != nil {
			return nil, err
		}
		if !entryName(name) {
			return nil, invalid("path must be the name of one entry of dir")
		}
		if !seen[name] {
			seen[name] = true
			unique = append(unique, name)
		}
	}
	return unique, nil
}

func (s *Server) readLatestWriters(c *call, in *activityv1.ReadLatestWriters) (writersView, error) {
	found, err := ask[*activityv1.LatestWriters](c, c.ofActivity(in))
	if err != nil {
		return writersView{}, err
	}
	view := writersView{Writers: make([]writerView, len(found.GetWriters()))}
	for i, w := range found.GetWriters() {
		view.Writers[i] = writerView{w.GetPath(), w.GetAuthor().GetActor(), w.GetAuthor().GetUserId(), w.GetLastWriteAt()}
	}
	return view, nil
}
