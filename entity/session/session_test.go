package session_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestStart(t *testing.T) {
	w := newWorld(t)
	first := w.start("\n  Tidy   the drive\nand more")
	if s := w.s; s.GetTitle() != "Tidy the drive" || s.GetTurnStatus() != running || s.GetTurn().GetId() != first || session.BucketOf(s) != session.BucketRunning {
		t.Fatalf("the session is %v", s)
	}
	again := w.must(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "other"}}).(*sessionv1.Accepted)
	if again.GetCreated() || again.GetInputSeq() != first {
		t.Fatalf("the second start is answered with %v", again)
	}
	w = newWorld(t)
	w.refused(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: " \n"}}, entity.InvalidRequest)
	w.refused(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: strings.Repeat("ä", session.MaxText+1)}}, entity.InvalidRequest)
	w.refused(&sessionv1.StartSession{Cwd: "../x", Prompt: &sessionv1.Input{Text: "a"}}, entity.InvalidRequest)
	w.refused(message("a", steer), entity.NotFound)
	if w.version != 0 {
		t.Fatal("a refused start has events")
	}
}

// TestExcerpts expects that the excerpt of each prompt is a title that a member could set, too.
func TestExcerpts(t *testing.T) {
	for prompt, want := range map[string]string{
		"\x00\x1b\nTidy\x1b[31m the\u0085drive": "Tidy [31m the drive", "\x07": "Untitled", "\u2028a": "a",
		"Exe\u202ecod \u2066x\u2069": "Exe cod x",
		strings.Repeat("ä\x01", 50):  strings.Repeat("ä ", 39) + "ä…",
	} {
		w := newWorld(t)
		w.start(prompt)
		if w.s.GetTitle() != want {
			t.Errorf("%q has the title %q, want %q", prompt, w.s.GetTitle(), want)
		}
		w.must(&sessionv1.RenameSession{Title: w.s.GetTitle()})
	}
}

func TestInputs(t *testing.T) {
	t.Run("an input that steers joins the turn and ends with it", func(t *testing.T) {
		w := newWorld(t)
		first := w.start("a")
		turn, run := w.claim()
		second := w.input(message("b", steer))
		third := w.input(message("c", followUp))
		w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Joined: []uint64{second}})
		w.user("alice", editor).end(&sessionv1.EndTurn{Status: complete})
		w.wantTerminal(first, complete)
		w.wantTerminal(second, complete)
		if w.s.GetTurn().GetId() != third {
			t.Fatalf("the next turn is %v, want that of the follow-up %d", w.s.GetTurn(), third)
		}
		w.end(&sessionv1.EndTurn{Status: complete})
		w.wantTerminal(third, complete)
	})
	t.Run("a follow-up waits for the answer, a message does not", func(t *testing.T) {
		w := newWorld(t)
		w.start("a")
		waits := w.input(message("b", followUp))
		w.end(&sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "Which?", Options: []*sessionv1.Option{{Id: "x", Label: "X"}}}})
		if w.s.GetTurn() != nil || w.s.GetTurnStatus() != asking || w.s.GetAsk().GetText() != "Which?" {
			t.Fatalf("the session is %v", w.s)
		}
		w.refused(&sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, OptionId: "y"}}, entity.InvalidRequest)
		w.refused(&sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, OptionId: "x", Text: "x"}}, entity.InvalidRequest)
		seq := w.input(&sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, OptionId: "x"}})
		if w.s.GetTurn().GetId() != seq || w.s.GetAsk() != nil {
			t.Fatalf("the session is %v", w.s)
		}
		w.refused(answer("again"), entity.NoPendingQuestion)
		w.end(&sessionv1.EndTurn{Status: complete})
		if w.s.GetTurn().GetId() != waits {
			t.Fatalf("the turn is %v, want that of the follow-up", w.s.GetTurn())
		}
	})
	t.Run("a note starts no turn and gets no terminal", func(t *testing.T) {
		w := newWorld(t)
		w.start("a")
		w.end(&sessionv1.EndTurn{Status: complete})
		note := w.input(&sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "n"}})
		if w.s.GetTurn() != nil {
			t.Fatal("the note has started a turn")
		}
		w.input(message("b", steer))
		turn, run := w.claim()
		w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Joined: []uint64{note}})
		w.end(&sessionv1.EndTurn{Status: complete})
		if len(w.terminals()[note]) != 0 || len(w.s.GetPending()) != 0 {
			t.Fatalf("the session is %v", w.s)
		}
	})
	t.Run("an explicit tier is sticky, and an input keeps its tier", func(t *testing.T) {
		w := newWorld(t)
		w.must(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "a"}, DefaultTier: workspacev1.Tier_TIER_BALANCED})
		if w.s.GetTurn().GetTier() != workspacev1.Tier_TIER_BALANCED || w.s.GetTier() != 0 {
			t.Fatalf("the session is %v", w.s)
		}
		explicit := message("b", followUp)
		explicit.Input.Tier = workspacev1.Tier_TIER_OPENAI_MAX
		w.input(explicit)
		later := message("c", followUp)
		later.DefaultTier = workspacev1.Tier_TIER_BALANCED
		w.input(later)
		for _, p := range w.s.GetPending() {
			if p.GetTier() != workspacev1.Tier_TIER_OPENAI_MAX {
				t.Fatalf("the pending inputs are %v", w.s.GetPending())
			}
		}
	})
	t.Run("pending inputs are limited", func(t *testing.T) {
		w := newWorld(t)
		w.start("a")
		for range session.MaxPending - 1 {
			w.input(message("b", followUp))
		}
		w.refused(message("c", steer), entity.LimitReached)
	})
}

func TestRuns(t *testing.T) {
	w := newWorld(t)
	first := w.start("a")
	turn, run := w.claim()
	w.platform().refused(&sessionv1.ClaimTurn{TurnId: turn, RunId: "run_other"}, entity.TurnTaken)
	w.refused(&sessionv1.ClaimTurn{TurnId: turn + 1, RunId: run}, entity.NotFound)
	w.refused(&sessionv1.RecordRows{TurnId: turn, RunId: "run_other", Batch: 1}, entity.TurnTaken)
	text := &sessionv1.Row{Text: &sessionv1.Text{Text: "hello", InputSeq: first}}
	w.refused(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 2, Rows: []*sessionv1.Row{text}}, entity.InvalidRequest)
	w.refused(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Rows: []*sessionv1.Row{{Terminal: &sessionv1.Terminal{}}}}, entity.InvalidRequest)
	w.must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Rows: []*sessionv1.Row{text}, Title: "Greeting"})
	version := w.version
	w.must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Rows: []*sessionv1.Row{text}})
	if w.version != version {
		t.Fatal("a repeated batch has events")
	}
	if w.s.GetTitle() != "Greeting" || w.s.GetTitleOrigin() != sessionv1.TitleOrigin_TITLE_ORIGIN_AUTO {
		t.Fatalf("the title is %q", w.s.GetTitle())
	}
	w.refused(&sessionv1.EndTurn{TurnId: turn, RunId: run, Status: asking}, entity.InvalidRequest)
	w.refused(&sessionv1.EndTurn{TurnId: turn, RunId: run, Status: running}, entity.InvalidRequest)
	w.now = w.now.Add(3 * time.Second)
	w.must(&sessionv1.EndTurn{TurnId: turn, RunId: run, Status: complete, Usage: &sessionv1.Usage{InputTokens: 5, OutputTokens: 7}})
	if u := w.s.GetUsage(); u.GetInputTokens() != 5 || u.GetOutputTokens() != 7 || u.GetRunningMs() != 3000 {
		t.Fatalf("the usage is %v", u)
	}
	version = w.version
	w.must(&sessionv1.EndTurn{TurnId: turn, RunId: run, Status: interrupted})
	if w.version != version {
		t.Fatal("a turn has ended twice")
	}
}

func TestSleep(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	at := noon.Add(time.Hour).UnixMilli()
	w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: at})
	timers := session.Timers(w.s)
	if len(timers) != 1 || timers[0].At != at || session.BucketOf(w.s) != session.BucketScheduled {
		t.Fatalf("the timers are %v, the session is %v", timers, w.s)
	}
	during := w.input(message("b", steer))
	w.end(&sessionv1.EndTurn{Status: complete})
	w.wantTerminal(during, complete)
	if w.s.GetTurnStatus() != sleeping {
		t.Fatalf("after a message during the sleep the session is %v", w.s.GetTurnStatus())
	}
	w.platform().must(&sessionv1.WakeSession{At: at - 1})
	if w.s.GetTurn() != nil {
		t.Fatal("a timer of another time has ended the sleep")
	}
	w.must(timers[0].Message.(*sessionv1.WakeSession))
	if w.s.GetTurn() == nil || len(session.Timers(w.s)) != 0 {
		t.Fatalf("the session is %v", w.s)
	}
	turn := w.s.GetTurn().GetId()
	w.must(timers[0].Message.(*sessionv1.WakeSession))
	w.end(&sessionv1.EndTurn{Status: complete})
	if w.s.GetTurn() != nil {
		t.Fatal("the sleep has ended twice")
	}
	w.wantTerminal(turn, complete)

	w = newWorld(t)
	w.start("a")
	waits := w.input(message("b", followUp))
	w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: at})
	if m := w.must(&sessionv1.Interrupt{}).(*sessionv1.Interrupted); !m.GetInterrupted() || w.s.GetWakeAt() != 0 {
		t.Fatalf("the session is %v", w.s)
	}
	w.wantTerminal(waits, interrupted)
}

func TestInterrupt(t *testing.T) {
	w := newWorld(t)
	first := w.start("a")
	w.claim()
	second := w.input(message("b", followUp))
	w.must(&sessionv1.Interrupt{})
	if !w.s.GetTurn().GetInterrupting() {
		t.Fatal("the run is not notified of the interruption")
	}
	w.wantTerminal(second, interrupted)
	third := w.input(message("c", steer))
	w.end(&sessionv1.EndTurn{Status: interrupted})
	w.wantTerminal(first, interrupted)
	if w.s.GetTurn().GetId() != third {
		t.Fatalf("the turn is %v, want that of the message after the interruption", w.s.GetTurn())
	}
	w.must(&sessionv1.Interrupt{}) // no run has taken the turn
	w.wantTerminal(third, interrupted)
	if m := w.must(&sessionv1.Interrupt{}).(*sessionv1.Interrupted); m.GetInterrupted() {
		t.Fatal("a session at rest was interrupted")
	}
	w.input(message("d", steer))
	w.claim()
	waits := w.input(message("e", followUp))
	w.platform().must(&sessionv1.Interrupt{Reason: &sessionv1.Failure{Code: "workspace_suspended"}})
	if w.s.GetTurn().GetInterruptCode() != "workspace_suspended" || len(w.terminals()[waits]) != 0 {
		t.Fatalf("the session is %v", w.s)
	}
}

func TestVisibility(t *testing.T) {
	w := newWorld(t)
	w.must(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "a"}, Audience: &sessionv1.Audience{Specific: true, UserIds: []string{"bob"}}})
	describe := &sessionv1.DescribeSession{}
	for _, test := range []struct {
		user    string
		role    workspacev1.Role
		sees    bool
		deletes bool
	}{
		{"alice", editor, true, true}, {"alice", viewer, true, false}, {"bob", viewer, true, false}, {"bob", editor, true, false},
		{"carol", editor, false, false}, {"dora", owner, true, true},
	} {
		w.user(test.user, test.role)
		m, err := w.send(describe)
		if (err == nil) != test.sees {
			t.Errorf("%s as %v: %v", test.user, test.role, err)
			continue
		}
		if err == nil && m.(*sessionv1.Description).GetPermissions().GetDelete() != test.deletes {
			t.Errorf("%s as %v may delete: %v", test.user, test.role, !test.deletes)
		}
	}
	w.user("bob", editor).refused(&sessionv1.ChangeAudience{Add: []string{"carol"}}, entity.Forbidden)
	w.user("alice", editor).must(&sessionv1.ChangeAudience{Add: []string{"carol"}, Remove: []string{"bob"}})
	w.user("bob", editor).refused(describe, entity.NotFound)
	w.user("carol", viewer).must(describe)
	w.user("dora", owner).must(&sessionv1.ChangeAudience{Specific: proto.Bool(false)})
	w.refused(&sessionv1.ChangeAudience{Add: []string{"bob"}}, entity.InvalidRequest)
	w.user("bob", editor).must(describe)
	w.as, w.role = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM, WorkspaceId: "ws_1"}, editor
	w.must(describe)
}

// TestImagesHaveRows sends images; two inputs have one image in common. Each image has a row. The deletion removes the row, and a row
// of the version that stored images in the journal.
func TestImagesHaveRows(t *testing.T) {
	images := func(sums ...string) (all []*sessionv1.Image) {
		for _, sum := range sums {
			all = append(all, &sessionv1.Image{Sha256: []byte(sum), MediaType: "image/png", Size: 3})
		}
		return all
	}
	w := newWorld(t)
	w.must(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "a", Images: images("one")}})
	in := message("b", steer)
	in.Input.Images = images("one", "two")
	w.must(in)
	refused := message("", steer)
	refused.Input.Images = images("three")
	w.refused(refused, entity.InvalidRequest)
	var keys []string
	for name, row := range w.rows {
		if key, is := strings.CutPrefix(name, session.ImageList+" "); is {
			keys = append(keys, key)
			if i := row.(*sessionv1.StoredImage); i.GetMediaType() != "image/png" || i.GetSize() != 3 || !strings.Contains("one two", string(i.GetSha256())) {
				t.Errorf("the row %q is %v", key, i)
			}
		}
	}
	slices.Sort(keys)
	if want := []string{session.ImageKey("ses_1", []byte("one")), session.ImageKey("ses_1", []byte("two"))}; !slices.Equal(keys, want) {
		t.Fatalf("the rows are %q, want %q", keys, want)
	}
	old := session.ImageList + " " + session.Key("ses_1", "two")
	w.rows[old] = &sessionv1.StoredImage{Content: []byte("two")}
	move := &sessionv1.MoveImage{Image: &sessionv1.Image{MediaType: "image/gif", Sha256: []byte("two"), Size: 3}}
	w.platform().must(move)
	if moved, is := w.rows[session.ImageList+" "+keys[1]].(*sessionv1.StoredImage); w.rows[old] != nil || !is || moved.GetMediaType() != "image/gif" || moved.GetSize() != 3 {
		t.Errorf("the rows of the moved image are %v", w.rows)
	}
	w.rows[old] = &sessionv1.StoredImage{Content: []byte("two")}
	w.must(&sessionv1.DeleteSession{})
	w.platform().refused(move, entity.NotFound)
	w.platform().must(&sessionv1.EraseRows{Rows: []*sessionv1.RowKey{{List: session.ImageList, Key: keys[1]}}})
	if w.rows[old] != nil || w.rows[session.ImageList+" "+keys[1]] != nil {
		t.Errorf("the rows %v remain", w.rows)
	}
}

func TestReadsAndArchives(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	if session.IsUnread(w.s, "alice") || !session.IsUnread(w.s, "bob") {
		t.Fatalf("the readers are %v", w.s.GetRead())
	}
	w.end(&sessionv1.EndTurn{Status: complete})
	if !session.IsUnread(w.s, "alice") {
		t.Fatal("the end of the turn is not unread")
	}
	w.must(&sessionv1.MarkRead{Seq: w.s.GetLastEventSeq()})
	w.refused(&sessionv1.MarkRead{Seq: w.s.GetLastEventSeq() + 1}, entity.InvalidRequest)
	if session.IsUnread(w.s, "alice") {
		t.Fatal("the session is unread")
	}
	again := message("b", steer)
	again.Input.Tier = workspacev1.Tier_TIER_FRONTIER
	if w.input(again); session.IsUnread(w.s, "alice") {
		t.Fatal("the session is unread for the sender of a message with a tier")
	}
	w.must(&sessionv1.MarkRead{Seq: w.s.GetLastEventSeq()})
	w.as = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "alice", CredentialId: "app_1"}
	if w.input(message("c", steer)); !session.IsUnread(w.s, "alice") {
		t.Fatal("a message of an app is read by the person who has created the app")
	}
	personal := &sessionv1.ArchiveSession{Scope: sessionv1.ArchiveScope_ARCHIVE_SCOPE_PERSONAL, Archived: true}
	w.user("bob", viewer).must(personal)
	if !session.IsArchived(w.s, "bob") || session.IsArchived(w.s, "alice") {
		t.Fatalf("the archives are %v", w.s.GetPersonalArchivedAt())
	}
	global := &sessionv1.ArchiveSession{Scope: sessionv1.ArchiveScope_ARCHIVE_SCOPE_GLOBAL, Archived: true}
	w.user("alice", editor).must(global)
	global.Archived = false
	w.must(global)
	if !session.IsArchived(w.s, "bob") || session.IsArchived(w.s, "alice") {
		t.Fatal("restoring for everybody has changed a personal archive")
	}
	w.as, w.role = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM, WorkspaceId: "ws_1"}, editor
	w.refused(personal, entity.Forbidden)
}

func TestSettings(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.must(&sessionv1.MoveCwd{Cwd: "docs", Expected: ""})
	w.refused(&sessionv1.MoveCwd{Cwd: "src", Expected: ""}, entity.CwdConflict)
	w.must(&sessionv1.MoveCwd{Cwd: "docs", Expected: "else"}) // already so
	w.refused(&sessionv1.MoveCwd{Cwd: "a//b", Expected: "docs"}, entity.InvalidRequest)
	w.must(&sessionv1.RenameSession{Title: "Mine"})
	turn, run := w.claim()
	w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Title: "Theirs"})
	if w.s.GetTitle() != "Mine" || w.s.GetCwd() != "docs" {
		t.Fatalf("the session is %v", w.s)
	}
	w.user("alice", editor).refused(&sessionv1.RenameSession{Title: "a\nb"}, entity.InvalidRequest)
}

func TestDeletion(t *testing.T) {
	w := newWorld(t)
	w.must(&sessionv1.DeleteSession{}) // there is none
	w.start("a")
	w.must(&sessionv1.AdmitChild{ChildId: child})
	w.refused(&sessionv1.AdmitChild{ChildId: "ses_x"}, entity.InvalidRequest)
	w.user("bob", editor).refused(&sessionv1.DeleteSession{}, entity.Forbidden)
	w.user("alice", editor).must(&sessionv1.DeleteSession{})
	tasks := session.Tasks(w.s)
	if len(tasks) != 1 || tasks[0].Kind != session.DeletionTask {
		t.Fatalf("the tasks are %v", tasks)
	}
	w.must(&sessionv1.DeleteSession{})
	for _, c := range []sessionv1.Command{
		&sessionv1.DescribeSession{}, message("b", steer), &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "a"}},
		&sessionv1.Interrupt{}, &sessionv1.AdmitChild{ChildId: child},
	} {
		w.refused(c, entity.NotFound)
	}
	var erase []*sessionv1.RowKey
	for name := range w.rows {
		list, key, _ := strings.Cut(name, " ")
		if list == "audit" {
			continue
		}
		if !slices.Contains(session.ErasedLists, list) {
			t.Errorf("a sealed session has a row in %s", list)
		}
		erase = append(erase, &sessionv1.RowKey{List: list, Key: key})
	}
	w.platform().must(&sessionv1.EraseRows{Rows: append(erase, &sessionv1.RowKey{List: "audit", Key: "x"})})
	w.must(&sessionv1.ReportErased{})
	if tasks := session.Tasks(w.s); len(tasks) != 0 || !w.s.GetErased() {
		t.Fatalf("the tasks are %v", tasks)
	}
	for name := range w.rows {
		if !strings.HasPrefix(name, "audit ") {
			t.Errorf("the row %q remains", name)
		}
	}
	w = newWorld(t).platform()
	w.must(&sessionv1.DeleteSession{}) // an admitted child that was not created yet
	w.user("alice", editor).refused(&sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "a"}}, entity.NotFound)
}

func TestWaits(t *testing.T) {
	w := newWorld(t)
	first := w.start("a")
	second := w.input(message("b", followUp))
	call := entity.Call{Now: noon, Principal: w.as, Role: editor}
	waits := func(c sessionv1.Command, want bool) {
		t.Helper()
		if got := session.Waits(call, w.s, c); got != want {
			t.Errorf("%v waits: %v", c, got)
		}
	}
	taken := &sessionv1.AwaitInput{Seq: first, Taken: true}
	waits(taken, true)
	turn, run := w.claim()
	waits(taken, false)
	waits(&sessionv1.AwaitInput{Seq: first}, true)
	waits(&sessionv1.AwaitInput{Seq: second}, true)
	work := &sessionv1.AwaitTurn{TurnId: turn, RunId: run}
	waits(work, true)
	third := w.input(message("c", steer))
	waits(work, false)
	work.After = third
	waits(work, true)
	w.end(&sessionv1.EndTurn{Status: complete})
	waits(&sessionv1.AwaitInput{Seq: first}, false)
	waits(work, false)
	waits(&sessionv1.AwaitInput{Seq: 9999}, false)
}
