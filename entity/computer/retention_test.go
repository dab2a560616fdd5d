package computer_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// TestIncompleteBackupsSpareTheLastGood takes scheduled backups that lack files.
func TestIncompleteBackupsSpareTheLastGood(t *testing.T) {
	for name, lack := range map[string]func(*computerv1.Backup){
		"unreadable": func(b *computerv1.Backup) { b.UnreadableFiles = 1 },
		"changed":    func(b *computerv1.Backup) { b.ChangedFiles = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			l := newScheduled(t)
			l.fire(0)
			l.back(1)
			good := computer.LastGood(l.state).GetId()
			for seq := range uint64(5) {
				l.fire(0)
				b := &computerv1.Backup{SizeBytes: 1, Seq: proto.Uint64(seq + 2)}
				lack(b)
				l.must(&computerv1.ReportBackedUp{TaskId: l.state.GetTask().GetId(), Backup: b})
			}
			if n := len(l.state.GetBackups()); n != int(daily.GetKeep())+1 || l.state.GetBackups()[good] == nil {
				t.Errorf("%d backups are stored, and the last good one is %v", n, l.state.GetBackups()[good])
			}
			l.fire(0)
			l.back(9)
			if n := len(l.state.GetBackups()); n != int(daily.GetKeep()) || l.state.GetBackups()[good] != nil {
				t.Errorf("after a complete backup %d are stored, and the first one is %v", n, l.state.GetBackups()[good])
			}
		})
	}
}
