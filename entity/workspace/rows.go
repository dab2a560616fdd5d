package workspace

import (
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The lists of a workspace, beside audit.List.
const (
	// MembersList is in the order of joining, InvitationsList newest first, AnchorsList in the order of creation.
	MembersList     = "members"
	InvitationsList = "invitations"
	AnchorsList     = "anchors"
	// BrokenAnchorsList has the anchors that are broken, by id.
	BrokenAnchorsList = "anchors.broken"
)

// Rows are the entries that the lists get or lose by what a command came to. No two events of one command are about the
// same member, invitation or anchor, so that the states before and after all of them tell each one's.
func Rows(
	call entity.Call, before, after *workspacev1.Workspace, _ workspacev1.Command, events []workspacev1.Event,
) []entity.Row {
	var rows []entity.Row
	for i, e := range events {
		rows = append(rows, listed(before, after, e)...)
		if entry := logged(call, before, e); entry != nil {
			rows = append(rows, audit.Row(entity.KindWorkspace, call, i, entry))
		}
	}
	return rows
}

func listed(before, after *workspacev1.Workspace, e workspacev1.Event) []entity.Row {
	switch e := e.(type) {
	case *workspacev1.WorkspaceCreated:
		return memberRow(before, after, e.GetCreatorId())
	case *workspacev1.MemberRoleChanged:
		return memberRow(before, after, e.GetUserId())
	case *workspacev1.MemberRemoved:
		return memberRow(before, after, e.GetUserId())
	case *workspacev1.MemberUpdated:
		return memberRow(before, after, e.GetPerson().GetUserId())
	case *workspacev1.InvitationCreated:
		return append(forgotten(before, after), invitationRow(after, e.GetInvitation().GetId()))
	case *workspacev1.InvitationRevoked:
		return []entity.Row{invitationRow(after, e.GetInvitationId())}
	case *workspacev1.InvitationMailed:
		return []entity.Row{invitationRow(after, e.GetInvitationId())}
	case *workspacev1.InvitationAccepted:
		return append(memberRow(before, after, e.GetPerson().GetUserId()), invitationRow(after, e.GetInvitationId()))
	case *workspacev1.AnchorCreated:
		return anchorRows(before, after, e.GetAnchor().GetId())
	case *workspacev1.AnchorRemoved:
		return anchorRows(before, after, e.GetAnchorId())
	case *workspacev1.AnchorMoved:
		return anchorRows(before, after, e.GetAnchorId())
	case *workspacev1.AnchorBroken:
		return anchorRows(before, after, e.GetAnchorId())
	case *workspacev1.AnchorRepaired:
		return anchorRows(before, after, e.GetAnchorId())
	case *workspacev1.AnchorOrphaned:
		return anchorRows(before, after, e.GetAnchorId())
	case *workspacev1.WorkspaceReady, *workspacev1.WorkspaceUnhealthy, *workspacev1.WorkspaceRenamed,
		*workspacev1.WorkspaceSuspended, *workspacev1.WorkspaceResumed, *workspacev1.StatusChanged,
		*workspacev1.DefaultModelChanged, *workspacev1.AuditRecorded, *workspacev1.LocksRemoved,
		*workspacev1.AnchorCheckRequested, *workspacev1.AnchorsChecked:
	}
	return nil
}

func memberRow(before, after *workspacev1.Workspace, id string) []entity.Row {
	if is, member := after.GetMembers()[id]; member {
		return []entity.Row{{List: MembersList, Key: entity.Ascending(is.GetPosition()), Message: is}}
	}
	return []entity.Row{{List: MembersList, Key: entity.Ascending(before.GetMembers()[id].GetPosition())}}
}

func invitationRow(after *workspacev1.Workspace, id string) entity.Row {
	is := after.GetInvitations()[id]
	return entity.Row{List: InvitationsList, Key: entity.Descending(is.GetPosition()), Message: is}
}

// forgotten removes the rows of the invitations that are not kept any longer.
func forgotten(before, after *workspacev1.Workspace) []entity.Row {
	var rows []entity.Row
	for id, was := range before.GetInvitations() {
		if _, kept := after.GetInvitations()[id]; !kept {
			rows = append(rows, entity.Row{List: InvitationsList, Key: entity.Descending(was.GetPosition())})
		}
	}
	return rows
}

func anchorRows(before, after *workspacev1.Workspace, id string) []entity.Row {
	was, is := before.GetAnchors()[id], after.GetAnchors()[id]
	row := entity.Row{List: AnchorsList, Key: entity.Ascending(max(was.GetPosition(), is.GetPosition()))}
	if is != nil {
		row.Message = is
	}
	rows := []entity.Row{row}
	switch {
	case is.GetState() == broken:
		rows = append(rows, entity.Row{List: BrokenAnchorsList, Key: id, Message: is})
	case was.GetState() == broken:
		rows = append(rows, entity.Row{List: BrokenAnchorsList, Key: id})
	}
	return rows
}
