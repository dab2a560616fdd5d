package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/cmd/node/nodebackup"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/tests/unprivileged"
)

// TestBackupsWithoutPermission backs up a drive with a file and a folder that the node may not read, before another drive that it cannot
// open at all.
func TestBackupsWithoutPermission(t *testing.T) {
	if !unprivileged.Run(t) {
		return
	}
	h := newHome(t)
	h.done()
	h.put("a", "readable")
	h.put("secret", "not readable")
	files := filepath.Join(h.dir, "drives", ws, "files")
	h.check(os.Chmod(filepath.Join(files, "secret"), 0))
	h.check(os.Mkdir(filepath.Join(files, "closed"), 0))

	h.ask(entity.KindComputer, &computerv1.BackUp{TaskId: "tsk_b", BackupId: "bkp_1"})
	state := h.done()
	b := state.GetBackups()["bkp_1"]
	named := b.GetUnreadablePaths()
	if state.GetFailed() != nil || b.GetUnreadableFiles() != 2 || !strings.Contains(strings.Join(named, " "), `"secret"`) {
		t.Fatalf("the backup is %v, %v", b, state.GetFailed())
	}
	h.as(owner, entity.KindComputer, &computerv1.Reprovision{TaskId: "tsk_r", BackupId: "bkp_2", DriveReadable: true})
	if state := h.done(); state.GetFailed() != nil || state.GetBackups()["bkp_2"].GetUnreadableFiles() != 2 {
		t.Errorf("after a replacement: %v", state)
	}

	first := filepath.Join(h.dir, "drives", "aa_closed") // before the other drive in the order of their names
	h.check(os.MkdirAll(filepath.Join(first, "tmp"), 0o700))
	h.check(os.Mkdir(filepath.Join(first, "files"), 0))
	to := t.TempDir()
	made, err := h.backUp(t.Context(), to, ignoreProgress)
	if err != nil || made.Drives != 1 || made.UnreadableFiles != 2 || len(made.Failed) != 1 || made.Failed[0].WorkspaceID != "aa_closed" {
		t.Fatalf("%+v, %v", made, err)
	}
	manifest, err := os.ReadFile(filepath.Join(to, made.BackupID, "manifest.json"))
	if err != nil || !strings.Contains(string(manifest), `\"secret\"`) || !strings.Contains(string(manifest), "aa_closed") {
		t.Errorf("the manifest is %s, %v", manifest, err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	restored, err := restoreInto(t.Context(), dir, to, func(nodebackup.Progress) {})
	if err != nil || restored.Drives != 1 || len(restored.Missing) != 1 {
		t.Fatalf("%+v, %v", restored, err)
	}
	if got := restoredHome(h, dir).content("a"); got != "readable" {
		t.Errorf("a is %q", got)
	}
	// A drive that is missing in a backup begins empty, when the computer of the workspace is replaced.
	h.check(os.Chmod(files, 0))
	made, err = h.backUp(t.Context(), to, ignoreProgress)
	if err != nil || made.Drives != 0 || len(made.Failed) != 2 {
		t.Errorf("%+v, %v", made, err)
	}
	h.check(os.Chmod(files, 0o700))
	without := filepath.Join(t.TempDir(), "restored")
	if restored, err = restoreInto(t.Context(), without, to, func(nodebackup.Progress) {}); err != nil || len(restored.Missing) != 2 {
		t.Fatalf("%+v, %v", restored, err)
	}
	r := restoredHome(h, without)
	r.as(owner, entity.KindComputer, &computerv1.Reprovision{TaskId: "tsk_n", BackupId: "bkp_3"})
	if state := r.done(); state.GetFailed() != nil {
		t.Errorf("after a replacement: %v", state.GetFailed())
	}
	r.put("b", "new")
	for _, path := range []string{filepath.Join(files, "closed"), filepath.Join(first, "files"), filepath.Join(dir, "drives", ws, "files", "closed")} {
		h.check(os.Chmod(path, 0o700))
	}
}
