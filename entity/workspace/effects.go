package workspace

import (
	"maps"
	"slices"
	"strconv"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The kinds of tasks that a workspace opens, beside MailTask. The message of a LockTask is a workspacev1.LockRemoval, that
// of an AnchorCheckTask a workspacev1.AnchorCheck.
const (
	LockTask        = "drive.remove_locks"
	AnchorCheckTask = "drive.check_anchors"
)

// anchorCheckID is the ID of the only AnchorCheckTask that a workspace may have open.
const anchorCheckID = "anchors"

// Tasks returns the mails that are to be sent, the locks that are to be removed, and the check of the anchors if one was
// asked for. A deleted workspace has none.
func Tasks(s *workspacev1.Workspace) []entity.Task {
	if deleted(s) {
		return nil
	}
	all := mailTasks(s)
	for _, userID := range slices.Sorted(maps.Keys(s.GetLockRemovals())) {
		removal := s.GetLockRemovals()[userID]
		all = append(all, entity.Task{Kind: LockTask, ID: removal.GetTaskId(), Message: removal})
	}
	if check := s.GetAnchorCheck(); check != 0 {
		all = append(all, entity.Task{Kind: AnchorCheckTask, ID: anchorCheckID, Message: &workspacev1.AnchorCheck{Check: check}})
	}
	return all
}

// Timers returns the time at which the anchor that has been broken the longest is given up. A deleted workspace has none.
func Timers(s *workspacev1.Workspace) []entity.Timer {
	var earliest int64
	for _, a := range s.GetAnchors() {
		if a.GetState() == broken && (earliest == 0 || a.GetBrokenAt() < earliest) {
			earliest = a.GetBrokenAt()
		}
	}
	if earliest == 0 || deleted(s) {
		return nil
	}
	return []entity.Timer{{
		ID: "orphan", At: earliest + orphanAfter.Milliseconds(), Message: &workspacev1.OrphanAnchors{},
	}}
}

// lockRemovalID returns the id of the task that removes the locks of a member whose role changes; empty if the change does
// not take the right to change files away.
func lockRemovalID(call entity.Call, from, to workspacev1.Role) string {
	if !writesFiles(from) || writesFiles(to) {
		return ""
	}
	return "locks." + strconv.FormatUint(call.Version, 10)
}

func writesFiles(role workspacev1.Role) bool { return has(wholeRole, role, entity.FilesWrite) }

// requireLockRemoval notes in a state that is being made that a person's locks are to be removed, or, where the person may
// change files now, that they are not.
func requireLockRemoval(next *workspacev1.Workspace, userID, taskID string, at int64) {
	switch {
	case taskID != "":
		next.LockRemovals = entity.With(next.GetLockRemovals(), userID, &workspacev1.LockRemoval{
			UserId: userID, TaskId: taskID, RequestedAt: at,
		})
	case next.GetLockRemovals()[userID] != nil && writesFiles(next.GetMembers()[userID].GetRole()):
		next.LockRemovals = entity.Without(next.GetLockRemovals(), userID)
	}
}

// locksRemoved ends the removal that the command names. A report of another one changes nothing.
func locksRemoved(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReportLocksRemoved) []workspacev1.Event {
	if removal := s.GetLockRemovals()[c.GetUserId()]; removal == nil || removal.GetTaskId() != c.GetTaskId() {
		return nil
	}
	return []workspacev1.Event{&workspacev1.LocksRemoved{UserId: c.GetUserId(), At: call.At()}}
}

// anchorsChecked ends the check that the command names. A check that was asked for later remains to be made: the drive may
// have changed after this one looked.
func anchorsChecked(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReportAnchorsChecked) []workspacev1.Event {
	if s.GetAnchorCheck() == 0 || s.GetAnchorCheck() != c.GetCheck() {
		return nil
	}
	return []workspacev1.Event{&workspacev1.AnchorsChecked{At: call.At()}}
}
