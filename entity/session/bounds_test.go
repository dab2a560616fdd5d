package session_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// app makes an app with grants the sender.
func (w *world) app(grants ...string) *world {
	w.as = &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "alice", CredentialId: "app_1", WorkspaceId: "ws_1", Grants: grants,
	}
	w.role = editor
	return w
}

// wantBounds fails the test unless the running turn has exactly these capabilities.
func (w *world) wantBounds(want ...string) {
	w.t.Helper()
	if got := session.Granted(w.s.GetTurn().GetBounds()); w.s.GetTurn() == nil || !slices.Equal(got, want) {
		w.t.Fatalf("the turn %d has the bounds %q, want %q", w.s.GetTurn().GetId(), got, want)
	}
}

func TestBounds(t *testing.T) {
	all := entity.AgentCapabilities()
	t.Run("a turn has what the credential of its input grants", func(t *testing.T) {
		for _, one := range []struct {
			kind   wirev1.CredentialKind
			grants []string
			want   []string
		}{
			{wirev1.CredentialKind_CREDENTIAL_KIND_USER, nil, all},
			{wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, nil, all},
			{wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, nil, all},
			{wirev1.CredentialKind_CREDENTIAL_KIND_APP, []string{entity.Sessions}, []string{entity.Sessions}},
			{wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, []string{entity.Sessions, entity.FilesRead, entity.Admin}, []string{entity.FilesRead, entity.Sessions}},
			{wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, []string{entity.Sessions, entity.FilesRead, entity.Admin}, []string{entity.FilesRead, entity.Sessions}},
			{wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, entity.AllCapabilities(), all},
			{wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, []string{entity.Services, entity.Sessions}, []string{entity.Services, entity.Sessions}},
			{wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, nil, nil},
			{wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, all, all},
		} {
			w := newWorld(t)
			w.as = &wirev1.Principal{Kind: one.kind, UserId: "alice", CredentialId: "c", WorkspaceId: "ws_1", Grants: one.grants}
			w.start("a")
			w.wantBounds(one.want...)
			w.end(&sessionv1.EndTurn{Status: complete})
			w.input(message("b", followUp))
			w.wantBounds(one.want...)
		}
	})
	t.Run("an input with other bounds waits for a turn of its own", func(t *testing.T) {
		w := newWorld(t)
		w.start("a")
		turn, run := w.claim()
		narrow := w.app(entity.Sessions).input(message("b", steer))
		note := w.input(&sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "n"}})
		query := &sessionv1.AwaitTurn{TurnId: turn, RunId: run, After: turn}
		if !session.Waits(entity.Call{Principal: entity.Platform(), Now: noon}, w.s, query) {
			t.Fatal("the run is told of an input that may not join its turn")
		}
		w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Joined: []uint64{narrow, note}})
		if len(w.s.GetTurn().GetInputs()) != 1 || session.PendingInput(w.s, narrow) == nil || session.PendingInput(w.s, note) != nil {
			t.Fatalf("the turn is %v, and %v wait", w.s.GetTurn(), w.s.GetPending())
		}
		w.wantBounds(all...)
		w.end(&sessionv1.EndTurn{Status: complete})
		if w.s.GetTurn().GetId() != narrow {
			t.Fatalf("the next turn is %v", w.s.GetTurn())
		}
		w.wantBounds(entity.Sessions)
		wide := w.user("alice", editor).input(message("c", steer))
		if session.SteersTurn(w.s.GetTurn(), session.PendingInput(w.s, wide)) {
			t.Fatal("the input of a person joins the turn of an app")
		}
	})
}

func TestBoundsOfContinuedWork(t *testing.T) {
	all := entity.AgentCapabilities()
	t.Run("an answer goes on with the work that asked", func(t *testing.T) {
		for _, send := range []*sessionv1.SendInput{answer("yes"), message("yes", steer)} {
			w := newWorld(t).app(entity.Sessions, entity.FilesRead)
			w.start("a")
			w.end(&sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "Which?"}})
			w.user("alice", editor).input(send)
			w.wantBounds(entity.FilesRead, entity.Sessions)

			w = newWorld(t)
			w.start("a")
			w.end(&sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "Which?"}})
			w.app(entity.Sessions).input(send)
			w.wantBounds(entity.Sessions)
			w.end(&sessionv1.EndTurn{Status: complete})
			w.user("alice", editor).input(message("b", steer))
			w.wantBounds(all...)
		}
	})
	t.Run("an input that waits when the turn asks goes on with that work", func(t *testing.T) {
		w := newWorld(t).app(entity.Sessions)
		w.start("a")
		w.user("alice", editor).input(message("b", steer))
		w.end(&sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "Which?"}})
		w.wantBounds(entity.Sessions)
	})
	t.Run("a sleep ends within the bounds of the turn that sleeps", func(t *testing.T) {
		w := newWorld(t).app(entity.Sessions)
		w.start("a")
		at := noon.UnixMilli() + 1000
		w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: at})
		w.user("alice", editor).input(message("b", steer))
		w.wantBounds(entity.Sessions)
		w.end(&sessionv1.EndTurn{Status: complete})
		w.platform().must(&sessionv1.WakeSession{At: at})
		w.wantBounds(entity.Sessions)
		w.end(&sessionv1.EndTurn{Status: complete})
		w.user("alice", editor).input(message("c", steer))
		w.wantBounds(all...)
	})
	t.Run("a turn that goes on after the computer was lost keeps its bounds", func(t *testing.T) {
		w := newWorld(t).app(entity.Sessions)
		w.start("a")
		w.end(&sessionv1.EndTurn{Status: interrupted, Error: &sessionv1.Failure{Code: session.FailureComputerLost}, Resume: "go on"})
		w.wantBounds(entity.Sessions)
	})
	t.Run("an input that was recorded before bounds were has none", func(t *testing.T) {
		w := newWorld(t)
		recorded := &sessionv1.RowAdded{Row: &sessionv1.Row{Input: &sessionv1.Input{
			Kind: sessionv1.InputKind_INPUT_KIND_PROMPT, Sender: &sessionv1.Sender{Kind: sessionv1.SenderKind_SENDER_KIND_APP, Id: "app_1"}, Text: "a",
		}}, Seq: 2}
		w.s = session.Evolve(session.Evolve(w.s, &sessionv1.SessionStarted{}), recorded)
		w.s = session.Evolve(w.s, &sessionv1.TurnStarted{Turn: &sessionv1.Turn{Id: 2, Inputs: []uint64{2}}})
		w.wantBounds(all...)
	})
}

// TestBoundsLaw has apps and people send inputs in any order, and expects that no turn has a capability that one of its inputs does not
// grant, or that the turn did not have which asked or sleeps before it.
func TestBoundsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		grants := map[uint64][]string{}
		var asked, slept []string // the capabilities of the turns that ask and sleep
		sender := func() []string {
			granted := entity.AgentCapabilities()
			if w.user("alice", editor); rapid.Bool().Draw(t, "isApp") {
				granted = append([]string{entity.Sessions}, rapid.SliceOfDistinct(rapid.SampledFrom(granted), rapid.ID[string]).Draw(t, "grants")...)
				w.app(granted...)
			}
			return granted
		}
		check := func() {
			turn := w.s.GetTurn()
			for _, c := range session.Granted(turn.GetBounds()) {
				for _, seq := range turn.GetInputs() {
					if g, known := grants[seq]; known && !slices.Contains(g, c) {
						t.Fatalf("the turn %d does %s, which its input %d does not grant", turn.GetId(), c, seq)
					}
				}
				if turn != nil && (asked != nil && !slices.Contains(asked, c) || slept != nil && !slices.Contains(slept, c)) {
					t.Fatalf("the turn %d does %s, which the turn before it did not", turn.GetId(), c)
				}
			}
		}
		granted := sender()
		grants[w.start("a")] = granted
		check()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			granted := sender()
			in := message("b", rapid.SampledFrom([]sessionv1.Behavior{steer, followUp}).Draw(t, "behavior"))
			if w.s.GetAsk() != nil && rapid.Bool().Draw(t, "answers") {
				in = answer("b")
			}
			grants[w.input(in)] = granted
			check()
			if w.s.GetTurn() == nil {
				continue
			}
			turn, run := w.claim()
			var waiting []uint64
			for _, p := range w.s.GetPending() {
				waiting = append(waiting, p.GetSeq())
			}
			if rapid.Bool().Draw(t, "joins") {
				w.platform().must(&sessionv1.RecordRows{TurnId: turn, RunId: run, Batch: 1, Joined: waiting})
				check()
			}
			had := session.Granted(w.s.GetTurn().GetBounds())
			end := &sessionv1.EndTurn{Status: rapid.SampledFrom([]sessionv1.TurnStatus{complete, asking, sleeping}).Draw(t, "status")}
			asked = nil
			switch end.GetStatus() {
			case asking:
				end.Ask, asked = &sessionv1.Ask{Text: "Which?"}, had
			case sleeping:
				end.WakeAt, slept = noon.UnixMilli()+1000, had
			}
			w.end(end)
			check()
		}
	})
}
