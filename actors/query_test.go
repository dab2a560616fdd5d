package actors_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A modelRow is a row of the model, which has all rows in a slice.
type modelRow struct {
	seq uint64
	op  *activityv1.Operation
}

func (k modelRow) at(path string) bool { return k.op.GetPath() == path || k.op.GetFromPath() == path }

func (k modelRow) below(path string) bool {
	return strings.HasPrefix(k.op.GetPath(), path+"/") || strings.HasPrefix(k.op.GetFromPath(), path+"/")
}

func (k modelRow) selected(q *activityv1.ReadFeed) bool {
	switch {
	case !q.GetReads() && k.op.GetKind() == activityv1.Kind_KIND_READ:
		return false
	case q.GetPath() == "", k.op.GetKind() == activityv1.Kind_KIND_RESTORE:
		return true
	}
	return k.at(q.GetPath()) || q.GetSubtree() && k.below(q.GetPath())
}

func drawOperation(t *rapid.T) *activityv1.Operation {
	path := rapid.SampledFrom([]string{"a", "a/b", "a/b/c", "a/b/c/d", "a/e", "ab", "f"})
	op := operation(rapid.SampledFrom([]activityv1.Kind{
		activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_DELETE,
		activityv1.Kind_KIND_RENAME, activityv1.Kind_KIND_READ, activityv1.Kind_KIND_RESTORE,
	}).Draw(t, "kind"), path.Draw(t, "path"))
	op.Author = &activityv1.Author{Actor: rapid.SampledFrom([]string{"api-key:1", "web:usr_1", "mirror:m"}).Draw(t, "actor")}
	switch op.GetKind() {
	case activityv1.Kind_KIND_RENAME:
		op.FromPath = path.Draw(t, "from")
	case activityv1.Kind_KIND_RESTORE:
		op.Path, op.EntryKind = "", 0
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_READ:
		op.EntryKind = 0
	}
	return op
}

// TestPagesMatchModel reads the feed with every kind of query and compares the rows with a filter over all rows.
func TestPagesMatchModel(t *testing.T) {
	b := newBench(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		id := fmt.Sprintf("ws_%d", n)
		b.createWorkspace(id, "usr_1")
		rows := b.fill(rt, id, rapid.SliceOfN(rapid.Custom(drawOperation), 0, 60).Draw(rt, "operations"))
		b.compareAuthors(rt, id)
		for _, path := range []string{"", "a", "a/b", "a/b/c", "ab", "none"} {
			for bits := range 8 {
				q := &activityv1.ReadFeed{Path: path, Subtree: bits&1 > 0 && path != "", Reads: bits&2 > 0, Descending: bits&4 > 0, Limit: 7}
				compare(rt, rows, q, b.readAll(rt, id, q))
			}
		}
	})
}

// fill records operations one by one and returns the rows that follow. From time to time index entries are written, or the
// system is restarted.
func (b *bench) fill(t *rapid.T, id string, ops []*activityv1.Operation) []modelRow {
	var rows []modelRow
	b.dumb = modelAuthors{}
	for _, op := range ops {
		b.clock.Advance(time.Duration(rapid.SampledFrom([]int{0, 1, 1000, 400_000}).Draw(t, "pause")) * time.Millisecond)
		switch rapid.IntRange(0, 19).Draw(t, "meanwhile") {
		case 0, 1:
			b.writeIndexes(id)
		case 2:
			b.restart()
		}
		head := b.mustAsk(record(id, op)).(*activityv1.Recorded).GetSeq()
		if uint64(len(rows)) < head {
			rows = append(rows, modelRow{head, op})
		}
		b.dumb.count(op, b.clock.Now().UnixMilli())
	}
	return rows
}

func (b *bench) writeIndexes(id string) {
	b.t.Helper()
	b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: id, Principal: entity.Platform(), Message: &activityv1.WriteIndexes{}})
}

// modelAuthors has the readers and writers of each path, counted one by one, and the last writer.
type modelAuthors map[string]*dumbPath

type dumbPath struct {
	readers map[string]*activityv1.Reader
	writer  string
}

func (d modelAuthors) count(op *activityv1.Operation, at int64) {
	reads := op.GetKind() == activityv1.Kind_KIND_READ
	if !reads && op.GetKind() != activityv1.Kind_KIND_WRITE && op.GetKind() != activityv1.Kind_KIND_CREATE && op.GetKind() != activityv1.Kind_KIND_RENAME {
		return
	}
	if d[op.GetPath()] == nil {
		d[op.GetPath()] = &dumbPath{readers: map[string]*activityv1.Reader{}}
	}
	path, actor := d[op.GetPath()], op.GetAuthor().GetActor()
	if path.readers[actor] == nil {
		path.readers[actor] = &activityv1.Reader{Author: op.GetAuthor(), FirstAt: at}
	}
	r := path.readers[actor]
	r.LastAt = at
	if reads {
		r.ReadCount++
		return
	}
	r.WriteCount++
	r.LastWriteAt = at
	path.writer = actor
}

// order returns the readers of a path, the most recently active first.
func (d modelAuthors) order(path string) []*activityv1.Reader {
	if d[path] == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(d[path].readers), func(x, y *activityv1.Reader) int {
		return cmp.Or(cmp.Compare(y.GetLastAt(), x.GetLastAt()), strings.Compare(x.GetAuthor().GetActor(), y.GetAuthor().GetActor()))
	})
}

// compareAuthors compares the seen-by pages and the latest writer of every path with the model.
func (b *bench) compareAuthors(t *rapid.T, id string) {
	ask := func(m activityv1.Query) proto.Message {
		return b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: id, Principal: person("usr_1"), Message: m})
	}
	for path, dumb := range b.dumb {
		for _, limit := range []int32{1, 2, 100} {
			var found []*activityv1.Reader
			q := &activityv1.ReadSeenBy{Path: path, Limit: limit}
			for more := true; more; more = len(q.After) > 0 {
				page := ask(q).(*activityv1.SeenBy)
				found = append(found, page.GetReaders()...)
				q.After = page.GetNext()
			}
			want := b.dumb.order(path)
			if !slices.EqualFunc(found, want, func(x, y *activityv1.Reader) bool { return proto.Equal(x, y) }) {
				t.Fatalf("%s was seen by %v, not %v", path, found, want)
			}
		}
		dir, name := activity.Dir(path), activity.Name(path)
		writers := ask(&activityv1.ReadLatestWriters{Dir: dir, Names: []string{name}}).(*activityv1.LatestWriters).GetWriters()
		if dumb.writer == "" && len(writers) > 0 || dumb.writer != "" && (len(writers) != 1 || writers[0].GetAuthor().GetActor() != dumb.writer) {
			t.Fatalf("%s was written by %v, not %q", path, writers, dumb.writer)
		}
	}
}

// readAll returns the seqs of all pages of a query.
func (b *bench) readAll(t *rapid.T, id string, q *activityv1.ReadFeed) []string {
	var found []string
	for range 100 {
		m, err := b.ask(entity.Command{Kind: entity.KindActivity, Identity: id, Principal: person("usr_1"), Message: q})
		if err != nil {
			t.Fatal(err)
		}
		page := m.(*activityv1.Page)
		for row := range strings.SplitSeq(string(page.GetItems()), `{"seq":`) {
			if seq, _, ok := strings.Cut(row, `,"event"`); ok {
				found = append(found, seq)
			}
		}
		if page.GetNext() == 0 {
			return found
		}
		q.Position = page.GetNext()
	}
	t.Fatalf("the pages of %v do not end", q)
	return nil
}

func compare(t *rapid.T, rows []modelRow, q *activityv1.ReadFeed, found []string) {
	var want []string
	for _, row := range rows {
		if row.selected(q) {
			want = append(want, fmt.Sprint(row.seq))
		}
	}
	if q.GetDescending() {
		slices.Reverse(want)
	}
	if !slices.Equal(found, want) {
		t.Fatalf("%v gives %v, not %v", q, found, want)
	}
}

func (b *bench) query(m activityv1.Query) any {
	b.t.Helper()
	return b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: "ws_1", Principal: person("usr_1"), Message: m})
}

func TestSeenByCountsEveryRead(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "a")))
	other := operation(activityv1.Kind_KIND_READ, "a")
	other.Author = &activityv1.Author{Actor: "web:usr_2", UserId: "usr_2"}
	b.mustAsk(record("ws_1", other))
	b.clock.Advance(time.Millisecond)
	for range 5 {
		b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_READ, "a")))
	}
	b.restart()
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_READ, "a")))
	seen := b.query(&activityv1.ReadSeenBy{Path: "a", Limit: 1}).(*activityv1.SeenBy)
	if got := seen.GetReaders()[0]; got.GetReadCount() != 6 || got.GetWriteCount() != 1 || got.GetAuthor().GetActor() != "api-key:key_1" {
		t.Errorf("the most recent is %v", got)
	}
	next := b.query(&activityv1.ReadSeenBy{Path: "a", Limit: 1, After: seen.GetNext()}).(*activityv1.SeenBy)
	if got := next.GetReaders()[0]; got.GetReadCount() != 1 || got.GetAuthor().GetUserId() != "usr_2" {
		t.Errorf("the next is %v", got)
	}
	if len(next.GetNext()) > 0 && len(b.query(&activityv1.ReadSeenBy{Path: "a", Limit: 1, After: next.GetNext()}).(*activityv1.SeenBy).GetReaders()) != 0 {
		t.Error("there is a third")
	}
	history := b.query(&activityv1.ReadHistory{Path: "a", Limit: 100, Reads: true}).(*activityv1.Page)
	if got := strings.Count(string(history.GetItems()), `"kind":"read"`); got != 2 {
		t.Errorf("%d markers", got)
	}
	b.clock.Advance(activity.MarkerWindow)
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_READ, "a")))
	history = b.query(&activityv1.ReadHistory{Path: "a", Limit: 100, Reads: true}).(*activityv1.Page)
	if got := strings.Count(string(history.GetItems()), `"kind":"read"`); got != 3 {
		t.Errorf("%d markers after the window", got)
	}
}

func TestFoldedOperationsSurviveRestart(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	op := operation(activityv1.Kind_KIND_WRITE, "app/node_modules/x/index.js")
	op.Tree = "app/node_modules"
	for range 5 {
		b.mustAsk(record("ws_1", op))
	}
	if head := b.mustAsk(record("ws_1")).(*activityv1.Recorded).GetSeq(); head != 0 {
		t.Fatalf("a folded operation is row %d", head)
	}
	b.restart()
	b.clock.Advance(activity.FoldWindow)
	f := b.follow(t, "ws_1", 0, false)
	f.wait(1)
	got := b.feed("ws_1", &activityv1.ReadFeed{})
	want := fmt.Sprintf(`{"seq":1,"event":{"kind":"changed-summary","actor":"api-key:key_1","at":%d,"userId":"usr_1","entryKind":"folder","path":"app/node_modules","count":5}}`,
		b.clock.Now().Add(-activity.FoldWindow).UnixMilli())
	if got != want {
		t.Errorf("the feed is %s, not %s", got, want)
	}
	if strings.Contains(got, "index.js") {
		t.Error("a summary reveals what lies below its tree")
	}
}

func TestLatestWriters(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	rename := operation(activityv1.Kind_KIND_RENAME, "d/c")
	rename.FromPath = "d/a"
	rename.Author = &activityv1.Author{Actor: "web:usr_2", UserId: "usr_2"}
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_CREATE, "d/a"), operation(activityv1.Kind_KIND_READ, "d/b"), rename))
	got := b.query(&activityv1.ReadLatestWriters{Dir: "d", Names: []string{"a", "b", "c"}}).(*activityv1.LatestWriters).GetWriters()
	if len(got) != 2 || got[0].GetPath() != "d/a" || got[1].GetAuthor().GetActor() != "web:usr_2" {
		t.Errorf("the writers are %v", got)
	}
}

func TestReadNames(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	create := activityv1.Kind_KIND_CREATE
	b.mustAsk(record("ws_1", operation(create, "d/a"), operation(create, "d/b"), operation(create, "d/c/x"), operation(create, "d2/y"), operation(create, "d/c")))
	ask := func(m activityv1.Query) proto.Message {
		return b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: "ws_1", Principal: entity.Platform(), Message: m})
	}
	read := func(after string, limit int32) []string {
		return ask(&activityv1.ReadNames{Dir: "d", After: after, Limit: limit}).(*activityv1.Names).GetNames()
	}
	if got, want := read("", 2), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the first page is %q, want %q", got, want)
	}
	if got, want := read("b", 2), []string{"c"}; !slices.Equal(got, want) {
		t.Errorf("the second page is %q, want %q", got, want)
	}
	if got := read("c", 2); len(got) != 0 {
		t.Errorf("the last page is %q", got)
	}
	last := ask(&activityv1.ReadFeed{Path: "d/a", Limit: 1, Descending: true}).(*activityv1.Page)
	if len(last.GetItems()) == 0 {
		t.Error("the platform cannot read the last row of a path")
	}
}

func TestIntentIsCompletedOnce(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	send := func(m activityv1.Command) uint64 {
		return b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: "ws_1", Principal: entity.Platform(), Message: m}).(*activityv1.Recorded).GetSeq()
	}
	send(&activityv1.Intend{Intent: &activityv1.Intent{Id: "i1", Operation: operation(activityv1.Kind_KIND_CREATE, "a")}})
	send(&activityv1.Intend{Intent: &activityv1.Intent{Id: "i2", Operation: operation(activityv1.Kind_KIND_CREATE, "b")}})
	b.restart()
	found, err := b.system.IndexOwners(b.router.Partition("ws_1"), activity.OpenIntents, "", 10)
	if err != nil || !slices.Equal(found, []string{"ws_1"}) {
		t.Errorf("open intents are in %v, %v", found, err)
	}
	m := b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: "ws_1", Principal: entity.Platform(), Message: &activityv1.ListIntents{}})
	if got := len(m.(*activityv1.Intents).GetIntents()); got != 2 {
		t.Errorf("%d intents", got)
	}
	send(&activityv1.Abandon{IntentId: "i2"})
	for range 2 {
		if got := send(&activityv1.Complete{IntentId: "i1"}); got != 1 {
			t.Errorf("completed at %d", got)
		}
	}
	if got := send(&activityv1.Complete{IntentId: "i2"}); got != 1 {
		t.Errorf("an abandoned intent is completed at %d", got)
	}
	if found, _ := b.system.IndexOwners(b.router.Partition("ws_1"), activity.OpenIntents, "", 10); len(found) != 0 {
		t.Errorf("open intents are left in %v", found)
	}
}
