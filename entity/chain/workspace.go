package chain

import (
	"strconv"
	"time"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// reserved is how long nobody else may take a slug that a workspace gave up (decisions, section 3).
const reserved = 30 * 24 * time.Hour

func ofWorkspace(identity string, event workspacev1.Event) []entity.Command {
	switch e := event.(type) {
	case *workspacev1.WorkspaceCreated:
		return append(
			to(entity.KindUser, e.GetCreatorId(), &userv1.JoinWorkspace{WorkspaceId: identity, Created: true}),
			to(entity.KindComputer, identity, &computerv1.RequestComputer{TaskId: taskID("provision", e.GetAt())})...)
	case *workspacev1.WorkspaceRenamed:
		if e.GetOldSlug() == e.GetNewSlug() {
			return nil
		}
		return release(e.GetOldSlug(), identity, e.GetAt())
	case *workspacev1.StatusChanged:
		if e.GetStatus() == workspacev1.Status_STATUS_ACTIVE {
			// While it was closed it was not told that its computer is lost.
			return to(entity.KindComputer, identity, &computerv1.AnnounceLoss{At: e.GetAt()})
		}
		if e.GetStatus() != workspacev1.Status_STATUS_DELETED {
			return nil
		}
		commands := append(
			release(e.GetSlug(), identity, e.GetAt()),
			to(entity.KindComputer, identity, &computerv1.RetireComputer{TaskId: taskID("retire", e.GetAt())})...)
		if e.GetBillingUserId() == "" { // an older event
			return commands
		}
		return append(commands, to(entity.KindUser, e.GetBillingUserId(), &userv1.ForgetWorkspace{WorkspaceId: identity})...)
	case *workspacev1.InvitationCreated:
		return to(entity.KindEmail, e.GetInvitation().GetEmail(), &emailv1.AddInvitation{
			InvitationId: e.GetInvitation().GetId(), WorkspaceId: identity, InviterId: e.GetInvitation().GetInviter().GetUserId(),
		})
	case *workspacev1.InvitationAccepted:
		return to(entity.KindUser, e.GetPerson().GetUserId(), &userv1.JoinWorkspace{WorkspaceId: identity})
	case *workspacev1.MemberRemoved:
		return to(entity.KindUser, e.GetUserId(), &userv1.LeaveWorkspace{WorkspaceId: identity})
	default:
		return nil
	}
}

func release(slug, workspaceID string, at int64) []entity.Command {
	return to(entity.KindSlug, slug, &slugv1.ReleaseSlug{WorkspaceId: workspaceID, ReservedUntil: at + reserved.Milliseconds()})
}

// taskID names a task of a workspace's computer that follows from an event of that time.
func taskID(purpose string, at int64) string { return purpose + "-" + strconv.FormatInt(at, 10) }
