package actors_test

import (
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// TestAdmit refuses a command that would change something without a trace. Commands that change nothing are not refused. An event that
// erases the earlier ones gives their room back, also after the entity has left memory.
func TestAdmit(t *testing.T) {
	refuses := false
	b := newBench(t, func(b *bench) {
		b.extra = []entity.Kind{session.Kind}
		b.admit = func(c entity.Command) error {
			if refuses && c.Kind == entity.KindSession {
				return entity.Errorf(entity.InsufficientStorage, "there is no room")
			}
			return nil
		}
	})
	b.createWorkspace("ws_1", "usr_1")
	send := func(m sessionv1.Command, from ...string) error {
		c := entity.Command{Kind: entity.KindSession, Identity: "ws_1/ses_1", Principal: person("usr_1"), Message: m}
		if len(from) == 0 {
			c.Principal = entity.Platform()
		}
		_, err := b.ask(c)
		return err
	}
	const member = "usr_1"
	start := &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "Hello"}, DefaultTier: workspacev1.Tier_TIER_BALANCED}
	refuses = true
	if err := send(start, member); code(err) != entity.InsufficientStorage {
		t.Fatalf("a session was started: %v", err)
	}
	if err := send(&sessionv1.DescribeSession{}, member); code(err) != entity.NotFound {
		t.Errorf("the refused session: %v", err)
	}
	refuses = false
	if err := send(start, member); err != nil {
		t.Fatal(err)
	}
	refuses = true
	if err := send(&sessionv1.DescribeSession{}, member); err != nil {
		t.Errorf("a query was refused: %v", err)
	}
	refuses = false
	counted := func() uint64 { return b.journal.WorkspaceBytes(b.router.Partition("ws_1"), "ws_1") }
	note := &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "A note"}}
	before := counted()
	for range 100 {
		if err := send(note, member); err != nil {
			t.Fatal(err)
		}
	}
	full := counted()
	if err := send(&sessionv1.DeleteSession{}, member); err != nil {
		t.Fatal(err)
	}
	if err := send(&sessionv1.ReportErased{}); err != nil {
		t.Fatal(err)
	}
	if after := counted(); after > (before+full)/2 {
		t.Errorf("%d bytes with the session, %d after its deletion", full, after)
	}
	b.restart()
	stream := persistence.Stream("session/ws_1/ses_1")
	v, err := b.journal.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	events := 0
	for _, err := range v.Read(b.router.Partition("ws_1"), stream, 0, persistence.Ascending) {
		if err != nil {
			t.Fatal(err)
		}
		events++
	}
	if events != 1 {
		t.Errorf("%d events remain of a deleted session", events)
	}
	if err := send(start, member); err == nil {
		t.Error("a deleted session was started again")
	}
	if err := send(&sessionv1.DescribeSession{}, member); code(err) != entity.NotFound {
		t.Errorf("the deleted session: %v", err)
	}
}
