package computer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/entitytest"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// drawPolicy draws a policy, which is invalid at times, or nil.
func drawPolicy(t *rapid.T) *computerv1.BackupPolicy {
	every := rapid.SampledFrom([]time.Duration{-1, 0, time.Second, time.Hour, 24 * time.Hour}).Draw(t, "every")
	if every < 0 {
		return nil
	}
	return &computerv1.BackupPolicy{EveryMs: every.Milliseconds(), Keep: rapid.Int32Range(0, 3).Draw(t, "keep")}
}

// daily is the policy of the tests: a backup a day, and two stored backups.
var daily = &computerv1.BackupPolicy{EveryMs: day, Keep: 2}

const day = int64(24 * time.Hour / time.Millisecond)

// newScheduled returns a computer with daily backups.
func newScheduled(t rapid.TB) *stored {
	l := newActive(t)
	l.must(&computerv1.ApplyNodePolicy{Policy: daily})
	return l
}

// due returns the time of the only timer.
func (l *stored) due() int64 {
	l.t.Helper()
	timers := computer.Timers(l.state)
	if len(timers) != 1 {
		l.t.Fatalf("timers %v, want one", timers)
	}
	return timers[0].At
}

// fire sends the command of the timer when it is due, or later by a delay.
func (l *stored) fire(delay time.Duration) {
	l.t.Helper()
	timer := computer.Timers(l.state)[0]
	l.now = time.UnixMilli(timer.At).Add(delay)
	l.must(timer.Message.(computerv1.Command))
}

// back completes the open backup, which covers a seq.
func (l *stored) back(seq uint64) {
	l.t.Helper()
	l.must(&computerv1.ReportBackedUp{TaskId: l.state.GetTask().GetId(), Backup: &computerv1.Backup{SizeBytes: 1, Seq: &seq}})
}

// origins returns the origins of the backups, oldest first.
func (l *stored) origins() string {
	var all []string
	for _, b := range computer.ByAge(l.state.GetBackups()) {
		all = append(all, strings.ToLower(strings.TrimPrefix(b.GetOrigin().String(), "BACKUP_ORIGIN_")))
	}
	return strings.Join(all, " ")
}

func TestScheduledBackups(t *testing.T) {
	l := newScheduled(t)
	first := l.due()
	if at := l.now.UnixMilli(); first <= at-1000 || first > at+day {
		t.Fatalf("the first backup is due %d ms after the beginning of the schedule", first-at)
	}
	l.fire(0)
	task := l.state.GetTask()
	if task.GetKind() != computerv1.TaskKind_TASK_KIND_BACK_UP || !task.GetScheduled() || l.due() != first+day {
		t.Fatalf("task %v, next at %d; want a backup, and the next %d later", task, l.due()-first, day)
	}
	l.must(&computerv1.BackUpOnSchedule{At: first}) // the timer repeats its command
	if !proto.Equal(l.state.GetTask(), task) || l.due() != first+day {
		t.Errorf("a repeated command has an effect")
	}
	l.back(3)
	if l.origins() != "scheduled" || l.audit[len(l.audit)-1].GetActorId() == "usr_1" {
		t.Errorf("backups %s, audit %v", l.origins(), l.audit)
	}
	l.fire(5*24*time.Hour + time.Minute) // the node was down
	if want := first + 7*day; l.due() != want {
		t.Errorf("after five missed backups the next is due %d days after the first, want %d", (l.due()-first)/day, 7)
	}
}

// TestScheduleSpreadsWorkspaces checks that the backups of workspaces are due at different times of the interval.
func TestScheduleSpreadsWorkspaces(t *testing.T) {
	quarters := map[int64]int{}
	for i := range 400 {
		s := computer.Zero(fmt.Sprintf("ws_%d", i))
		now := time.UnixMilli(1_700_000_000_000)
		call := entity.Call{Now: now, Identity: s.GetWorkspaceId(), Principal: entity.Platform(), Version: 1}
		after, _, err := rules.Execute(t, call, s, &computerv1.ApplyNodePolicy{Policy: daily})
		if err != nil {
			t.Fatal(err)
		}
		quarters[(after.GetSchedule().GetNextAt()-now.UnixMilli())*4/day]++
	}
	for quarter := range int64(4) {
		if n := quarters[quarter]; n < 60 || n > 140 {
			t.Errorf("%d of 400 workspaces are due in quarter %d of the interval: %v", n, quarter, quarters)
		}
	}
}

func TestRetention(t *testing.T) {
	l := newActive(t)
	l.must(&computerv1.BackUp{TaskId: "tsk_m", BackupId: "bkp_m"})
	l.back(1)
	if _, err := l.as(owner, &computerv1.Reprovision{TaskId: "tsk_r", BackupId: "bkp_r", DriveReadable: true}); err != nil {
		t.Fatal(err)
	}
	l.back(2)
	l.must(&computerv1.ReportProvisioned{TaskId: "tsk_r", VmName: "vm-2"})
	l.must(&computerv1.SetBackupPolicy{Policy: daily})
	for seq := range uint64(4) {
		l.fire(0)
		l.back(seq + 3)
	}
	if got := l.origins(); got != "unspecified replacement scheduled scheduled" {
		t.Errorf("backups %s", got)
	}
	if n := len(l.rows[computer.BackupList]); n != 4 || len(l.state.GetDropped()) != 2 {
		t.Errorf("%d rows and %d dropped, want 4 and 2", n, len(l.state.GetDropped()))
	}
	// MaxBackups drops scheduled backups first, and only then the backups that were taken by hand.
	for i := range computer.MaxBackups - 1 {
		l.must(&computerv1.BackUp{TaskId: fmt.Sprint("tsk_", i), BackupId: fmt.Sprint("bkp_", i)})
		l.back(9)
	}
	if n := len(l.state.GetBackups()); n != computer.MaxBackups || l.state.GetBackups()["bkp_m"] != nil || strings.Contains(l.origins(), "scheduled") {
		t.Errorf("%d backups: %s", n, l.origins())
	}
}

// TestClockSteps takes scheduled backups while the clock is set forward and back, and checks that the last ones are stored.
func TestClockSteps(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, step := range map[string]time.Duration{"ahead": year, "behind": -year} {
		t.Run(name, func(t *testing.T) {
			l := newScheduled(t)
			taken := 0
			take := func(n int) {
				for range n {
					// As the platform does after a step of the clock; it makes the next backup due soon.
					l.must(&computerv1.ApplyNodePolicy{Policy: daily})
					if wait := l.due() - l.now.UnixMilli(); wait > day {
						t.Fatalf("the next backup is due in %d days", wait/day)
					}
					l.fire(0)
					taken++
					l.back(uint64(taken))
				}
			}
			expect := func() {
				t.Helper()
				var stored []uint64
				for _, b := range computer.ByAge(l.state.GetBackups()) {
					stored = append(stored, b.GetSeq())
				}
				if want := []uint64{uint64(taken - 1), uint64(taken)}; !slices.Equal(stored, want) {
					t.Fatalf("the backups cover the operations up to %v, want %v", stored, want)
				}
				newest := computer.LastGood(l.state)
				if row := l.rows[computer.ScheduleList]["schedule"].(*computerv1.ScheduleRow); row.GetGoodAt() != newest.GetCreatedAt() {
					t.Errorf("the last backup is of %d, and the row says %d", newest.GetCreatedAt(), row.GetGoodAt())
				}
			}
			take(2)
			l.now = l.now.Add(step)
			take(1)
			expect()
			l.fire(0)
			l.must(&computerv1.ReportCovered{TaskId: l.state.GetTask().GetId(), BackupId: computer.LastGood(l.state).GetId(), Seq: uint64(taken)})
			l.now = l.now.Add(-step)
			for range 4 {
				take(1)
				expect()
			}
		})
	}
}

// TestSameTimeAgain checks that a scheduled backup does not replace an earlier scheduled backup with the same time. The time is due
// again because the clock was set back.
func TestSameTimeAgain(t *testing.T) {
	l := newScheduled(t)
	first := l.due()
	l.fire(0)
	l.back(1)
	l.now = time.UnixMilli(first - 3*day)
	l.must(&computerv1.ApplyNodePolicy{Policy: daily})
	for l.due() < first {
		l.fire(0)
		l.must(&computerv1.ReportCovered{TaskId: l.state.GetTask().GetId(), Seq: 1})
	}
	if l.due() != first {
		t.Fatalf("due %d ms after the first backup", l.due()-first)
	}
	l.fire(0)
	l.back(2)
	if got := l.origins(); got != "scheduled scheduled" {
		t.Errorf("backups %s", got)
	}
}

// TestRetentionIgnoresClock sets the clock at random between scheduled backups: retention keeps the backups that were taken last.
func TestRetentionIgnoresClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newActive(t)
		l.must(&computerv1.ApplyNodePolicy{Policy: daily})
		n := rapid.IntRange(1, 8).Draw(t, "backups")
		for seq := range n {
			l.now = time.UnixMilli(rapid.Int64Range(1, 3000*day).Draw(t, "now"))
			l.must(&computerv1.ApplyNodePolicy{Policy: daily})
			timer := computer.Timers(l.state)[0]
			l.now = time.UnixMilli(max(l.now.UnixMilli(), timer.At))
			l.must(timer.Message.(computerv1.Command))
			l.back(uint64(seq))
		}
		all := computer.ByAge(l.state.GetBackups())
		if len(all) != min(n, int(daily.GetKeep())) {
			t.Fatalf("%d backups are stored of %d", len(all), n)
		}
		for i, b := range all {
			if want := uint64(n - len(all) + i); b.GetSeq() != want {
				t.Errorf("backup %d of %d covers %d, want %d", i, len(all), b.GetSeq(), want)
			}
		}
	})
}

// TestAgeOfEarlierBackups orders backups that earlier rules recorded without a version, one of them in the future.
func TestAgeOfEarlierBackups(t *testing.T) {
	all := map[string]*computerv1.Backup{}
	for i, b := range []*computerv1.Backup{
		{CreatedAt: 5}, {CreatedAt: 90, Seq: proto.Uint64(3)}, {CreatedAt: 7, Seq: proto.Uint64(4)}, {CreatedAt: 8, Seq: proto.Uint64(4)},
		{CreatedAt: 6, Seq: proto.Uint64(4), Version: 20}, {CreatedAt: 2, Seq: proto.Uint64(4), Version: 30},
	} {
		b.Id = fmt.Sprint(9 - i)
		all[b.Id] = b
	}
	order := ""
	for _, b := range computer.ByAge(all) {
		order += b.GetId()
	}
	if order != "987654" {
		t.Errorf("the order is %s", order)
	}
}

func TestScheduledBackupIsNotNeeded(t *testing.T) {
	l := newScheduled(t)
	l.fire(0)
	if work := computer.Tasks(l.state)[0].Message.(*computerv1.Work); work.GetLastGood() != nil {
		t.Errorf("the first backup has the last good one %v", work.GetLastGood())
	}
	l.back(3)
	l.fire(0)
	last := computer.Tasks(l.state)[0].Message.(*computerv1.Work).GetLastGood()
	if last.GetSeq() != 3 {
		t.Fatalf("the last good backup is %v", last)
	}
	l.must(&computerv1.ReportCovered{TaskId: l.state.GetTask().GetId(), BackupId: last.GetId(), Seq: 3})
	row := l.rows[computer.ScheduleList]["schedule"].(*computerv1.ScheduleRow)
	if l.state.GetTask() != nil || len(l.state.GetBackups()) != 1 || row.GetGoodAt() != l.state.GetSchedule().GetCoveredAt() || row.GetGoodAt() == 0 {
		t.Errorf("state %v, row %v", l.state, row)
	}
}

func TestLastGood(t *testing.T) {
	for name, spoil := range map[string]func(b *computerv1.Backup){
		"damaged":             func(b *computerv1.Backup) { b.Verification = &computerv1.Verification{Failure: "damaged"} },
		"changed while read":  func(b *computerv1.Backup) { b.ChangedFiles = 1 },
		"without some files":  func(b *computerv1.Backup) { b.UnreadableFiles = 1 },
		"of an older version": func(b *computerv1.Backup) { b.Seq = nil },
	} {
		good, bad := &computerv1.Backup{Id: "bkp_1", CreatedAt: 1, Seq: proto.Uint64(3)}, &computerv1.Backup{Id: "bkp_2", CreatedAt: 2, Seq: proto.Uint64(4)}
		state := &computerv1.Computer{Backups: map[string]*computerv1.Backup{"bkp_1": good, "bkp_2": bad}}
		if got := computer.LastGood(state); got != bad {
			t.Errorf("%s: the last good one is %v before", name, got)
		}
		spoil(bad)
		if got := computer.LastGood(state); got != good {
			t.Errorf("%s: the last good one is %v", name, got)
		}
	}
}

func TestScheduleWaitsForOtherTasksAndRetries(t *testing.T) {
	l := newScheduled(t)
	l.must(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bak_1"})
	due := l.due()
	l.fire(0)
	if l.state.GetTask().GetId() != "tsk_2" || l.due() != due+5*time.Minute.Milliseconds() {
		t.Errorf("beside another task: %v, next in %d ms", l.state.GetTask(), l.due()-due)
	}
	l.back(1)
	l.fire(0)
	l.must(&computerv1.ReportFailed{TaskId: l.state.GetTask().GetId(), Reason: "no bucket"})
	failed := l.state.GetFailed()
	if l.due() != failed.GetAt()+time.Hour.Milliseconds() || failed.GetReason() != "no bucket" || failed.GetKind() != computerv1.TaskKind_TASK_KIND_BACK_UP {
		t.Errorf("after %v the next is due in %d ms", failed, l.due()-failed.GetAt())
	}
}

func TestPolicies(t *testing.T) {
	l := newScheduled(t)
	due := l.due()
	l.must(&computerv1.SetBackupPolicy{Policy: &computerv1.BackupPolicy{EveryMs: day, Keep: 9}})
	if l.due() != due || computer.EffectivePolicy(l.state).GetKeep() != 9 {
		t.Errorf("another number: %v", l.state.GetSchedule())
	}
	l.must(&computerv1.SetBackupPolicy{Policy: &computerv1.BackupPolicy{}})
	if timers := computer.Timers(l.state); len(timers) > 0 {
		t.Errorf("no backups: %v", timers)
	}
	l.must(&computerv1.SetBackupPolicy{})
	if l.due() <= l.now.UnixMilli()-1000 {
		t.Errorf("the policy of the node again: %v", l.state.GetSchedule())
	}
	l.must(&computerv1.RetireComputer{TaskId: "tsk_9"})
	l.must(&computerv1.ReportRetired{TaskId: "tsk_9"})
	if timers := computer.Timers(l.state); len(timers) > 0 {
		t.Errorf("without a computer: %v", timers)
	}
	for _, invalid := range []*computerv1.BackupPolicy{{EveryMs: 1, Keep: 1}, {EveryMs: -day, Keep: 1}, {EveryMs: day}, {EveryMs: day, Keep: 101}, {EveryMs: 400 * day, Keep: 1}} {
		if _, err := l.as(entity.Platform(), &computerv1.SetBackupPolicy{Policy: invalid}); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%v: %v", invalid, err)
		}
	}
}

// TestNewComputerHasNodePolicy checks that the report of the first provision begins the schedule.
func TestNewComputerHasNodePolicy(t *testing.T) {
	l := newStored(t)
	l.must(&computerv1.RequestComputer{TaskId: "tsk_1"})
	l.must(&computerv1.ReportProvisioned{TaskId: "tsk_1", VmName: "vm-1", Policy: daily})
	if l.due() == 0 {
		t.Error("no backup is due")
	}
}

func TestVerifyBackup(t *testing.T) {
	l := newActive(t)
	l.must(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
	l.back(1)
	if _, err := l.as(entity.Platform(), &computerv1.VerifyBackup{TaskId: "tsk_3", BackupId: "bkp_2"}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("an unknown backup: %v", err)
	}
	logged := len(l.audit)
	for task, failure := range map[string]string{"tsk_3": "", "tsk_4": "the hash differs"} {
		l.must(&computerv1.VerifyBackup{TaskId: task, BackupId: "bkp_1"})
		if work := computer.Tasks(l.state)[0]; work.Kind != computer.VerifyTask || work.Message.(*computerv1.Work).GetBackup().GetId() != "bkp_1" {
			t.Fatalf("task %v", work)
		}
		l.must(&computerv1.ReportVerified{TaskId: task, Failure: failure})
		v := l.state.GetBackups()["bkp_1"].GetVerification()
		if v.GetFailure() != failure || v.GetAt() == 0 || l.state.GetFailed().GetReason() != failure || l.state.GetTask() != nil {
			t.Errorf("after %q: %v, %v", failure, v, l.state.GetFailed())
		}
		if row := l.rows[computer.BackupList]["bkp_1"].(*computerv1.Backup); !proto.Equal(row.GetVerification(), v) {
			t.Errorf("row %v", row)
		}
	}
	if len(l.audit) != logged {
		t.Errorf("audit %v", l.audit[logged:])
	}
}

// TestFailedBackupIsDropped checks that a backup is deleted if its last attempt may have stored it before it failed, and that no
// other task that fails drops a backup.
func TestFailedBackupIsDropped(t *testing.T) {
	l := newScheduled(t)
	failed := func(name string) *computerv1.Backup {
		t.Helper()
		task := l.state.GetTask()
		l.must(&computerv1.ReportFailed{TaskId: task.GetId(), Reason: "no answer"})
		if open := computer.Tasks(l.state); len(open) != 1 || open[0].Kind != computer.RemoveBackupTask {
			t.Fatalf("%s: the open tasks are %v", name, open)
		}
		return l.state.GetDropped()[task.GetBackupId()]
	}
	remove := func(b *computerv1.Backup) { l.must(&computerv1.ReportRemoved{BackupId: b.GetId()}) }
	l.must(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_2"})
	remove(failed("a backup"))
	l.fire(0)
	remove(failed("a scheduled backup"))
	if _, err := l.as(owner, &computerv1.Reprovision{TaskId: "tsk_3", BackupId: "bkp_3", DriveReadable: true}); err != nil {
		t.Fatal(err)
	}
	remove(failed("the backup of a replacement"))

	l.must(&computerv1.BackUp{TaskId: "tsk_4", BackupId: "bkp_4"})
	l.back(1)
	for _, c := range []computerv1.Command{
		&computerv1.VerifyBackup{TaskId: "tsk_5", BackupId: "bkp_4"}, &computerv1.Restore{TaskId: "tsk_5", BackupId: "bkp_4"},
	} {
		l.must(c)
		l.must(&computerv1.ReportFailed{TaskId: "tsk_5", Reason: "no answer"})
		if len(computer.Tasks(l.state)) > 0 || l.state.GetBackups()["bkp_4"] == nil {
			t.Errorf("%T has failed: %v", c, l.state)
		}
	}
}

func TestCancelTask(t *testing.T) {
	l := newActive(t)
	l.must(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
	l.must(&computerv1.CancelTask{TaskId: "tsk_1"})
	if l.state.GetTask() == nil {
		t.Error("another task was cancelled")
	}
	l.must(&computerv1.CancelTask{TaskId: "tsk_2"})
	if l.state.GetTask() != nil || l.state.GetFailed().GetReason() == "" || l.state.GetDropped()["bkp_1"] == nil {
		t.Errorf("a cancelled backup: %v", l.state)
	}
	l.must(&computerv1.CancelTask{}) // none is open
	l.must(&computerv1.ReportRemoved{BackupId: "bkp_1"})
	l.must(&computerv1.ReportBackedUp{TaskId: "tsk_2", Backup: &computerv1.Backup{Id: "bkp_1", Object: "o"}})
	if len(l.state.GetBackups()) > 0 || l.state.GetDropped()["bkp_1"] == nil {
		t.Errorf("a backup that came too late: %v", l.state)
	}
	l.must(&computerv1.RetireComputer{TaskId: "tsk_3"})
	if _, err := l.as(entity.Platform(), &computerv1.CancelTask{}); entitytest.Code(err) != entity.InvalidRequest {
		t.Errorf("the retirement of the computer: %v", err)
	}
}
