package session_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// client makes a client of bob with an OAuth grant the sender. Its inputs have other bounds than the inputs of people.
func (w *world) client() *world {
	w.as = &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "bob", CredentialId: "grant_1", Grants: []string{entity.Sessions},
	}
	w.role = editor
	return w
}

// wantParticipant fails the test unless the turns of the session run on behalf of a person and a grant.
func (w *world) wantParticipant(userID, grantID string) {
	w.t.Helper()
	if got := session.ParticipantOf(w.s); got.GetUserId() != userID || got.GetGrantId() != grantID {
		w.t.Errorf("the participant is %v, want %s %s", got, userID, grantID)
	}
}

// A limited key, and an app, take part as their person, and their work ends with them; a key without limits is the person's own. The agent
// of their turn takes part as they do.
func TestParticipantOfKeys(t *testing.T) {
	for kind, want := range map[wirev1.CredentialKind]*sessionv1.Participant{
		wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY: {UserId: "alice", CredentialId: "id_1"},
		wirev1.CredentialKind_CREDENTIAL_KIND_APP:         {UserId: "alice", AppId: "id_1"},
		wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH:       {UserId: "alice", GrantId: "id_1"},
		wirev1.CredentialKind_CREDENTIAL_KIND_USER:        {UserId: "alice"},
	} {
		of := &wirev1.Principal{Kind: kind, UserId: "alice", CredentialId: "id_1", Grants: []string{entity.Sessions}}
		agent := &wirev1.Principal{
			Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, UserId: "alice", CredentialId: "ses_1", Grants: []string{entity.Sessions},
			Participant: &wirev1.Participant{
				UserId: "alice", GrantId: want.GetGrantId(), CredentialId: want.GetCredentialId(), AppId: want.GetAppId(),
			},
		}
		for _, sender := range []*wirev1.Principal{of, agent} {
			w := newWorld(t)
			w.as = sender
			w.start("go")
			if got := session.ParticipantOf(w.s); !proto.Equal(got, want) {
				t.Errorf("%s: the participant is %v, want %v", kind, got, want)
			}
		}
	}
}

// joins makes the running turn take inputs.
func (w *world) joins(batch uint64, seqs ...uint64) {
	w.t.Helper()
	turn := w.s.GetTurn()
	w.platform().must(&sessionv1.RecordRows{TurnId: turn.GetId(), RunId: turn.GetRunId(), Batch: batch, Joined: seqs})
}

func TestParticipant(t *testing.T) {
	w := newWorld(t)
	w.start("go")
	w.wantParticipant("alice", "")
	w.claim()
	other := w.client().input(message("on", steer)) // may not join
	w.wantParticipant("alice", "")
	follow := w.user("carol", editor).input(message("on", followUp))
	w.wantParticipant("alice", "")
	joining := w.user("dave", editor).input(message("on", steer))
	w.wantParticipant("alice", "")
	note := w.user("erin", editor).input(&sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "seen"}})
	w.must(&sessionv1.RenameSession{Title: "Other"})
	w.joins(1, other, joining, note)
	w.wantParticipant("dave", "")
	w.platform().must(&sessionv1.Interrupt{Reason: &sessionv1.Failure{Code: "workspace_suspended"}})
	w.wantParticipant("dave", "")
	w.end(&sessionv1.EndTurn{Status: complete})
	w.wantParticipant("bob", "grant_1")
	w.end(&sessionv1.EndTurn{Status: complete})
	if w.s.GetTurn().GetId() != follow {
		t.Fatalf("the turn is %v", w.s.GetTurn())
	}
	w.wantParticipant("carol", "")

	w.s.Participant = nil // as in a state of an earlier version
	w.wantParticipant("alice", "")
}

// A turn that continues the work of another turn runs on behalf of the same person and grant.
func TestParticipantOfContinuedWork(t *testing.T) {
	at := noon.UnixMilli() + 1000
	t.Run("after a sleep", func(t *testing.T) {
		w := newWorld(t).client()
		w.start("go")
		w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: at})
		w.user("carol", editor).input(message("later", followUp)) // waits for the end of the sleep
		w.wantParticipant("bob", "grant_1")
		w.platform().must(&sessionv1.WakeSession{At: at})
		w.wantParticipant("bob", "grant_1")
		w.end(&sessionv1.EndTurn{Status: complete})
		w.wantParticipant("carol", "")
	})
	t.Run("after a sleep in which a member has taken part", func(t *testing.T) {
		w := newWorld(t).client()
		w.start("go")
		w.end(&sessionv1.EndTurn{Status: sleeping, WakeAt: at})
		w.user("carol", editor).input(message("now", steer))
		w.end(&sessionv1.EndTurn{Status: complete})
		w.platform().must(&sessionv1.WakeSession{At: at})
		w.wantParticipant("carol", "")
	})
	t.Run("after a question", func(t *testing.T) {
		w := newWorld(t).client()
		w.start("go")
		w.end(&sessionv1.EndTurn{Status: asking, Ask: &sessionv1.Ask{Text: "Which?"}})
		w.user("carol", editor).input(message("later", followUp))
		w.wantParticipant("bob", "grant_1")
		w.user("dave", editor).input(answer("yes"))
		w.wantParticipant("dave", "")
	})
	lost := &sessionv1.EndTurn{Status: interrupted, Error: &sessionv1.Failure{Code: session.FailureComputerLost}, Resume: "go on"}
	t.Run("after the loss of the computer and the turn of another person", func(t *testing.T) {
		w := newWorld(t).client()
		w.start("go")
		w.claim()
		w.user("carol", editor).input(message("hello", steer)) // may not join, and comes first
		w.end(lost)
		w.wantParticipant("carol", "")
		w.end(&sessionv1.EndTurn{Status: complete})
		w.wantParticipant("bob", "grant_1")
	})
	t.Run("after the loss of the computer in the turn of another person", func(t *testing.T) {
		w := newWorld(t)
		w.start("go")
		w.claim()
		w.user("carol", editor).input(message("hello", steer))
		w.end(lost)
		w.claim()
		w.joins(1, w.s.GetPending()[0].GetSeq())
		w.wantParticipant("carol", "")
	})
}

// The events of an earlier version have the participants of all inputs, and the state of a session before them has none.
func TestParticipantOfEarlierVersions(t *testing.T) {
	w := newWorld(t)
	w.start("go")
	w.claim()
	w.s.Participant = &sessionv1.Participant{UserId: "bob"} // an input of bob waits, without a participant of its own
	w.input(message("on", followUp))
	w.s.GetPending()[0].Participant = nil
	w.end(&sessionv1.EndTurn{Status: complete})
	w.wantParticipant("bob", "")
}

// An agent works in other sessions on behalf of the participant of its own turn, and not of the person who created its session.
func TestParticipantOfAgents(t *testing.T) {
	for name, c := range map[string]struct {
		of              *wirev1.Participant
		userID, grantID string
	}{
		"of a client":          {&wirev1.Participant{UserId: "bob", GrantId: "grant_1"}, "bob", "grant_1"},
		"of a limited key":     {&wirev1.Participant{UserId: "bob", CredentialId: "key_1"}, "bob", ""},
		"of a member":          {&wirev1.Participant{UserId: "carol"}, "carol", ""},
		"of nobody":            {&wirev1.Participant{}, "", ""},
		"of an earlier member": {nil, "alice", ""}, // of the cluster, which does not send the participant
	} {
		t.Run(name, func(t *testing.T) {
			agent := &wirev1.Principal{
				Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, UserId: "alice", CredentialId: "ses_2",
				Grants: entity.AgentCapabilities(), Participant: c.of,
			}
			w := newWorld(t)
			w.as = agent
			w.start("a part")
			w.wantParticipant(c.userID, c.grantID)
			if got := session.ParticipantOf(w.s).GetCredentialId(); got != c.of.GetCredentialId() {
				t.Errorf("the credential of the participant is %q", got)
			}
			w = newWorld(t)
			w.start("go")
			w.end(&sessionv1.EndTurn{Status: complete})
			w.as, w.role = agent, editor
			w.input(message("on", steer))
			w.wantParticipant(c.userID, c.grantID)
		})
	}
}
