package workspace

import (
	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// terms say who may send a command.
type terms struct {
	// people are let in who have what need says; else only the platform is.
	people bool
	need   entity.Need
	// asksItself: the command's own rule tells whom it lets in.
	asksItself bool
	// outlives: it is no error, and comes to nothing, once the workspace is deleted.
	outlives bool
}

func termsOf(c workspacev1.Command) terms {
	switch c := c.(type) {
	case *workspacev1.CreateWorkspace, *workspacev1.AcceptInvitation:
		return terms{asksItself: true}
	case *workspacev1.Authorize:
		return terms{people: true, need: entity.Need{Any: c.GetAny(), Changes: c.GetChanges()}, outlives: true}
	case *workspacev1.DescribeWorkspace:
		return terms{people: true, outlives: true}
	case *workspacev1.RenameWorkspace, *workspacev1.SetDefaultModel, *workspacev1.ChangeRole, *workspacev1.RemoveMember:
		return terms{people: true, need: entity.Changes(entity.Admin)}
	case *workspacev1.Suspend, *workspacev1.Resume:
		// A suspension is what a suspended, archived or retired workspace still takes.
		return terms{people: true, need: entity.Reads(entity.Admin)}
	case *workspacev1.Invite, *workspacev1.RevokeInvitation:
		return terms{people: true, need: entity.Changes(entity.Members)}
	case *workspacev1.Reanchor:
		return terms{people: true, need: entity.Changes(entity.Apps, entity.Publish, entity.Share)}
	case *workspacev1.ReportReady, *workspacev1.ReportUnhealthy, *workspacev1.UpdateMember, *workspacev1.RecordAudit,
		*workspacev1.ReportInvitationMailed,
		*workspacev1.RemoveAnchor, *workspacev1.MoveAnchor, *workspacev1.BreakAnchor, *workspacev1.RepairAnchor,
		*workspacev1.OrphanAnchors, *workspacev1.ListAnchors:
		return terms{outlives: true}
	case *workspacev1.ChangeStatus, *workspacev1.DescribeInvitation, *workspacev1.CreateAnchor:
		return terms{}
	}
	return terms{}
}

// admit refuses who may not send a command. rest tells that there is nothing to decide: the workspace is deleted.
func admit(call entity.Call, s *workspacev1.Workspace, c workspacev1.Command) (rest bool, err error) {
	t := termsOf(c)
	if t.asksItself {
		return false, nil
	}
	if !t.people && !entity.IsPlatform(call.Principal) {
		return false, errPlatformOnly
	}
	if err := Check(call, s, t.need); err != nil {
		return false, err
	}
	if !deleted(s) {
		return false, nil
	}
	if status, changes := c.(*workspacev1.ChangeStatus); changes {
		if status.GetStatus() == workspacev1.Status_STATUS_DELETED {
			return true, nil
		}
		return false, errDeleted
	}
	if t.outlives {
		return true, nil
	}
	return false, errNotFound
}
