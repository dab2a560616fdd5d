package session_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// TestLaws sends random commands, and checks after each that no input has two terminals, that each input that no turn has and
// that does not wait has one, that the rows of the lists are the rows of the state, and that replay makes the same state.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.start("a")
		for range rapid.IntRange(0, 60).Draw(t, "commands") {
			w.now = w.now.Add(time.Second)
			w.user(rapid.SampledFrom([]string{"alice", "bob"}).Draw(t, "user"), editor)
			c := drawCommand(t, w)
			if _, err := w.send(c); err != nil && !entity.IsRefusal(err) {
				t.Fatal(err)
			}
			checkLaws(t, w)
		}
	})
}

func drawCommand(t *rapid.T, w *world) sessionv1.Command {
	turn, run := w.s.GetTurn().GetId(), w.s.GetTurn().GetRunId()
	switch rapid.IntRange(0, 13).Draw(t, "command") {
	case 0, 1:
		return message("m", rapid.SampledFrom([]sessionv1.Behavior{steer, followUp}).Draw(t, "behavior"))
	case 2:
		return answer("yes")
	case 3:
		return &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "n"}}
	case 4:
		return &sessionv1.Interrupt{}
	case 5:
		return &sessionv1.ArchiveSession{
			Scope:    rapid.SampledFrom([]sessionv1.ArchiveScope{1, 2}).Draw(t, "scope"),
			Archived: rapid.Bool().Draw(t, "archived"),
		}
	case 6, 7:
		w.platform()
		return &sessionv1.ClaimTurn{TurnId: turn, RunId: "run"}
	case 8:
		w.platform()
		var joined []uint64
		for _, p := range w.s.GetPending() {
			if session.Steers(p) {
				joined = append(joined, p.GetSeq())
			}
		}
		return &sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: w.s.GetTurn().GetLastBatch() + 1, Joined: joined}
	case 9, 10:
		w.platform()
		status := rapid.SampledFrom([]sessionv1.TurnStatus{complete, asking, interrupted, sleeping}).Draw(t, "status")
		return &sessionv1.EndTurn{
			TurnId: turn, RunId: run, Status: status, Ask: &sessionv1.Ask{Text: "?"}, WakeAt: w.now.Add(time.Minute).UnixMilli(),
			Resume: rapid.SampledFrom([]string{"", "", "go on"}).Draw(t, "resume"),
		}
	case 11:
		w.platform()
		return &sessionv1.WakeSession{At: w.s.GetWakeAt()}
	case 12:
		w.platform()
		return &sessionv1.Interrupt{Reason: &sessionv1.Failure{Code: "workspace_suspended"}}
	default:
		return &sessionv1.MarkRead{Seq: w.s.GetLastEventSeq()}
	}
}

func checkLaws(t *rapid.T, w *world) {
	replayed := session.Zero("ws_1/ses_1")
	terminals := w.terminals()
	waiting := slices.Clone(w.s.GetTurn().GetInputs())
	for _, p := range w.s.GetPending() {
		waiting = append(waiting, p.GetSeq())
	}
	for _, e := range w.history {
		replayed = session.Evolve(replayed, e)
		row, is := e.(*sessionv1.RowAdded)
		if !is || row.GetRow().GetInput() == nil || row.GetRow().GetInput().GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE {
			continue
		}
		want := 1
		if slices.Contains(waiting, row.GetSeq()) {
			want = 0
		}
		if got := len(terminals[row.GetSeq()]); got != want {
			t.Fatalf("the input %d has %d terminals, want %d", row.GetSeq(), got, want)
		}
	}
	if !proto.Equal(replayed, w.s) {
		t.Fatalf("replay makes %v, want %v", replayed, w.s)
	}
	if w.s.GetTurn() == nil && w.s.GetAsk() == nil && w.s.GetWakeAt() == 0 {
		for _, p := range w.s.GetPending() {
			if p.GetKind() != sessionv1.InputKind_INPUT_KIND_NOTE {
				t.Fatalf("the input %v waits for nothing", p)
			}
		}
	}
	if (w.s.GetTurnStatus() == running) != (w.s.GetTurn() != nil) || w.s.GetAsk() != nil && w.s.GetTurnStatus() == running {
		t.Fatalf("status %v with turn %v and question %v", w.s.GetTurnStatus(), w.s.GetTurn(), w.s.GetAsk())
	}
	checkRows(t, w)
}

// checkRows compares the references with the ranges in which the session belongs.
func checkRows(t *rapid.T, w *world) {
	want := map[string]bool{}
	anyArchive := w.s.GetGlobalArchivedAt() != 0 || len(w.s.GetPersonalArchivedAt()) > 0
	for _, scope := range []string{session.ScopeAll, session.ScopeTopLevel} {
		for _, bucket := range []string{"", session.BucketOf(w.s)} {
			if w.s.GetGlobalArchivedAt() == 0 {
				want[session.RangePrefix(scope, bucket, false)] = true
			}
			if anyArchive {
				want[session.RangePrefix(scope, bucket, true)] = true
			}
		}
	}
	got := map[string]bool{}
	for name := range w.rows {
		if key, is := strings.CutPrefix(name, session.SessionList+" "); is {
			got[key[:len(key)-8-len("ses_1")]] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("the session is in the ranges %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	if _, has := w.rows[session.SummaryList+" ses_1"]; !has {
		t.Fatal("the session has no summary")
	}
}
