package activity_test

import (
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestRecencyMovesOncePerSpan checks that repeated reads do not accumulate removed entries in the Recency index.
func TestRecencyMovesOncePerSpan(t *testing.T) {
	m := newModel()
	const reads = 10_000
	for range reads {
		m.now = m.now.Add(time.Second)
		m.record(t, &activityv1.Operation{Kind: activityv1.Kind_KIND_READ, Path: "a", Author: author})
		m.must(t, &activityv1.WriteIndexes{})
	}
	if spans := int(reads*time.Second/activity.MarkerWindow) + 1; m.removed > spans || len(m.order) != 1 {
		t.Errorf("%d entries were removed in %d spans, %d are left", m.removed, spans, len(m.order))
	}
}

// TestTotalsWithoutARecencyTime checks totals written before RecencyAt existed: their entry is at the time of the last
// activity.
func TestTotalsWithoutARecencyTime(t *testing.T) {
	m := newModel()
	seen := activity.SeenValue("ws_1", "a", author)
	at := m.now.UnixMilli()
	m.totals[seen] = &activityv1.Totals{Author: author, FirstAt: at, LastAt: at, ReadCount: 7}
	old := activity.PathValue("ws_1", "a") + activity.SeenPlace(at, author)
	m.order[old] = true
	read := &activityv1.Record{Operations: []*activityv1.Operation{{Kind: activityv1.Kind_KIND_READ, Path: "a", Author: author}}}
	for _, pause := range []time.Duration{0, activity.MarkerWindow, time.Hour} {
		m.now = m.now.Add(pause)
		m.must(t, read)
		m.must(t, &activityv1.WriteIndexes{})
		if len(m.order) != 1 || m.order[old] != (pause == 0) {
			t.Errorf("after %v the order is %v", pause, m.order)
		}
	}
	if got := m.totals[seen].GetReadCount(); got != 10 {
		t.Errorf("%d reads", got)
	}
}

// TestRowsBeforeTheFirstMark checks that rows from before the first IndexMark, which have their index entries, are not
// counted again.
func TestRowsBeforeTheFirstMark(t *testing.T) {
	s := activity.Zero("ws_1")
	s.Seq = 5
	s.Resume(nil, nil, nil)
	d, err := activity.Decide(entity.Call{Now: time.UnixMilli(9), Principal: entity.Platform()}, s,
		&activityv1.Record{Operations: []*activityv1.Operation{{Kind: activityv1.Kind_KIND_DELETE, Path: "a", Author: author}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mark := new(activityv1.IndexMark)
	if len(d.Entries) != 1 || d.Entries[0].Index != activity.Indexed || proto.Unmarshal(d.Entries[0].Data, mark) != nil || mark.GetSeq() != 5 {
		t.Errorf("the first row comes with %v", d.Entries)
	}
}

// TestIndexDue checks that the indexes are due IndexWindow after the first row or count that they do not have.
func TestIndexDue(t *testing.T) {
	m := newModel()
	if at := m.state.IndexDue(); !at.IsZero() {
		t.Errorf("an index write is due at %v where nothing happened", at)
	}
	m.record(t, &activityv1.Operation{Kind: activityv1.Kind_KIND_DELETE, Path: "t/.git/x", Tree: "t/.git", Author: author})
	if at := m.state.IndexDue(); !at.IsZero() {
		t.Errorf("an index write is due at %v for an open summary without counts", at)
	}
	m.record(t, &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, Path: "t/.git/x", Tree: "t/.git", Author: author})
	first := m.now
	m.now = m.now.Add(time.Millisecond)
	m.record(t, &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, Path: "b", Author: author})
	if at := m.state.IndexDue(); !at.Equal(first.Add(activity.IndexWindow)) {
		t.Errorf("an index write is due %v after a row", at.Sub(first))
	}
	m.now = m.state.IndexDue()
	m.must(t, &activityv1.WriteIndexes{})
	if m.state.Tail.Dirty() {
		t.Error("the rows have no index entries")
	}
}

func TestDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &activityv1.Operation{
			Kind:     activityv1.Kind(rapid.IntRange(1, 8).Draw(t, "kind")),
			Path:     rapid.String().Draw(t, "path"),
			FromPath: rapid.String().Draw(t, "from"),
			Count:    rapid.Uint64().Draw(t, "count"),
			Author:   &activityv1.Author{Actor: rapid.String().Draw(t, "actor"), UserId: rapid.String().Draw(t, "user")},
		}
		if !utf8.ValidString(want.Path) || !utf8.ValidString(want.FromPath) || !utf8.ValidString(want.Author.Actor) || !utf8.ValidString(want.Author.UserId) {
			return
		}
		row := activity.Row{Seq: rapid.Uint64().Draw(t, "seq"), At: rapid.Int64().Draw(t, "at"), Operation: want}
		got, err := activity.Decode(activity.Encode(row))
		if err != nil || got.Seq != row.Seq || got.At != row.At || !proto.Equal(got.Operation, want) {
			t.Fatalf("%v is parsed as %v, %v", row, got, err)
		}
	})
	for _, damaged := range []string{"", "\x00{}", "\x09{}", "\x01", "\x01{\"seq\":"} {
		if row, err := activity.Decode(activity.Stored(damaged)); err == nil {
			t.Errorf("%q is parsed as %v", damaged, row)
		}
	}
}

// TestClockThatWasAhead restarts the node with a clock that is right, after operations were recorded while the clock was a year ahead: the
// open summary is recorded when its timer is delivered, reads are recorded again, and the latest times are the present times.
func TestClockThatWasAhead(t *testing.T) {
	const year = 365 * 24 * time.Hour
	m := newModel()
	began := m.now
	read := &activityv1.Operation{Kind: activityv1.Kind_KIND_READ, Path: "a", Author: author}
	generated := &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, Path: "t/.git/x", Tree: "t/.git", Author: author}
	m.now = began.Add(year)
	m.record(t, read)
	m.record(t, generated)
	m.must(t, &activityv1.WriteIndexes{})
	rows := len(m.rows)

	m.now = began
	next := activity.Zero("ws_1")
	next.Seq, next.Folds = uint64(rows), m.state.Folds
	next.Resume(m.mark, nil, nil)
	m.state = next
	if m.must(t, &activityv1.FlushSummaries{}); len(m.rows) != rows+1 || len(m.state.Folds) != 0 {
		t.Errorf("%d rows, %d open summaries", len(m.rows)-rows, len(m.state.Folds))
	}
	for range 2 {
		if m.record(t, read); len(m.rows) != rows+2 {
			t.Errorf("%d rows after a read", len(m.rows)-rows)
		}
	}
	m.record(t, generated)
	m.must(t, &activityv1.WriteIndexes{})
	if a, x := m.of("a"), m.of("t/.git/x"); a.GetLastAt() != began.UnixMilli() || x.GetLastWriteAt() != began.UnixMilli() {
		t.Errorf("the latest times are %v and %v", a, x)
	}
	if first := activity.PathValue("ws_1", "a") + activity.SeenPlace(began.UnixMilli(), author); !m.order[first] {
		t.Errorf("the order has %d entries, none at the right time", len(m.order))
	}
}
