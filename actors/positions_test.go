package actors

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// An interleaving is the activity of one workspace without its actor: the test chooses what happens between any two steps of a
// command and of a query. A command is decided, becomes durable, and is then acknowledged.
type interleaving struct {
	*rapid.T
	// kinds are the kinds of operations.
	kinds   []activityv1.Kind
	journal *persistence.Store
	epoch   uint64
	machine *activityMachine
	stream  persistence.Stream
	now     time.Time
	// decided is the version of the stream with all decisions.
	decided uint64
	// proposed has the decisions that are not durable, durable has the durable decisions that are not acknowledged, oldest first.
	proposed, durable []decision
	// rows are all durable rows.
	rows []activity.Row
}

var interleavedPaths = []string{"a", "a/b", "a/b/c", "ab"}

// step does the next step of one command, if there is one, or begins a command.
func (i *interleaving) step() {
	i.now = i.now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 700_000}).Draw(i.T, "pause")) * time.Millisecond)
	switch rapid.SampledFrom([]string{"record", "append", "append", "acknowledge", "acknowledge", "index"}).Draw(i.T, "step") {
	case "record":
		i.decide(&activityv1.Record{Operations: rapid.SliceOfN(rapid.Custom(i.drawOperation), 1, 3).Draw(i.T, "operations")})
	case "index":
		i.decide(&activityv1.WriteIndexes{})
	case "append":
		if len(i.proposed) > 0 {
			i.append(i.proposed[0])
			i.proposed = i.proposed[1:]
		}
	case "acknowledge":
		if len(i.durable) > 0 {
			i.machine.committed(i.durable[0])
			i.durable = i.durable[1:]
		}
	}
}

// meanwhile does any number of steps.
func (i *interleaving) meanwhile() {
	for range rapid.IntRange(0, 6).Draw(i.T, "steps") {
		i.step()
	}
}

func (i *interleaving) drawOperation(t *rapid.T) *activityv1.Operation {
	path := rapid.SampledFrom(interleavedPaths)
	op := &activityv1.Operation{
		Kind:   rapid.SampledFrom(i.kinds).Draw(t, "kind"),
		Author: &activityv1.Author{Actor: rapid.SampledFrom([]string{"api-key:1", "web:usr_1", "mirror:m"}).Draw(t, "actor")},
	}
	if op.GetKind() != activityv1.Kind_KIND_RESTORE {
		op.Path = path.Draw(t, "path")
	}
	switch op.GetKind() {
	case activityv1.Kind_KIND_RENAME:
		op.FromPath = path.Draw(t, "from")
		fallthrough
	case activityv1.Kind_KIND_CREATE:
		op.EntryKind = activityv1.EntryKind_ENTRY_KIND_FILE
	}
	return op
}

func (i *interleaving) decide(c activityv1.Command) {
	d, err := i.machine.decide(entity.Call{Now: i.now, Principal: entity.Platform()}, c, func() error { return nil })
	if err != nil {
		i.Fatal(err)
	}
	i.proposed = append(i.proposed, d)
}

func (i *interleaving) append(d decision) {
	i.durable = append(i.durable, d)
	if d.empty() {
		return
	}
	done := make(chan error, 1)
	i.journal.Append(persistence.Proposal{
		Stream: i.stream, Epoch: i.epoch, Expected: i.decided, Events: d.events, Entries: d.changes,
	}, func(r persistence.Result) { done <- r.Err })
	if err := <-done; err != nil {
		i.Fatal(err)
	}
	i.decided += uint64(len(d.events))
	i.rows = append(i.rows, d.note.(*activity.Decision).Rows...)
}

// query answers a query as an actor does, with other steps before the view is opened and before it is read. It returns the last
// row of the view, too.
func (i *interleaving) query(q activityv1.Query) (reply proto.Message, head uint64) {
	recent := i.machine.recent(q, rapid.Bool().Draw(i.T, "loaded"))
	i.meanwhile()
	v, err := i.journal.View()
	if err != nil {
		i.Fatal(err)
	}
	defer v.Close()
	i.meanwhile()
	if head, err = v.Head(0, i.stream); err != nil {
		i.Fatal(err)
	}
	reply, err = i.machine.query(source{view: v, stream: i.stream, identity: i.machine.workspaceID, recent: recent}, q)
	if err != nil {
		i.Fatalf("%v: %v", q, err)
	}
	return reply, head
}

// A reading is a client that reads pages of rows. It asks for the rows after start, or before it if descending.
type reading struct {
	path                         string
	subtree, history, descending bool
	reads                        bool
	start, position              uint64
	// received are the seqs of its rows, and hasEnded is set after the last page in descending order.
	received []uint64
	hasEnded bool
}

func (r *reading) next(i *interleaving) {
	limit := int32(rapid.IntRange(1, 4).Draw(i.T, "limit"))
	var q activityv1.Query = &activityv1.ReadFeed{
		Position: r.position, Limit: limit, Reads: r.reads, Path: r.path, Subtree: r.subtree, Descending: r.descending,
	}
	if r.history {
		q = &activityv1.ReadHistory{Path: r.path, After: r.position, Limit: limit, Reads: r.reads}
	}
	reply, head := i.query(q)
	page := reply.(*activityv1.Page)
	for part := range strings.SplitSeq(string(page.GetItems()), `{"seq":`) {
		var seq uint64
		if _, err := fmt.Sscan(part, &seq); err == nil {
			r.received = append(r.received, seq)
		}
	}
	if r.descending {
		if r.start == 0 {
			r.start = head + 1
		}
		r.position, r.hasEnded = page.GetNext(), page.GetNext() == 0
		return
	}
	if next := max(page.GetNext(), page.GetResume()); next < r.position {
		i.Fatalf("the position %d is followed by %d", r.position, next)
	} else {
		r.position = next
	}
}

// check compares the rows that the client has with those between its start and its position.
func (r *reading) check(i *interleaving) {
	var want []uint64
	for _, row := range i.rows {
		inRange := row.Seq > r.start && row.Seq <= r.position
		if r.descending {
			inRange = row.Seq < r.start && row.Seq >= r.position
		}
		if inRange && r.selects(row) {
			want = append(want, row.Seq)
		}
	}
	if r.descending {
		slices.Reverse(want)
	}
	if !slices.Equal(r.received, want) {
		i.Fatalf("%+v: the rows from %d to %d are %v", *r, r.start, r.position, want)
	}
}

func (r *reading) selects(row activity.Row) bool {
	kind := row.Operation.GetKind()
	switch {
	case kind == activityv1.Kind_KIND_READ && !r.reads:
		return false
	case r.path == "":
		return true
	case kind == activityv1.Kind_KIND_RESTORE:
		return !r.history
	}
	return row.On(r.path) || r.subtree && row.Below(r.path)
}

// newReadings returns a client for each kind of page.
func newReadings() []*reading {
	var all []*reading
	for _, reads := range []bool{false, true} {
		all = append(all, &reading{path: "a", history: true, reads: reads})
		for _, descending := range []bool{false, true} {
			all = append(all,
				&reading{reads: reads, descending: descending},
				&reading{path: "a/b", reads: reads, descending: descending},
				&reading{path: "a", subtree: true, reads: reads, descending: descending})
		}
	}
	return all
}

// checkInterleavings checks a property with random interleavings, each of a workspace of its own.
func checkInterleavings(t *testing.T, property func(*interleaving)) {
	journal, epoch := openInterleaved(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		property(newInterleaving(t, journal, epoch, fmt.Sprint("ws_", runs)))
	})
}

// TestNoPositionPassesARow reads pages of every kind while rows become durable between any two steps of a query and between the
// pages. A client has each row up to its position exactly once.
func TestNoPositionPassesARow(t *testing.T) {
	checkInterleavings(t, func(i *interleaving) {
		i.kinds = append(i.kinds, activityv1.Kind_KIND_READ)
		readings := newReadings()
		for range 24 {
			i.meanwhile()
			r := rapid.SampledFrom(readings).Draw(i.T, "client")
			if begin := rapid.IntRange(0, 9).Draw(i.T, "begin"); r.hasEnded || begin == 0 {
				// Positions of one kind of page are valid for every other.
				from := rapid.SampledFrom(readings).Draw(i.T, "position").position
				r.start, r.position, r.received, r.hasEnded = from, from, nil, false
			}
			r.next(i)
			r.check(i)
		}
	})
}

// TestViewOfActivityIsComplete compares the answers about paths with all rows of their views, while rows become durable between
// the steps of a query.
func TestViewOfActivityIsComplete(t *testing.T) {
	checkInterleavings(t, func(i *interleaving) {
		for range 6 {
			i.meanwhile()
			i.checkWriters(rapid.SampledFrom(interleavedPaths).Draw(i.T, "path"))
			i.checkNames(rapid.SampledFrom(interleavedPaths).Draw(i.T, "path"))
			i.walkAuthors(rapid.SampledFrom(interleavedPaths).Draw(i.T, "path"))
		}
	})
}

// written returns the rows up to a seq that count as writes of a path.
func (i *interleaving) written(path string, upTo uint64) []activity.Row {
	return slices.DeleteFunc(slices.Clone(i.rows), func(row activity.Row) bool {
		return row.Seq > upTo || row.Operation.GetPath() != path || row.Writer() == nil
	})
}

func (i *interleaving) checkWriters(path string) {
	dir, name := activity.Dir(path), activity.Name(path)
	reply, head := i.query(&activityv1.ReadLatestWriters{Dir: dir, Names: []string{name}})
	got, want := reply.(*activityv1.LatestWriters).GetWriters(), i.written(path, head)
	if len(got) != min(len(want), 1) || len(got) == 1 && !proto.Equal(got[0], want[len(want)-1].Writer()) {
		i.Fatalf("the last of the writes %v of %s is %v", want, path, got)
	}
}

// checkNames reads all pages of the names in the folder of a path, each after the last name of the page before. A name that
// was written before the first page is on one of them.
func (i *interleaving) checkNames(path string) {
	var names []string
	first, q := uint64(0), &activityv1.ReadNames{Dir: activity.Dir(path), Limit: 1}
	for ; ; i.meanwhile() {
		reply, head := i.query(q)
		if q.After == "" {
			first = head
		}
		page := reply.(*activityv1.Names).GetNames()
		if len(page) == 0 {
			break
		}
		names, q.After = append(names, page...), page[len(page)-1]
	}
	name := activity.Name(path)
	if len(i.written(path, first)) > 0 && !slices.Contains(names, name) || len(i.written(path, i.decided)) == 0 && slices.Contains(names, name) {
		i.Fatalf("%s is written by %v, listed are %v", path, i.written(path, i.decided), names)
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) < len(names) {
		i.Fatalf("the names are %v", names)
	}
}

// walkAuthors reads all pages of the authors of a path. Each author who does nothing meanwhile is on one of them, with all of the
// author's writes.
func (i *interleaving) walkAuthors(path string) {
	found, first := map[string][]uint64{}, uint64(0)
	for q := (&activityv1.ReadSeenBy{Path: path, Limit: 1}); ; i.meanwhile() {
		reply, head := i.query(q)
		if first == 0 {
			first = head
		}
		page := reply.(*activityv1.SeenBy)
		for _, r := range page.GetReaders() {
			actor := r.GetAuthor().GetActor()
			found[actor] = append(found[actor], r.GetWriteCount())
		}
		if q.After = page.GetNext(); len(q.After) == 0 {
			break
		}
	}
	counts, active := map[string]uint64{}, map[string]bool{}
	for _, row := range i.rows {
		if actor := row.Operation.GetAuthor().GetActor(); row.Operation.GetPath() == path && row.Counts() {
			active[actor] = active[actor] || row.Seq > first
			if row.Writer() != nil {
				counts[actor]++
			}
		}
	}
	for actor, n := range counts {
		if !active[actor] && !slices.Equal(found[actor], []uint64{n}) {
			i.Fatalf("%s has written %s %d times: %v", actor, path, n, found[actor])
		}
	}
}

func openInterleaved(t *testing.T) (*persistence.Store, uint64) {
	journal, err := persistence.Open(persistence.Options{
		Dir: "journal", Partitions: 1, FS: vfs.NewMem(), CacheBytes: 8 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = journal.Close() })
	epochs := make(chan uint64, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	journal.Watch(ctx, func(n persistence.Notice) {
		select {
		case epochs <- n.Epoch:
		default:
		}
	})
	return journal, <-epochs
}

func newInterleaving(t *rapid.T, journal *persistence.Store, epoch uint64, workspaceID string) *interleaving {
	i := &interleaving{
		T: t, journal: journal, epoch: epoch, stream: persistence.Stream("activity/" + workspaceID), now: time.UnixMilli(1_700_000_000_000),
		kinds:   []activityv1.Kind{activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_RENAME, activityv1.Kind_KIND_RESTORE},
		machine: newActivityMachine(journal, []byte("0123456789abcdef0123456789abcdef"), workspaceID),
	}
	v, err := journal.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, _, err := i.machine.load(v, 0, i.stream); err != nil {
		t.Fatal(err)
	}
	return i
}
