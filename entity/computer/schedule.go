package computer

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Backups are taken on a schedule by a timer:
//
//	BackUpOnSchedule ──► BACK_UP ──ReportBackedUp──► taken; the oldest scheduled backups beyond the policy's number are dropped
//	                        └──ReportCovered──► the drive has not changed since the last good backup
//
// The times of a workspace's backups are a multiple of the interval after an offset that depends on its id, so that the
// backups of many workspaces are spread over the interval. A time that passes while the node is down is made up for once.

// The limits of a policy.
const (
	MinBackupInterval = time.Minute
	MaxBackupInterval = 366 * 24 * time.Hour
)

const (
	// scheduleTimer is the id of the timer of the next scheduled backup.
	scheduleTimer = "backup"
	// busyPause is the pause after which a scheduled backup is tried again while another task is open.
	busyPause = 5 * time.Minute
	// failurePause is the longest pause after a scheduled backup has failed.
	failurePause = time.Hour
)

var errBackupPolicy = entity.Errorf(entity.InvalidRequest, "backups need an interval of %s to %s, or 0 for none, and a number to keep of 1 to %d",
	MinBackupInterval, MaxBackupInterval, MaxBackups)

// CheckBackupPolicy validates a policy. A policy without an interval needs no number. Errors: invalid_request.
func CheckBackupPolicy(p *computerv1.BackupPolicy) error {
	every := p.GetEveryMs()
	switch {
	case every == 0 && p.GetKeep() >= 0 && p.GetKeep() <= MaxBackups:
		return nil
	case every < MinBackupInterval.Milliseconds(), every > MaxBackupInterval.Milliseconds(), p.GetKeep() < 1, p.GetKeep() > MaxBackups:
		return errBackupPolicy
	}
	return nil
}

// EffectivePolicy returns the policy that applies to a workspace; nil if there is none.
func EffectivePolicy(s *computerv1.Computer) *computerv1.BackupPolicy {
	if own := s.GetSchedule().GetOwn(); own != nil {
		return own
	}
	return s.GetSchedule().GetNode()
}

// Timers returns the timer of the next scheduled backup.
func Timers(s *computerv1.Computer) []entity.Timer {
	at := s.GetSchedule().GetNextAt()
	if at == 0 || !isPresent(s) {
		return nil
	}
	return []entity.Timer{{ID: scheduleTimer, At: at, Message: &computerv1.BackUpOnSchedule{At: at}}}
}

// setPolicy replaces the policy of the workspace; nil: the policy of the node applies. Errors: invalid_request.
func setPolicy(call entity.Call, s *computerv1.Computer, own *computerv1.BackupPolicy) ([]computerv1.Event, error) {
	if err := CheckBackupPolicy(own); err != nil {
		return nil, err
	}
	return changePolicy(call, s, own, s.GetSchedule().GetNode()), nil
}

// applyNodePolicy replaces the policy of the node. Errors: invalid_request.
func applyNodePolicy(call entity.Call, s *computerv1.Computer, node *computerv1.BackupPolicy) ([]computerv1.Event, error) {
	if err := CheckBackupPolicy(node); err != nil {
		return nil, err
	}
	return changePolicy(call, s, s.GetSchedule().GetOwn(), node), nil
}

// changePolicy changes the policies. The time of the next backup changes only if the interval does, or if it is more than two
// intervals ahead: then it is of a clock that was ahead.
func changePolicy(call entity.Call, s *computerv1.Computer, own, node *computerv1.BackupPolicy) []computerv1.Event {
	old := s.GetSchedule()
	every := EffectivePolicy(&computerv1.Computer{Schedule: &computerv1.Schedule{Own: own, Node: node}}).GetEveryMs()
	isAhead := every > 0 && old.GetNextAt() > call.At()+2*every
	if proto.Equal(own, old.GetOwn()) && proto.Equal(node, old.GetNode()) && !isAhead || old == nil && own == nil && node.GetEveryMs() == 0 {
		return nil
	}
	e := &computerv1.BackupPolicyChanged{Own: own, Node: node, NextAt: old.GetNextAt(), Since: old.GetSince()}
	if every != EffectivePolicy(s).GetEveryMs() || isAhead {
		e.NextAt, e.Since = nextBackup(call.Identity, call.At(), every), call.At()
	}
	if every == 0 {
		e.NextAt, e.Since = 0, 0
	}
	return []computerv1.Event{e}
}

// nextBackup returns the time of the first scheduled backup of a workspace after a time; every is the interval. All are in
// milliseconds.
func nextBackup(workspaceID string, after, every int64) int64 {
	if every == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(workspaceID))
	offset := int64(binary.BigEndian.Uint64(sum[:8]) % uint64(every))
	return (after-offset)/every*every + offset + every
}

// backUpOnSchedule opens the task of a scheduled backup and sets the time of the next one. If another task is open, it
// postpones the backup. It has no effect if the time of the command is not the time of the next backup.
func backUpOnSchedule(call entity.Call, s *computerv1.Computer, c *computerv1.BackUpOnSchedule) []computerv1.Event {
	every := EffectivePolicy(s).GetEveryMs()
	switch {
	case every == 0 || !isPresent(s) || c.GetAt() != s.GetSchedule().GetNextAt():
		return nil
	case s.GetTask() != nil:
		return []computerv1.Event{&computerv1.BackupPostponed{NextAt: call.At() + min(every, busyPause.Milliseconds())}}
	}
	id := scheduledID(call, c.GetAt())
	opened := open(call, &computerv1.Task{
		Id: "tsk_" + id, Kind: computerv1.TaskKind_TASK_KIND_BACK_UP, BackupId: "bkp_" + id, Scheduled: true,
	})
	return append(opened, &computerv1.BackupPostponed{NextAt: nextBackup(call.Identity, call.At(), every)})
}

// scheduledID returns the part of the ids of a scheduled backup and its task. It depends on the workspace, the time, and the version
// of the event: the same time is due again after the clock was set back, and the backup must not replace the earlier one.
func scheduledID(call entity.Call, at int64) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte(call.Identity+"/"), uint64(at)), call.Version))
	return hex.EncodeToString(sum[:13])
}

// reportCovered ends the task of a scheduled backup that was not needed.
func reportCovered(call entity.Call, s *computerv1.Computer, c *computerv1.ReportCovered) []computerv1.Event {
	if !isOpenTask(s, c.GetTaskId(), computerv1.TaskKind_TASK_KIND_BACK_UP) {
		return nil
	}
	return []computerv1.Event{&computerv1.BackupCovered{
		TaskId: c.GetTaskId(), BackupId: c.GetBackupId(), Seq: c.GetSeq(), At: call.At(),
	}}
}

// retryAfterFailure sets an earlier time for the next scheduled backup after one has failed.
func retryAfterFailure(call entity.Call, s *computerv1.Computer) []computerv1.Event {
	at := call.At() + failurePause.Milliseconds()
	if !s.GetTask().GetScheduled() || at >= s.GetSchedule().GetNextAt() {
		return nil
	}
	return []computerv1.Event{&computerv1.BackupPostponed{NextAt: at}}
}

// LastGood returns the backup that covers the most operations and is not known to be incomplete or damaged; nil if there is
// none.
func LastGood(s *computerv1.Computer) *computerv1.Backup {
	var last *computerv1.Backup
	for _, b := range ByAge(s.GetBackups()) {
		if b.Seq != nil && b.GetSeq() >= last.GetSeq() && isComplete(b) && b.GetVerification().GetFailure() == "" {
			last = b
		}
	}
	return last
}

// isComplete reports whether a backup has each file of the drive, as it was at one time.
func isComplete(b *computerv1.Backup) bool {
	return b.GetChangedFiles() == 0 && b.GetUnreadableFiles() == 0
}

// ByAge returns backups, the oldest first: in the order in which the stream has recorded them. Their times follow a clock, which may
// have been ahead or behind. The backups of earlier rules, which did not record a version, come first; the operations that they
// cover order them, and then their times.
func ByAge(backups map[string]*computerv1.Backup) []*computerv1.Backup {
	return slices.SortedFunc(maps.Values(backups), func(a, b *computerv1.Backup) int {
		return cmp.Or(cmp.Compare(a.GetVersion(), b.GetVersion()), cmp.Compare(a.GetSeq(), b.GetSeq()),
			cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()), cmp.Compare(a.GetId(), b.GetId()))
	})
}

// backupsToDrop returns the backups that are dropped when another backup is added. A scheduled backup replaces the oldest
// scheduled ones beyond the number that the policy keeps. If there are more than MaxBackups, the oldest scheduled ones are
// dropped first, and then the oldest of all. A backup that is not complete never replaces the last good one, which may be the only
// one with the files that it lacks.
func backupsToDrop(s *computerv1.Computer, added *computerv1.Backup) []*computerv1.Backup {
	var spared string
	if !isComplete(added) {
		spared = LastGood(s).GetId()
	}
	others := ByAge(s.GetBackups())
	beyond := len(others) + 1 - MaxBackups
	others = slices.DeleteFunc(others, func(b *computerv1.Backup) bool {
		if b.GetId() == added.GetId() {
			beyond--
		}
		return b.GetId() == added.GetId() || b.GetId() == spared
	})
	isScheduled := func(b *computerv1.Backup) bool {
		return b.GetOrigin() == computerv1.BackupOrigin_BACKUP_ORIGIN_SCHEDULED
	}
	slices.SortStableFunc(others, func(a, b *computerv1.Backup) int {
		if isScheduled(a) == isScheduled(b) {
			return 0
		}
		if isScheduled(a) {
			return -1
		}
		return 1
	})
	scheduled := slices.IndexFunc(others, func(b *computerv1.Backup) bool { return !isScheduled(b) })
	if scheduled < 0 {
		scheduled = len(others)
	}
	excess := beyond
	if keep := int(EffectivePolicy(s).GetKeep()); isScheduled(added) && keep > 0 {
		excess = max(excess, scheduled+1-keep)
	}
	return others[:min(max(0, excess), len(others))]
}

// ScheduleList has one row if the workspace has a schedule.
const ScheduleList = "computer.schedule"

const scheduleKey = "schedule"

// scheduleRow returns the row in ScheduleList; nil if the workspace has no schedule.
func scheduleRow(s *computerv1.Computer) *computerv1.ScheduleRow {
	schedule := s.GetSchedule()
	if schedule == nil {
		return nil
	}
	row := &computerv1.ScheduleRow{
		WorkspaceId: s.GetWorkspaceId(), Node: schedule.GetNode(), EveryMs: EffectivePolicy(s).GetEveryMs(), Since: schedule.GetSince(),
		GoodAt: schedule.GetCoveredAt(),
	}
	if !isPresent(s) {
		row.EveryMs = 0
	}
	if all := ByAge(s.GetBackups()); len(all) > 0 {
		row.GoodAt = max(row.GoodAt, all[len(all)-1].GetCreatedAt())
	}
	return row
}

// scheduleRows returns the change of ScheduleList.
func scheduleRows(before, after *computerv1.Computer) []entity.Row {
	row := scheduleRow(after)
	if row == nil || proto.Equal(row, scheduleRow(before)) {
		return nil
	}
	return []entity.Row{{List: ScheduleList, Key: scheduleKey, Message: row}}
}

// evolveSchedule returns the schedule after an event.
func evolveSchedule(schedule *computerv1.Schedule, e computerv1.Event) *computerv1.Schedule {
	switch e := e.(type) {
	case *computerv1.BackupPolicyChanged:
		return &computerv1.Schedule{
			Own: e.GetOwn(), Node: e.GetNode(), NextAt: e.GetNextAt(), Since: e.GetSince(), CoveredAt: schedule.GetCoveredAt(),
		}
	case *computerv1.BackupPostponed:
		next := entity.ShallowCopy(schedule)
		next.NextAt = e.GetNextAt()
		return next
	case *computerv1.BackupCovered:
		if schedule == nil {
			return nil
		}
		next := entity.ShallowCopy(schedule)
		next.CoveredAt = e.GetAt()
		return next
	case *computerv1.BackupTaken:
		if schedule.GetCoveredAt() <= e.GetBackup().GetCreatedAt() {
			return schedule
		}
		next := entity.ShallowCopy(schedule)
		next.CoveredAt = e.GetBackup().GetCreatedAt() // the clock was ahead when the backup before covered the drive
		return next
	default:
		return schedule
	}
}
