package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/cmd/node/nodebackup"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/operator"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// backUp backs the node up to a folder. report is called with the progress.
func (h *home) backUp(ctx context.Context, to string, report func(operator.NodeProgress)) (operator.NodeBackup, error) {
	return h.backUpNode(h.options.complete())(ctx, "file://"+to, report)
}

func ignoreProgress(operator.NodeProgress) {}

// restoreInto restores the latest backup in a folder.
func restoreInto(ctx context.Context, dir, from string, report func(nodebackup.Progress)) (nodebackup.Restored, error) {
	return Restore(ctx, RestoreOptions{Dir: dir, From: "file://" + from, Log: slog.New(slog.DiscardHandler), Report: report})
}

// atStep returns a function that calls fn once, when a step begins.
func atStep[P any](step string, of func(P) string, fn func()) func(P) {
	done := false
	return func(p P) {
		if !done && strings.HasPrefix(of(p), step) {
			done = true
			fn()
		}
	}
}

func backupStep(p operator.NodeProgress) string { return p.Step }

func restoreStep(p nodebackup.Progress) string { return p.Step }

// feed returns the rows of the workspace's activity.
func (h *home) feed() string {
	h.Helper()
	return string(h.as(owner, entity.KindActivity, &activityv1.ReadFeed{Limit: 100}).(*activityv1.Page).GetItems())
}

// restoredHome starts a node over a restored directory.
func restoredHome(h *home, dir string) *home {
	h.Helper()
	restored := &home{T: h.T, dir: dir}
	restored.start()
	h.Cleanup(func() { restored.stop() })
	return restored
}

// TestBackUpAndRestoreNode changes the drive after the checkpoint and before the export. The restored drive has the changes, and the
// sequence says that it was replaced.
func TestBackUpAndRestoreNode(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "before")
	h.ask(entity.KindComputer, &computerv1.BackUp{TaskId: "tsk_b", BackupId: "bkp_1"})
	h.done()
	// An operation with an unknown outcome, and an open task.
	h.ask(entity.KindActivity, &activityv1.Intend{Intent: &activityv1.Intent{Id: "opn_1", Inode: 1, Operation: &activityv1.Operation{
		Kind: activityv1.Kind_KIND_CREATE, EntryKind: activityv1.EntryKind_ENTRY_KIND_FILE, Path: "never", Author: change.Author}}})
	backups := filepath.Join(h.dir, "backups")
	h.check(os.Rename(backups, backups+".away"))
	h.check(os.WriteFile(backups, nil, 0o600))
	h.ask(entity.KindComputer, &computerv1.Restore{TaskId: "tsk_r", BackupId: "bkp_1"})

	to := t.TempDir()
	made, err := h.backUp(t.Context(), to, atStep("drive", backupStep, func() { h.put("a", "during"); h.put("b", "new") }))
	if err != nil || made.Drives != 1 || made.SizeBytes == 0 || made.ChangedFiles != 0 {
		t.Fatalf("%+v, %v", made, err)
	}
	h.put("a", "after")
	h.check(os.Remove(backups))
	h.check(os.Rename(backups+".away", backups))

	dir := filepath.Join(t.TempDir(), "restored")
	restored, err := restoreInto(t.Context(), dir, to, func(nodebackup.Progress) {})
	if err != nil || restored.BackupID != made.BackupID || restored.Drives != 1 || len(restored.Skipped) > 0 {
		t.Fatalf("%+v, %v", restored, err)
	}
	r := restoredHome(h, dir)
	if a, b := r.content("a"), r.content("b"); a != "during" || b != "new" {
		t.Errorf("a is %q, b is %q", a, b)
	}
	feed := r.feed()
	if strings.Count(feed, `"seq"`) != 2 || !strings.Contains(feed, `"kind":"restore","actor":"system"`) || strings.Contains(feed, "never") {
		t.Errorf("the restored sequence is %s", feed)
	}
	state := r.done()
	if state.GetFailed().GetTaskId() != "tsk_r" || state.GetFailed().GetReason() != nodebackup.RestoredReason || state.GetBackups()["bkp_1"] == nil {
		t.Errorf("the restored computer is %v", state)
	}
	if r.Journal.Timeline() == h.Journal.Timeline() || string(r.CursorSecret) == string(h.CursorSecret) {
		t.Error("the restored node has the timeline or the secret of the original")
	}
	r.put("c", "goes on")
	if feed := r.feed(); strings.Count(feed, `"seq"`) != 3 {
		t.Errorf("after another change the sequence is %s", feed)
	}
}

// TestBackUpNodeOfNewWorkspace creates the drive of a workspace after the checkpoint, which the journal does not have.
func TestBackUpNodeOfNewWorkspace(t *testing.T) {
	h := newHome(t)
	h.done()
	to := t.TempDir()
	report := func(p operator.NodeProgress) {
		if p.Step == "journal" && p.DoneBytes == 0 {
			// As the node does for a workspace that is created while the journal is stored.
			h.check(h.Drives.Provision(t.Context(), "ws_0"))
		}
	}
	if made, err := h.backUp(t.Context(), to, report); err != nil || made.Drives != 2 {
		t.Fatalf("%+v, %v", made, err)
	}
	dir := t.TempDir()
	restored, err := restoreInto(t.Context(), dir, to, func(nodebackup.Progress) {})
	if err != nil || len(restored.Skipped) != 1 || restored.Skipped[0] != "ws_0" {
		t.Errorf("%+v, %v", restored, err)
	}
}

// TestBackUpNodeOfDeletedWorkspace backs up the drive that a deleted workspace has left.
func TestBackUpNodeOfDeletedWorkspace(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "content")
	h.ask(entity.KindWorkspace, &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_DELETED})
	h.settle()
	to, dir := t.TempDir(), t.TempDir()
	if made, err := h.backUp(t.Context(), to, ignoreProgress); err != nil || made.Drives != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
	if restored, err := restoreInto(t.Context(), dir, to, func(nodebackup.Progress) {}); err != nil || len(restored.Skipped) > 0 {
		t.Fatalf("%+v, %v", restored, err)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "drives", ws, "files", "a")); err != nil || string(content) != "content" {
		t.Errorf("a is %q, %v", content, err)
	}
	restoredHome(h, dir)
}

// TestBackUpNodeEnds ends backups: by their caller, by another backup, and by the end of the node. They leave nothing.
func TestBackUpNodeEnds(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "content")
	to := t.TempDir()
	left := func() (names []string) {
		h.check(filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				names = append(names, path)
			}
			return err
		}))
		return names
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := h.backUp(ctx, to, atStep("drive", backupStep, cancel)); !errors.Is(err, context.Canceled) || len(left()) > 0 {
		t.Errorf("a cancelled backup returned %v and left %v", err, left())
	}
	backUp := h.backUpNode(h.options.complete())
	_, err := backUp(t.Context(), "file://"+to, atStep("drive", backupStep, func() {
		if _, err := backUp(t.Context(), "file://"+to, ignoreProgress); !errors.Is(err, errBackupRuns) {
			t.Errorf("a second backup returned %v", err)
		}
		h.end()
	}))
	if err == nil || !strings.Contains(err.Error(), "the node stops") || len(left()) > 0 {
		t.Errorf("the backup of a node that stops returned %v and left %v", err, left())
	}
	if _, err := os.Stat(filepath.Join(h.dir, "checkpoint")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint is left: %v", err)
	}
}

// TestRestoreNodeContinues interrupts a restore at each of its steps, and continues it.
func TestRestoreNodeContinues(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "content")
	to := t.TempDir()
	if _, err := h.backUp(t.Context(), to, ignoreProgress); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, step := range []string{"verifying the journal", "verifying the drive", "journal", "drive"} {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := restoreInto(ctx, dir, to, atStep(step, restoreStep, cancel)); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at %q: %v", step, err)
		}
		if _, err := Start(t.Context(), Options{Dir: dir}); !errors.Is(err, datadir.ErrRestoring) {
			t.Errorf("interrupted at %q: a node starts: %v", step, err)
		}
	}
	if _, err := h.backUp(t.Context(), to, ignoreProgress); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreInto(t.Context(), dir, to, func(nodebackup.Progress) {}); err == nil || !strings.Contains(err.Error(), "unfinished restore of backup") {
		t.Errorf("a restore of another backup: %v", err)
	}
	h.check(os.RemoveAll(filepath.Join(dir, "restoring")))
	if _, err := restoreInto(t.Context(), dir, to, func(nodebackup.Progress) {}); err != nil {
		t.Fatal(err)
	}
	r := restoredHome(h, dir)
	if r.content("a") != "content" {
		t.Errorf("a is %q", r.content("a"))
	}
}
