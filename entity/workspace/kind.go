package workspace

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Kind describes workspaces to the runtime.
var Kind = rules.Kind()

var rules = entity.Rules[*workspacev1.Workspace, workspacev1.Command, workspacev1.Event]{
	Name: entity.KindWorkspace, Zero: Zero, Access: accessOf, Check: Check, Decide: decide, Evolve: Evolve, Reply: Reply,
	Rows: Rows, Timers: Timers, Tasks: Tasks, EffectLists: []string{BrokenAnchorsList}, React: React,
	Lists: map[string]entity.List{
		MembersList:       {Need: entity.Reads(entity.Sessions, entity.FilesRead), Match: matchesMember},
		InvitationsList:   {Need: entity.Reads(entity.Members)},
		AnchorsList:       {Need: entity.Reads(entity.FilesRead)},
		BrokenAnchorsList: {Need: entity.Reads(entity.Admin)},
		audit.List:        {Need: entity.Reads(entity.FilesRead)},
	},
}

// accessOf returns who may send a command.
func accessOf(c workspacev1.Command) entity.Access {
	switch c := c.(type) {
	case *workspacev1.AcceptInvitation:
		// The invited person does not belong to the workspace yet.
		return entity.DecidedByRule()
	case *workspacev1.Authorize:
		return entity.Requires(entity.Need{Any: c.GetAny(), Changes: c.GetChanges()})
	case *workspacev1.DescribeWorkspace:
		return entity.Requires(entity.Reads())
	case *workspacev1.RenameWorkspace, *workspacev1.SetDefaultModel, *workspacev1.ChangeRole, *workspacev1.RemoveMember:
		return entity.Requires(entity.Changes(entity.Admin))
	case *workspacev1.Suspend, *workspacev1.Resume:
		// A suspension is what a suspended, archived or retired workspace still takes.
		return entity.Requires(entity.Reads(entity.Admin))
	case *workspacev1.Invite, *workspacev1.RevokeInvitation:
		return entity.Requires(entity.Changes(entity.Members))
	case *workspacev1.Reanchor:
		return entity.Requires(entity.Changes(entity.Apps, entity.Publish, entity.Share))
	case *workspacev1.CreateWorkspace, *workspacev1.ReportReady, *workspacev1.ReportUnhealthy, *workspacev1.UpdateMember,
		*workspacev1.RecordAudit, *workspacev1.RemoveAnchor, *workspacev1.MoveAnchor, *workspacev1.BreakAnchor,
		*workspacev1.RepairAnchor, *workspacev1.OrphanAnchors, *workspacev1.ListAnchors, *workspacev1.ChangeStatus,
		*workspacev1.DescribeInvitation, *workspacev1.CreateAnchor, *workspacev1.ReportInvitationMailed,
		*workspacev1.ReportLocksRemoved, *workspacev1.RequestAnchorCheck, *workspacev1.ReportAnchorsChecked:
	}
	return entity.PlatformOnly()
}

// decideAbsent answers a command to a workspace that was never created or is deleted. done reports whether the command
// has been decided with that.
func decideAbsent(s *workspacev1.Workspace, c workspacev1.Command) (done bool, err error) {
	if !exists(s) {
		switch c.(type) {
		case *workspacev1.CreateWorkspace, *workspacev1.AcceptInvitation:
			return false, nil
		default:
			return true, errNotFound
		}
	}
	if !deleted(s) {
		return false, nil
	}
	switch c := c.(type) {
	case *workspacev1.CreateWorkspace, *workspacev1.AcceptInvitation:
		return false, nil
	case *workspacev1.ChangeStatus:
		if c.GetStatus() == workspacev1.Status_STATUS_DELETED {
			return true, nil
		}
		return true, errDeleted
	case *workspacev1.Authorize, *workspacev1.DescribeWorkspace, *workspacev1.ReportReady, *workspacev1.ReportUnhealthy,
		*workspacev1.UpdateMember, *workspacev1.RecordAudit, *workspacev1.ReportInvitationMailed, *workspacev1.RemoveAnchor, *workspacev1.MoveAnchor,
		*workspacev1.BreakAnchor, *workspacev1.RepairAnchor, *workspacev1.OrphanAnchors, *workspacev1.ListAnchors,
		*workspacev1.ReportLocksRemoved, *workspacev1.RequestAnchorCheck, *workspacev1.ReportAnchorsChecked:
		// The platform's own work may reach a workspace after its deletion: that is no error and changes nothing.
		return true, nil
	default:
		return true, errNotFound
	}
}

// matchesMember reports whether the searched text is in a member's email or name, in any case.
func matchesMember(row []byte, search string) bool {
	var member workspacev1.Membership
	if proto.Unmarshal(row, &member) != nil {
		return false
	}
	search = strings.ToLower(search)
	return strings.Contains(strings.ToLower(member.GetEmail()), search) || strings.Contains(strings.ToLower(member.GetName()), search)
}
