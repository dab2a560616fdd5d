package workspace

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

// slugReservation is how long nobody else may take a slug that a workspace gave up (decisions, section 3).
const slugReservation = 30 * 24 * time.Hour

// React returns the commands that follow from an event: slugs are released, the computer is requested and retired, and
// people learn which workspaces they belong to.
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
		return afterStatus(identity, e)
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

func afterStatus(identity string, e *workspacev1.StatusChanged) []entity.Reaction {
	switch e.GetStatus() {
	case workspacev1.Status_STATUS_ACTIVE:
		// A closed workspace ignores that its computer is lost, so the computer reports the loss again.
		return []entity.Reaction{entity.Send(entity.KindComputer, identity, &computerv1.AnnounceLoss{At: e.GetAt()})}
	case workspacev1.Status_STATUS_DELETED:
		reactions := []entity.Reaction{
			releaseSlug(e.GetSlug(), identity, e.GetAt()),
			entity.Send(entity.KindComputer, identity, &computerv1.RetireComputer{TaskId: taskID("retire", e.GetAt())}),
		}
		if e.GetBillingUserId() == "" { // events of older versions do not have it
			return reactions
		}
		return append(reactions, entity.Send(entity.KindUser, e.GetBillingUserId(), &userv1.ForgetWorkspace{WorkspaceId: identity}))
	default:
		return nil
	}
}

func releaseSlug(slug, workspaceID string, at int64) entity.Reaction {
	return entity.Send(entity.KindSlug, slug, &slugv1.ReleaseSlug{
		WorkspaceId: workspaceID, ReservedUntil: at + slugReservation.Milliseconds(),
	})
}

// taskID returns the id of a task of a workspace's computer that follows from an event of that time.
func taskID(purpose string, at int64) string { return purpose + "-" + strconv.FormatInt(at, 10) }
