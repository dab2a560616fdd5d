package session_test

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	owner  = workspacev1.Role_ROLE_OWNER
	editor = workspacev1.Role_ROLE_EDITOR
	viewer = workspacev1.Role_ROLE_VIEWER
)

var (
	noon  = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	child = session.DerivedID("ws_1", &sessionv1.Sender{}, "child")
)

// world is one session and the rows of its lists, as the journal would have them.
type world struct {
	t       rapid.TB
	s       *sessionv1.Session
	now     time.Time
	version uint64
	as      *wirev1.Principal
	role    workspacev1.Role
	history []sessionv1.Event
	// rows are the list rows by list and key.
	rows map[string]proto.Message
}

func newWorld(t rapid.TB) *world {
	w := &world{t: t, s: session.Zero("ws_1/ses_1"), now: noon, rows: map[string]proto.Message{}}
	return w.user("alice", editor)
}

func (w *world) user(id string, role workspacev1.Role) *world {
	w.as, w.role = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: id, CredentialId: "key_" + id}, role
	return w
}

func (w *world) platform() *world {
	w.as, w.role = entity.Platform(), owner
	return w
}

// send decides a command, applies its events and rows, and returns the reply.
func (w *world) send(c sessionv1.Command) (proto.Message, error) {
	w.t.Helper()
	call := entity.Call{Now: w.now, Identity: "ws_1/ses_1", Principal: w.as, Role: w.role, Version: w.version + 1}
	events, err := session.Decide(call, w.s, c)
	if err != nil {
		if entitytest.Code(err) == "" || len(events) > 0 {
			w.t.Fatalf("%T: refused with %v and %d events", c, err, len(events))
		}
		return nil, err
	}
	before := w.s
	for _, e := range events {
		was := proto.Clone(w.s)
		next := session.Evolve(w.s, e)
		if !proto.Equal(was, w.s) {
			w.t.Fatalf("Evolve changed its argument for %T", e)
		}
		w.s, w.version = next, w.version+1
		if row, is := e.(*sessionv1.RowAdded); is && row.GetSeq() != w.version {
			w.t.Fatalf("a row has the seq %d and the version %d", row.GetSeq(), w.version)
		}
		w.history = append(w.history, e)
	}
	for _, row := range session.Rows(call, before, w.s, c, events) {
		if row.Message == nil {
			delete(w.rows, row.List+" "+row.Key)
		} else {
			w.rows[row.List+" "+row.Key] = row.Message
		}
	}
	return session.Reply(call, w.s, c, events), nil
}

func (w *world) must(c sessionv1.Command) proto.Message {
	w.t.Helper()
	m, err := w.send(c)
	if err != nil {
		w.t.Fatalf("%T: %v", c, err)
	}
	return m
}

func (w *world) refused(c sessionv1.Command, want entity.Code) {
	w.t.Helper()
	if _, err := w.send(c); entitytest.Code(err) != want {
		w.t.Fatalf("%T: %v, want %s", c, err, want)
	}
}

func (w *world) start(text string) uint64 {
	w.t.Helper()
	return w.must(&sessionv1.StartSession{Mode: sessionv1.Mode_MODE_AUTO, Prompt: &sessionv1.Input{Text: text}}).(*sessionv1.Accepted).GetInputSeq()
}

func message(text string, b sessionv1.Behavior) *sessionv1.SendInput {
	return &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: text, Behavior: b}}
}

func answer(text string) *sessionv1.SendInput {
	return &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, Text: text}}
}

func (w *world) input(c *sessionv1.SendInput) uint64 {
	w.t.Helper()
	return w.must(c).(*sessionv1.Accepted).GetInputSeq()
}

// claim takes the turn for a run named after it.
func (w *world) claim() (turn uint64, run string) {
	w.t.Helper()
	turn = w.s.GetTurn().GetId()
	run = fmt.Sprint("run_", turn)
	as, role := w.as, w.role
	w.platform().must(&sessionv1.ClaimTurn{TurnId: turn, RunId: run})
	w.as, w.role = as, role
	return turn, run
}

// end claims the turn unless a run has it, and ends it.
func (w *world) end(c *sessionv1.EndTurn) {
	w.t.Helper()
	turn, run := w.s.GetTurn().GetId(), w.s.GetTurn().GetRunId()
	if run == "" {
		turn, run = w.claim()
	}
	as, role := w.as, w.role
	c.TurnId, c.RunId = turn, run
	w.platform().must(c)
	w.as, w.role = as, role
}

// terminals returns the statuses of the terminals by input.
func (w *world) terminals() map[uint64][]sessionv1.TurnStatus {
	found := map[uint64][]sessionv1.TurnStatus{}
	for _, e := range w.history {
		if row, is := e.(*sessionv1.RowAdded); is && row.GetRow().GetTerminal() != nil {
			t := row.GetRow().GetTerminal()
			found[t.GetInputSeq()] = append(found[t.GetInputSeq()], t.GetTurnStatus())
		}
	}
	return found
}

func (w *world) wantTerminal(seq uint64, want sessionv1.TurnStatus) {
	w.t.Helper()
	if got := w.terminals()[seq]; len(got) != 1 || got[0] != want {
		w.t.Fatalf("the input %d has the terminals %v, want %v", seq, got, want)
	}
}

const (
	complete    = sessionv1.TurnStatus_TURN_STATUS_COMPLETE
	asking      = sessionv1.TurnStatus_TURN_STATUS_ASK
	interrupted = sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED
	sleeping    = sessionv1.TurnStatus_TURN_STATUS_SLEEP
	running     = sessionv1.TurnStatus_TURN_STATUS_RUNNING
	steer       = sessionv1.Behavior_BEHAVIOR_STEER
	followUp    = sessionv1.Behavior_BEHAVIOR_FOLLOW_UP
)
