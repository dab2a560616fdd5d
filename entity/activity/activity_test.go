package activity_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var author = &activityv1.Author{Actor: "web:usr_1", UserId: "usr_1"}

func TestEncode(t *testing.T) {
	for want, op := range map[string]*activityv1.Operation{
		`{"seq":7,"event":{"kind":"create","actor":"web:usr_1","at":5,"userId":"usr_1","entryKind":"file","path":"a/\"b\""}}`: {
			Kind: activityv1.Kind_KIND_CREATE, EntryKind: activityv1.EntryKind_ENTRY_KIND_FILE, Path: `a/"b"`, Author: author},
		`{"seq":7,"event":{"kind":"rename","actor":"system","at":5,"entryKind":"folder","path":"b","fromPath":"a"}}`: {
			Kind: activityv1.Kind_KIND_RENAME, EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER, Path: "b", FromPath: "a",
			Author: &activityv1.Author{Actor: "system"}},
		`{"seq":7,"event":{"kind":"changed-summary","actor":"terminal","at":5,"path":"x/.git","count":12}}`: {
			Kind: activityv1.Kind_KIND_CHANGED_SUMMARY, Path: "x/.git", Count: 12, Author: &activityv1.Author{Actor: "terminal"}},
		`{"seq":7,"event":{"kind":"restore","actor":"system","at":5}}`: {
			Kind: activityv1.Kind_KIND_RESTORE, Author: &activityv1.Author{Actor: "system"}},
	} {
		row := activity.Encode(activity.Row{Seq: 7, At: 5, Operation: op})
		if got := string(row.JSON()); got != want {
			t.Errorf("%s\nnot %s", got, want)
		}
		if row.Kind() != op.GetKind() {
			t.Errorf("the kind of %s is %v", want, row.Kind())
		}
	}
}

func TestEncodeAnyPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.String().Draw(t, "path")
		if entity.CheckPath(path) != nil {
			return
		}
		row := activity.Encode(activity.Row{Seq: 1, Operation: &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, Path: path, Author: author}})
		var decoded struct{ Event struct{ Path string } }
		if err := json.Unmarshal(row.JSON(), &decoded); err != nil || decoded.Event.Path != path {
			t.Fatalf("%s: %v", row.JSON(), err)
		}
		if strings.ContainsAny(string(row.JSON()), "\r\n") {
			t.Fatalf("%s would break a frame", row.JSON())
		}
	})
}

func TestCursor(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	cursor, other := activity.NewCursor(secret, "ws_1"), activity.NewCursor(secret, "ws_2")
	rapid.Check(t, func(t *rapid.T) {
		seq := rapid.Uint64().Draw(t, "seq")
		text := string(cursor.Append(nil, seq))
		if got, err := cursor.Position(text); err != nil || got != seq || len(text) != activity.CursorLength {
			t.Fatalf("%q is %d, %v", text, got, err)
		}
		if _, err := other.Position(text); err == nil {
			t.Fatalf("another workspace takes %q", text)
		}
		i := rapid.IntRange(0, len(text)-2).Draw(t, "edited")
		edited := []byte(text)
		edited[i] = "AB"[b2i(edited[i] == 'A')]
		if _, err := cursor.Position(string(edited)); err == nil {
			t.Fatalf("an edited cursor is taken: %q", edited)
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func FuzzCursor(f *testing.F) {
	cursor := activity.NewCursor([]byte("secret"), "ws_1")
	f.Add(string(cursor.Append(nil, 12)))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		seq, err := cursor.Position(text)
		if err == nil && string(cursor.Append(nil, seq)) != text {
			t.Errorf("%q is not the one cursor of %d", text, seq)
		}
	})
}

// model stores decisions as the journal and the actor would.
type model struct {
	state *activity.State
	// totals, order and mark have the contents of the indexes.
	totals map[string]*activityv1.Totals
	order  map[string]bool
	mark   *activityv1.IndexMark
	rows   []activity.Row
	now    time.Time
	// removed is the number of removals from the Recency index.
	removed int
}

func newModel() *model {
	return &model{
		state: activity.Zero("ws_1"), totals: map[string]*activityv1.Totals{},
		order: map[string]bool{}, now: time.UnixMilli(1_700_000_000_000),
	}
}

func (m *model) lookup(seen string) *activityv1.Totals { return m.totals[seen] }

func (m *model) of(path string) *activityv1.Totals {
	var found *activityv1.Totals
	for seen, totals := range m.totals {
		if strings.HasPrefix(seen, activity.PathValue("ws_1", path)) && proto.Equal(totals.GetAuthor(), author) {
			found = totals
		}
	}
	return found
}

func (m *model) decide(c activityv1.Command) (*activity.Decision, error) {
	d, err := activity.Decide(entity.Call{Now: m.now, Principal: entity.Platform()}, m.state, c, m.lookup)
	if err != nil {
		return nil, err
	}
	activity.Evolve(m.state, d)
	m.store(d)
	activity.Acknowledge(m.state, d)
	return d, nil
}

func (m *model) store(d *activity.Decision) {
	m.rows = append(m.rows, d.Rows...)
	for _, e := range d.Entries {
		switch {
		case e.Index == activity.Recency && e.Remove:
			delete(m.order, e.Value)
			m.removed++
		case e.Index == activity.Recency:
			m.order[e.Value] = true
		case e.Index == activity.Seen:
			t := new(activityv1.Totals)
			if err := proto.Unmarshal(e.Data, t); err != nil {
				panic(err)
			}
			m.totals[e.Value] = t
		case e.Index == activity.Indexed:
			m.mark = new(activityv1.IndexMark)
			if err := proto.Unmarshal(e.Data, m.mark); err != nil {
				panic(err)
			}
		}
	}
}

// recover loads the state from the journal. before is the state of the same actor after a failed proposal, or nil after a
// crash.
func (m *model) recover(t *rapid.T, before *activity.State) {
	var tail []activity.Row
	if m.mark != nil {
		for _, r := range m.rows[m.mark.GetSeq():] {
			decoded, err := activity.Decode(activity.Encode(r))
			if err != nil {
				t.Fatal(err)
			}
			tail = append(tail, decoded)
		}
	}
	next := activity.Zero("ws_1")
	next.Seq, next.Intents, next.Folds = uint64(len(m.rows)), m.state.Intents, m.state.Folds
	next.Resume(m.mark, tail, before)
	m.state = next
}

func (m *model) record(t rapid.TB, op *activityv1.Operation) {
	if _, err := m.decide(&activityv1.Record{Operations: []*activityv1.Operation{op}}); err != nil {
		t.Fatal(err)
	}
}

func (m *model) must(t rapid.TB, c activityv1.Command) {
	if _, err := m.decide(c); err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsLostOrCountedTwice records random operations and compares the totals with plain counts.
func TestNothingIsLostOrCountedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		var reads, writes, folded uint64
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			m.now = m.now.Add(time.Duration(rapid.IntRange(-5, 700_000).Draw(t, "pause")) * time.Millisecond)
			op := &activityv1.Operation{Path: "d/f", Author: author}
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0:
				op.Kind = activityv1.Kind_KIND_WRITE
				writes++
			case 1:
				op.Kind = activityv1.Kind_KIND_READ
				reads++
			case 2:
				op.Kind, op.Path, op.Tree = activityv1.Kind_KIND_DELETE, "d/.git/x", "d/.git"
				folded++
			case 3:
				m.must(t, &activityv1.FlushSummaries{})
				continue
			case 4:
				m.must(t, &activityv1.WriteIndexes{})
				continue
			case 5: // an actor leaves memory: read counts are written first
				m.must(t, &activityv1.WriteIndexes{})
				m.recover(t, nil)
				continue
			case 6: // a proposal fails, nothing of it is durable, and the actor reads the journal again
				d, err := activity.Decide(entity.Call{Now: m.now, Principal: entity.Platform()}, m.state, &activityv1.WriteIndexes{}, m.lookup)
				if err != nil {
					t.Fatal(err)
				}
				activity.Evolve(m.state, d)
				m.recover(t, m.state)
				continue
			case 7: // it is durable, though the actor does not learn so
				d, err := activity.Decide(entity.Call{Now: m.now, Principal: entity.Platform()}, m.state, &activityv1.WriteIndexes{}, m.lookup)
				if err != nil {
					t.Fatal(err)
				}
				activity.Evolve(m.state, d)
				m.store(d)
				m.recover(t, m.state)
				continue
			}
			m.record(t, op)
		}
		m.now = m.now.Add(time.Hour)
		m.must(t, &activityv1.FlushSummaries{})
		m.must(t, &activityv1.WriteIndexes{})
		m.verify(t, reads, writes, folded)
	})
}

func (m *model) verify(t *rapid.T, reads, writes, folded uint64) {
	totals := m.of("d/f")
	if totals.GetReadCount() != reads || totals.GetWriteCount() != writes {
		t.Fatalf("counted %v, not %d reads and %d writes", totals, reads, writes)
	}
	if got := m.of("d/.git").GetWriteCount(); got != folded || len(m.state.Folds) != 0 {
		t.Fatalf("summaries count %d of %d, %d open", got, folded, len(m.state.Folds))
	}
	if m.state.Tail.Dirty() || len(m.state.Tail.Rows) > 0 || len(m.state.Tail.Writes) > 0 || m.state.Tail.Since != 0 {
		t.Fatalf("after everything is written the tail is %+v", m.state.Tail)
	}
	var marked int64
	for i, r := range m.rows {
		if r.Seq != uint64(i+1) || m.state.Seq != uint64(len(m.rows)) {
			t.Fatalf("row %d has the seq %d", i+1, r.Seq)
		}
		if r.Operation.GetKind() == activityv1.Kind_KIND_READ {
			if marked > 0 && r.At-marked < activity.MarkerWindow.Milliseconds() {
				t.Fatalf("markers %d ms apart", r.At-marked)
			}
			marked = r.At
		}
		if strings.Contains(r.Operation.GetPath(), ".git/") {
			t.Fatalf("a path below a generated tree is revealed: %v", r.Operation)
		}
	}
	if len(m.order) != len(m.totals) {
		t.Fatalf("%d authors stand %d times in the orders of recency", len(m.totals), len(m.order))
	}
}

func TestRenamesAcrossAGeneratedTreeAreRows(t *testing.T) {
	for name, c := range map[string]struct {
		op    *activityv1.Operation
		rows  int
		folds int
	}{
		"out":     {&activityv1.Operation{Path: "a", FromPath: "t/.git/x", FromTree: "t/.git"}, 1, 0},
		"in":      {&activityv1.Operation{Path: "t/.git/x", Tree: "t/.git", FromPath: "a"}, 1, 0},
		"within":  {&activityv1.Operation{Path: "t/.git/x", Tree: "t/.git", FromPath: "t/.git/y", FromTree: "t/.git"}, 0, 1},
		"between": {&activityv1.Operation{Path: "t/.git/x", Tree: "t/.git", FromPath: "u/dist/y", FromTree: "u/dist"}, 0, 2},
	} {
		m := newModel()
		c.op.Kind, c.op.Author = activityv1.Kind_KIND_RENAME, author
		if _, err := m.decide(&activityv1.Record{Operations: []*activityv1.Operation{c.op}}); err != nil {
			t.Fatal(err)
		}
		if len(m.rows) != c.rows || len(m.state.Folds) != c.folds {
			t.Errorf("%s: %d rows, %d folds", name, len(m.rows), len(m.state.Folds))
		}
	}
}

func TestRecordRefusesInvalidOperations(t *testing.T) {
	ok := func() *activityv1.Operation {
		return &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, Path: "a", Author: author}
	}
	for name, change := range map[string]func(*activityv1.Operation){
		"no path":     func(o *activityv1.Operation) { o.Path = "" },
		"escape":      func(o *activityv1.Operation) { o.Path = "../a" },
		"no author":   func(o *activityv1.Operation) { o.Author = nil },
		"long author": func(o *activityv1.Operation) { o.Author = &activityv1.Author{Actor: strings.Repeat("a", 257)} },
		"summary":     func(o *activityv1.Operation) { o.Kind = activityv1.Kind_KIND_CHANGED_SUMMARY },
		"no kind":     func(o *activityv1.Operation) { o.Kind = 0 },
		"rename from nowhere": func(o *activityv1.Operation) {
			o.Kind = activityv1.Kind_KIND_RENAME
		},
	} {
		op := ok()
		change(op)
		m := newModel()
		d, err := m.decide(&activityv1.Record{Operations: []*activityv1.Operation{ok(), op}})
		if err == nil || d != nil || m.state.Seq != 0 {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
	person := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}
	if _, err := activity.Decide(entity.Call{Principal: person}, activity.Zero("ws_1"), &activityv1.Record{}, nil); err == nil {
		t.Error("a person records activity")
	}
}

func TestOpenIntentsAreBounded(t *testing.T) {
	m := newModel()
	intend := func(i int) error {
		_, err := m.decide(&activityv1.Intend{Intent: &activityv1.Intent{Id: fmt.Sprint(i),
			Operation: &activityv1.Operation{Kind: activityv1.Kind_KIND_WRITE, Path: "a", Author: author}}})
		return err
	}
	for i := range activity.MaxIntents {
		if err := intend(i); err != nil {
			t.Fatal(err)
		}
	}
	if intend(-1) == nil {
		t.Error("one more intent is taken")
	}
	if _, err := m.decide(&activityv1.Abandon{IntentId: "7"}); err != nil {
		t.Fatal(err)
	}
	if err := intend(-1); err != nil {
		t.Error(err)
	}
}

// TestFrames has the longest rows, and paths with the characters at which some clients end a line.
func TestFrames(t *testing.T) {
	cursor := activity.NewCursor([]byte("secret"), "ws_1")
	for name, path := range map[string]string{
		"control_characters": strings.Repeat("\x01", entity.MaxPathBytes), "line_ends": strings.Repeat("\u0085\u2028\u2029", entity.MaxPathBytes/8),
	} {
		row := activity.Encode(activity.Row{Seq: 1 << 60, At: 1 << 60, Operation: &activityv1.Operation{
			Kind: activityv1.Kind_KIND_RENAME, EntryKind: activityv1.EntryKind_ENTRY_KIND_FOLDER, Path: path, FromPath: path,
			Author: &activityv1.Author{Actor: strings.Repeat("\x01", activity.MaxActorBytes), UserId: strings.Repeat("\x01", activity.MaxActorBytes)},
		}})
		frame := string(activity.AppendFrame(nil, cursor, 1<<60, row))
		if len(frame) >= 64<<10 || strings.ContainsAny(frame, "\u0085\u2028\u2029") {
			t.Errorf("%s: the frame has %d bytes, want less than 64 KiB and no ends of lines: %.100q", name, len(frame), frame)
		}
		_, data, _ := strings.Cut(strings.TrimSuffix(frame, "\n\n"), "\ndata: ")
		var sent, stored any
		if json.Unmarshal([]byte(data), &sent) != nil || json.Unmarshal(row.JSON(), &stored) != nil || !reflect.DeepEqual(sent, stored) {
			t.Errorf("%s: the data of the frame differs from the row", name)
		}
	}
}
