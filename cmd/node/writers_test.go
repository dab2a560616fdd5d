package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// TestBackupWhileWriting takes backups while a client puts files and a process rewrites one in place. Each backup has all files with
// rows up to its seq, and the process's file as it was at one time, unless the backup names it.
func TestBackupWhileWriting(t *testing.T) {
	h := newHome(t)
	h.done()
	path := h.touch("rewritten")
	var writers sync.WaitGroup
	ended := make(chan struct{})
	put, d := 0, h.drive()
	writers.Go(func() {
		for put = 0; ; put++ {
			select {
			case <-ended:
				return
			default:
			}
			name := fmt.Sprint("put", put+1)
			if _, _, err := d.Put(t.Context(), name, drive.Upload{Body: strings.NewReader(name), Size: -1}, change); err != nil {
				t.Error(err)
				return
			}
		}
	})
	writers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
			}
			if err := os.WriteFile(path, []byte(strings.Repeat(string(rune('a'+i%26)), 300_000)), 0o600); err != nil {
				t.Error(err)
				return
			}
		}
	})
	const backups = 5
	for i := range backups {
		h.ask(entity.KindComputer, &computerv1.BackUp{TaskId: fmt.Sprint("tsk_", i), BackupId: fmt.Sprint("bkp_", i)})
		h.done()
	}
	close(ended)
	writers.Wait()
	for i := range backups {
		h.ask(entity.KindComputer, &computerv1.Restore{TaskId: fmt.Sprint("tsk_r", i), BackupId: fmt.Sprint("bkp_", i)})
		b := h.done().GetBackups()[fmt.Sprint("bkp_", i)]
		for seq := range b.GetSeq() {
			name := fmt.Sprint("put", seq+1)
			if got := h.content(name); got != name {
				t.Fatalf("backup %d covers %d of %d rows, and has not %s: %s", i, b.GetSeq(), put, name, got)
			}
		}
		content, err := os.ReadFile(filepath.Join(h.dir, "drives", ws, "files", "rewritten"))
		if err != nil || len(content) > 0 && b.GetChangedFiles() == 0 && strings.Trim(string(content), string(content[:1])) != "" {
			t.Errorf("backup %d has a torn file of %d bytes, %v: %v", i, len(content), err, b)
		}
	}
}
