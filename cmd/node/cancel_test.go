package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// TestCancelBackup cancels the backup of a drive with a file that takes minutes to copy. Nothing of it is left.
func TestCancelBackup(t *testing.T) {
	h := newHome(t)
	h.done()
	h.check(os.Truncate(h.touch("large"), 1<<35)) // sparse, and smaller than the disk
	h.ask(entity.KindComputer, &computerv1.BackUp{TaskId: "tsk_b", BackupId: "bkp_1"})
	for known := false; !known; {
		var done int64
		done, _, known = h.Computers.Progress("tsk_b")
		known = known && done > 0
		if state := h.ask(entity.KindComputer, &computerv1.DescribeComputer{}).(*computerv1.Computer); state.GetTask() == nil {
			t.Fatalf("the backup ended before it was cancelled: %v", state)
		}
		pause(t)
	}
	h.ask(entity.KindComputer, &computerv1.CancelTask{TaskId: "tsk_b"})
	state := h.done()
	if state.GetFailed().GetTaskId() != "tsk_b" || len(state.GetBackups()) > 0 {
		t.Errorf("the computer is %v", state)
	}
	h.check(os.Remove(h.touch("large")))
	h.stop()
	h.check(filepath.WalkDir(filepath.Join(h.dir, "backups"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			t.Errorf("the cancelled backup has left %s", path)
		}
		return err
	}))
	h.start()
}

// touch creates a file on the drive, unless it exists, and returns its path.
func (h *home) touch(name string) string {
	h.Helper()
	path := filepath.Join(h.dir, "drives", ws, "files", name)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	h.check(err)
	h.check(file.Close())
	return path
}

// pause waits for a moment between two looks at a running task.
func pause(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if t.Context().Err() != nil {
		t.Fatal("the test has ended")
	}
}

// TestCancelRestore cancels a restore before the end of its backup arrives. The drive stays as it is.
func TestCancelRestore(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "before")
	h.ask(entity.KindComputer, &computerv1.BackUp{TaskId: "tsk_b", BackupId: "bkp_1"})
	h.done()
	h.put("a", "after")
	object := filepath.Join(h.dir, "backups", ws, "bkp_1.tar.zst")
	content, err := os.ReadFile(object)
	h.check(err)
	h.check(os.Remove(object))
	h.check(unix.Mkfifo(object, 0o600))
	h.ask(entity.KindComputer, &computerv1.Restore{TaskId: "tsk_r", BackupId: "bkp_1"})
	pipe, err := os.OpenFile(object, os.O_WRONLY, 0) // waits for the restore to open the object
	h.check(err)
	_, err = pipe.Write(content[:len(content)/2])
	h.check(err)
	h.ask(entity.KindComputer, &computerv1.CancelTask{TaskId: "tsk_r"})
	if state := h.done(); state.GetFailed().GetTaskId() != "tsk_r" {
		t.Errorf("the computer is %v", state)
	}
	if _, err = pipe.Write(content[len(content)/2:]); !errors.Is(err, unix.EPIPE) { // the restore may have ended already
		h.check(err)
	}
	h.check(pipe.Close())
	h.stop() // waits for the end of the restore
	h.start()
	if got := h.content("a"); got != "after" {
		t.Errorf("a is %q", got)
	}
}
