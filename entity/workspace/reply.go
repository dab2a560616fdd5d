package workspace

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Reply is what the asker gets; s is the state after the events.
func Reply(
	call entity.Call, s *workspacev1.Workspace, c workspacev1.Command, events []workspacev1.Event,
) proto.Message {
	switch c := c.(type) {
	case *workspacev1.Authorize:
		return authorized(call, s)
	case *workspacev1.DescribeWorkspace, *workspacev1.RenameWorkspace, *workspacev1.ChangeStatus,
		*workspacev1.SetDefaultModel, *workspacev1.Suspend, *workspacev1.Resume:
		return describe(call, s)
	case *workspacev1.ChangeRole:
		return s.GetMembers()[c.GetUserId()]
	case *workspacev1.RemoveMember:
		return &workspacev1.Removed{Removed: len(events) > 0}
	case *workspacev1.Invite:
		return inviteReply(call, s, c)
	case *workspacev1.RevokeInvitation:
		return s.GetInvitations()[c.GetInvitationId()]
	case *workspacev1.DescribeInvitation:
		return s.GetInvitations()[c.GetInvitationId()]
	case *workspacev1.AcceptInvitation:
		return acceptedReply(s, c)
	case *workspacev1.CreateAnchor:
		return s.GetAnchors()[c.GetAnchorId()]
	case *workspacev1.Reanchor:
		return s.GetAnchors()[c.GetAnchorId()]
	case *workspacev1.ListAnchors:
		return &workspacev1.Anchors{Anchors: sorted(s)}
	case *workspacev1.RemoveAnchor:
		return &workspacev1.Removed{Removed: len(events) > 0}
	case *workspacev1.CreateWorkspace, *workspacev1.ReportReady, *workspacev1.ReportUnhealthy,
		*workspacev1.UpdateMember, *workspacev1.ReportInvitationMailed, *workspacev1.RecordAudit, *workspacev1.MoveAnchor, *workspacev1.BreakAnchor,
		*workspacev1.RepairAnchor, *workspacev1.OrphanAnchors, *workspacev1.ReportLocksRemoved, *workspacev1.RequestAnchorCheck,
		*workspacev1.ReportAnchorsChecked:
	}
	return &wirev1.Done{}
}

// inviteReply tells a renewed invitation by its id: a new one has the command's.
func inviteReply(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Invite) *workspacev1.Invited {
	address, _ := email.Canonical(c.GetEmail())
	invitation := pendingOf(call, s, address)
	return &workspacev1.Invited{Invitation: invitation, Renewed: invitation.GetId() != c.GetInvitationId()}
}

// acceptedReply is the same whenever it is asked for: the person may have been removed since they accepted, and is told no
// more than then. One that was accepted before its slug was kept tells members alone.
func acceptedReply(s *workspacev1.Workspace, c *workspacev1.AcceptInvitation) *workspacev1.Description {
	slug := s.GetInvitations()[c.GetInvitationId()].GetAcceptedSlug()
	if _, member := s.GetMembers()[c.GetPerson().GetUserId()]; member && slug == "" {
		slug = s.GetSlug()
	}
	return &workspacev1.Description{Workspace: &workspacev1.Workspace{Id: s.GetId(), Slug: slug}}
}

// describe leaves out the members, the invitations and the anchors: who may see them are other capabilities' questions.
func describe(call entity.Call, s *workspacev1.Workspace) *workspacev1.Description {
	shown := copyOf(s)
	shown.Members, shown.Invitations, shown.Anchors = nil, nil, nil
	if !entity.IsPlatform(call.Principal) {
		shown.LockRemovals, shown.AnchorCheck = nil, 0
	}
	access := authorized(call, s)
	return &workspacev1.Description{Workspace: shown, Role: access.Role, Capabilities: access.Capabilities}
}
