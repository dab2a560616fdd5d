package quota

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// TestRoom fills the journal with events of a workspace. At the limit, members are refused; an eighth beyond it, processes and reads are.
// Another workspace and the platform go on.
func TestRoom(t *testing.T) {
	journal, err := persistence.Open(persistence.Options{Dir: "journal", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler), CacheBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	used := func(workspaceID string) uint64 { return journal.WorkspaceBytes(0, workspaceID) }
	r := NewRoom(80_000, used, prometheus.NewRegistry())
	r.CheckShare = func(string, int) error { return nil }
	version := uint64(0)
	fill := func(bytes int) {
		done := make(chan persistence.Result, 1)
		journal.Append(persistence.Proposal{
			Stream: "session/ws_a/ses_1", Expected: version, Epoch: 1, Events: []persistence.Event{{Name: "e", Payload: make([]byte, bytes)}},
		}, func(r persistence.Result) { done <- r })
		if r := <-done; r.Err != nil {
			t.Fatal(r.Err)
		}
		version++
	}
	check := func(admitsMember, admitsDrive bool) {
		t.Helper()
		member := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER}
		command := entity.Command{Kind: entity.KindSession, Identity: "ws_a/ses_1", Principal: member, Message: &sessionv1.SendInput{Input: &sessionv1.Input{Text: "note"}}}
		isAdmitted := func(err error) bool {
			refusal, is := errors.AsType[*entity.Error](err)
			if err != nil && (!is || refusal.Code != entity.InsufficientStorage) {
				t.Error(err)
			}
			return err == nil
		}
		if got := isAdmitted(r.Admit(command)); got != admitsMember {
			t.Errorf("a member is admitted: %v", got)
		}
		if got := isAdmitted(r.CheckDrive("ws_a")); got != admitsDrive {
			t.Errorf("processes are admitted: %v", got)
		}
		command.Principal, command.Message = entity.Platform(), &sessionv1.EndTurn{}
		if !isAdmitted(r.Admit(command)) {
			t.Error("the end of a turn is refused")
		}
		command.Identity, command.Principal, command.Message = "ws_b/ses_1", member, &sessionv1.SendInput{}
		if !isAdmitted(r.Admit(command)) || !isAdmitted(r.CheckDrive("ws_b")) {
			t.Error("another workspace is refused")
		}
	}
	check(true, true)
	fill(79_980)
	check(false, true)
	fill(10_000)
	check(false, false)
	r.Limit = 0
	check(true, true)
}
