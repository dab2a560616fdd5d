package workspace

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The kinds of the tasks of a workspace.
const (
	// MailTask mails the link of an invitation. Its message is a workspacev1.InvitationMail.
	MailTask = "mail.invitation"
	// LockTask removes the file locks of a person. Its message is a workspacev1.LockRemoval.
	LockTask = "drive.remove_locks"
	// AnchorCheckTask checks all anchors against the drive. Its message is a workspacev1.AnchorCheck.
	AnchorCheckTask = "drive.check_anchors"
	// SuspendTask interrupts the running sessions of a workspace that was suspended or closed. Its message is a
	// workspacev1.SessionStop, and ReportSessionsStopped completes it.
	SuspendTask = "session.suspend"
)

// anchorCheckID is the ID of the AnchorCheckTask: a workspace has at most one.
const anchorCheckID = "anchors"

// Tasks returns the open tasks: the interruption of the sessions and the check of the anchors, if they were requested, one for
// each requested mail, and one for each requested removal of a person's locks. A deleted workspace only has the first.
func Tasks(s *workspacev1.Workspace) []entity.Task {
	var all []entity.Task
	if stop := s.GetSessionStop(); stop != nil {
		all = append(all, entity.Task{Kind: SuspendTask, ID: stop.GetTaskId(), Message: stop})
	}
	if isDeleted(s) {
		return all
	}
	all = append(all, mailTasks(s)...)
	for _, userID := range slices.Sorted(maps.Keys(s.GetLockRemovals())) {
		removal := s.GetLockRemovals()[userID]
		all = append(all, entity.Task{Kind: LockTask, ID: removal.GetTaskId(), Message: removal})
	}
	if check := s.GetAnchorCheck(); check != 0 {
		all = append(all, entity.Task{Kind: AnchorCheckTask, ID: anchorCheckID, Message: &workspacev1.AnchorCheck{Check: check}})
	}
	return all
}

// Waits reports whether the answer to a query must wait, see the messages ReadDefaultSessions and DescribeWorkspace.
func Waits(call entity.Call, s *workspacev1.Workspace, c workspacev1.Command) bool {
	switch c := c.(type) {
	case *workspacev1.ReadDefaultSessions:
		return awaitsDefaultSession(s, c)
	case *workspacev1.DescribeWorkspace:
		return c.GetAwaitTasksMs() > 0 && hasRecentTask(s, call.At(), time.Duration(c.GetAwaitTasksMs())*time.Millisecond)
	default:
		return false
	}
}

// hasRecentTask reports whether a task is open that requests wait for, and that was opened less than a period before now, in milliseconds
// since the Unix epoch: the provisioning of the computer, or a removal of locks.
func hasRecentTask(s *workspacev1.Workspace, now int64, period time.Duration) bool {
	if s.GetStatus() == workspacev1.Status_STATUS_PROVISIONING && !entity.HasPassed(s.GetCreatedAt(), now, period) {
		return true
	}
	for _, removal := range s.GetLockRemovals() {
		if !entity.HasPassed(removal.GetRequestedAt(), now, period) {
			return true
		}
	}
	return false
}

// Timers returns the timer that orphans the anchor that has been broken the longest. A deleted workspace has none.
func Timers(s *workspacev1.Workspace) []entity.Timer {
	var earliest int64
	for _, a := range s.GetAnchors() {
		if a.GetState() == broken && (earliest == 0 || a.GetBrokenAt() < earliest) {
			earliest = a.GetBrokenAt()
		}
	}
	if earliest == 0 || isDeleted(s) {
		return nil
	}
	return []entity.Timer{{
		ID: "orphan", At: earliest + orphanAfter.Milliseconds(), Message: &workspacev1.OrphanAnchors{},
	}}
}

// mailTasks returns a task for each requested mail of an invitation that has not been accepted or revoked.
func mailTasks(s *workspacev1.Workspace) []entity.Task {
	var all []entity.Task
	for _, id := range slices.Sorted(maps.Keys(s.GetInvitations())) {
		i := s.GetInvitations()[id]
		if i.GetMailId() != "" && i.GetRevokedAt() == 0 && i.GetConsumedAt() == 0 {
			all = append(all, entity.Task{Kind: MailTask, ID: i.GetMailId(), Message: &workspacev1.InvitationMail{
				InvitationId: id, RequestedAt: i.GetMailRequestedAt(),
			}})
		}
	}
	return all
}

// slugReservation is how long a slug stays reserved for the workspace that released it (decisions, section 3).
const slugReservation = 30 * 24 * time.Hour

// React returns the commands that follow from an event: slugs are released, computers are requested and retired,
// invitations are stored with their addresses, users record the workspaces that they join and leave, and apps are created, follow
// their anchors, and are suspended and removed with the workspace.
func React(identity string, event workspacev1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *workspacev1.WorkspaceCreated:
		return []entity.Reaction{
			entity.Send(entity.KindUser, e.GetCreatorId(), &userv1.JoinWorkspace{WorkspaceId: identity, Created: true}),
			entity.Send(entity.KindComputer, identity, &computerv1.RequestComputer{TaskId: taskID("provision", e.GetAt())}),
		}
	case *workspacev1.WorkspaceRenamed:
		if e.GetOldSlug() == e.GetNewSlug() {
			return nil
		}
		return []entity.Reaction{releaseSlug(e.GetOldSlug(), identity, e.GetAt())}
	case *workspacev1.StatusChanged:
		return afterStatusChange(identity, e)
	case *workspacev1.WorkspaceSuspended:
		return haltApps(identity, e.GetAppIds(), true)
	case *workspacev1.WorkspaceResumed:
		return haltApps(identity, e.GetAppIds(), false)
	case *workspacev1.AnchorCreated:
		if e.GetRegistration() == nil {
			return nil
		}
		return []entity.Reaction{entity.Send(entity.KindApp, app.Identity(identity, e.GetRegistration().GetAppId()), &appv1.RegisterApp{
			Registration: e.GetRegistration(),
		})}
	case *workspacev1.AppPortsChanged:
		return offerPort(identity, e)
	case *workspacev1.AnchorMoved:
		return tellApp(identity, e.GetAppId(), e.GetPath(), e.GetState(), e.GetVersion())
	case *workspacev1.AnchorBroken:
		return tellApp(identity, e.GetAppId(), e.GetPath(), broken, e.GetVersion())
	case *workspacev1.AnchorRepaired:
		return tellApp(identity, e.GetAppId(), e.GetPath(), active, e.GetVersion())
	case *workspacev1.AnchorOrphaned:
		return tellApp(identity, e.GetAppId(), e.GetPath(), orphaned, e.GetVersion())
	case *workspacev1.InvitationCreated:
		return []entity.Reaction{entity.Send(entity.KindEmail, e.GetInvitation().GetEmail(), &emailv1.AddInvitation{
			InvitationId: e.GetInvitation().GetId(), WorkspaceId: identity, InviterId: e.GetInvitation().GetInviter().GetUserId(),
		})}
	case *workspacev1.InvitationAccepted:
		return []entity.Reaction{entity.Send(entity.KindUser, e.GetPerson().GetUserId(), &userv1.JoinWorkspace{WorkspaceId: identity})}
	case *workspacev1.MemberRemoved:
		return []entity.Reaction{entity.Send(entity.KindUser, e.GetUserId(), &userv1.LeaveWorkspace{WorkspaceId: identity})}
	default:
		return nil
	}
}

func afterStatusChange(identity string, e *workspacev1.StatusChanged) []entity.Reaction {
	switch e.GetStatus() {
	case workspacev1.Status_STATUS_ACTIVE:
		// A closed workspace ignores ReportUnhealthy, so a computer that was lost in that time has to report it again.
		lost := entity.Send(entity.KindComputer, identity, &computerv1.AnnounceLoss{At: e.GetAt()})
		return append([]entity.Reaction{lost}, haltApps(identity, e.GetAppIds(), false)...)
	case workspacev1.Status_STATUS_ARCHIVED, workspacev1.Status_STATUS_RETIRED:
		return haltApps(identity, e.GetAppIds(), true)
	case workspacev1.Status_STATUS_DELETED:
		reactions := []entity.Reaction{
			releaseSlug(e.GetSlug(), identity, e.GetAt()),
			entity.Send(entity.KindComputer, identity, &computerv1.RetireComputer{TaskId: taskID("retire", e.GetAt())}),
		}
		reactions = append(reactions, removeApps(identity, e.GetAppIds(), e.GetAt())...)
		if e.GetBillingUserId() == "" { // an event of an older version
			return reactions
		}
		return append(reactions, entity.Send(entity.KindUser, e.GetBillingUserId(), &userv1.ForgetWorkspace{WorkspaceId: identity}))
	default:
		return nil
	}
}

// releaseSlug returns the command that releases a slug and reserves it for the workspace, from a time on.
func releaseSlug(slug, workspaceID string, at int64) entity.Reaction {
	return entity.Send(entity.KindSlug, slug, &slugv1.ReleaseSlug{
		WorkspaceId: workspaceID, ReservedUntil: at + slugReservation.Milliseconds(),
	})
}

// taskID returns the id of the task of the workspace's computer that follows from an event at a time.
func taskID(purpose string, at int64) string { return purpose + "-" + strconv.FormatInt(at, 10) }
