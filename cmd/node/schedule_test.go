package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// TestScheduledBackups runs a node for some days. It was started without a schedule before, so that the computer is older than
// the schedule.
func TestScheduledBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newStepping(t)
		h.done()
		h.stop()
		h.backupEvery = 24 * time.Hour
		h.start()
		backups := func() []*computerv1.Backup {
			return computer.ByAge(h.ask(entity.KindComputer, &computerv1.DescribeComputer{}).(*computerv1.Computer).GetBackups())
		}
		day := func() {
			time.Sleep(25 * time.Hour)
			synctest.Wait()
		}
		h.put("a", "1")
		day()
		first := backups()
		if len(first) != 1 || first[0].GetOrigin() != computerv1.BackupOrigin_BACKUP_ORIGIN_SCHEDULED || first[0].GetSeq() != 1 {
			t.Fatalf("after a day: %v", first)
		}
		day()
		if again := backups(); len(again) != 1 {
			t.Errorf("without a change: %v", again)
		}
		for _, content := range []string{"2", "3"} {
			h.put("a", content)
			day()
		}
		if kept := backups(); len(kept) != 2 || kept[0].GetSeq() != 2 || kept[1].GetSeq() != 3 {
			t.Errorf("after two more: %v", kept)
		}
		h.put("a", "4")
		h.stop()
		time.Sleep(10 * 24 * time.Hour)
		h.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if kept := backups(); len(kept) != 2 || kept[1].GetSeq() != 4 {
			t.Errorf("after ten days without the node: %v", kept)
		}
		h.ask(entity.KindComputer, &computerv1.Restore{TaskId: "tsk_r", BackupId: backups()[0].GetId()})
		if state := h.done(); state.GetFailed() != nil || h.content("a") != "3" {
			t.Errorf("restored %q, %v", h.content("a"), state.GetFailed())
		}
		h.backupEvery = 0
		h.stop()
		h.start()
		day()
		if timers := computer.Timers(h.ask(entity.KindComputer, &computerv1.DescribeComputer{}).(*computerv1.Computer)); len(timers) > 0 {
			t.Errorf("without a schedule: %v", timers)
		}
		h.stop()
		h.start() // the cleanup stops it
	})
}
