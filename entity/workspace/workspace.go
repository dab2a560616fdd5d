// Package workspace holds the rules of a workspace: how it comes to be, who belongs to it, who may do what in it, and
// what is bound to the paths of its drive.
//
//	(none) ──CreateWorkspace──► provisioning ──ReportReady──► active ◄─ReportReady──ReportUnhealthy─► unhealthy
//
//	any ──ChangeStatus──► archived, retired, deleted      archived, retired, unhealthy ──ChangeStatus──► active
//
// Only an operator archives, retires or deletes, and opens again; what the computer reports changes none of these. A
// deleted workspace is there for the platform alone and never changes again. Beside its status, a workspace may be
// suspended (suspension.go): it can then be read, and changed by the platform alone.
//
// The creator is its owner and billing user from the first event on, and stays both (members.go). People come in by
// invitation (invitations.go). Anchors bind what stands at a path of the drive (anchors.go).
//
// Whatever belongs to a workspace is guarded by Check or Allow (access.go), on the principal of the call. What each
// command needs is one table (kind.go). Beside the events lie the entries of five lists, members, invitations, anchors,
// those of them that are broken, and the audit log, which has one row for each change (rows.go, log.go).
package workspace

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Zero is the state before the first event.
func Zero(identity string) *workspacev1.Workspace {
	return &workspacev1.Workspace{Id: identity}
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: those of Check, forbidden for what only the platform does, invalid_request, and what each command says.
func Decide(call entity.Call, s *workspacev1.Workspace, c workspacev1.Command) ([]workspacev1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *workspacev1.Workspace, c workspacev1.Command) ([]workspacev1.Event, error) {
	if done, err := decideAbsent(s, c); done {
		return nil, err
	}
	switch c := c.(type) {
	case *workspacev1.CreateWorkspace:
		return create(call, s, c)
	case *workspacev1.ReportReady:
		return reportReady(call, s)
	case *workspacev1.ReportUnhealthy:
		return reportUnhealthy(call, s)
	case *workspacev1.RenameWorkspace:
		return rename(call, s, c)
	case *workspacev1.ChangeStatus:
		return changeStatus(call, s, c)
	case *workspacev1.SetDefaultModel:
		return setDefaultModel(call, s, c)
	case *workspacev1.Suspend:
		return suspend(call, s, c)
	case *workspacev1.Resume:
		return resume(call, s)
	case *workspacev1.ChangeRole:
		return changeRole(call, s, c)
	case *workspacev1.RemoveMember:
		return removeMember(call, s, c)
	case *workspacev1.UpdateMember:
		return updateMember(s, c)
	case *workspacev1.Invite:
		return invite(call, s, c)
	case *workspacev1.RevokeInvitation:
		return revokeInvitation(call, s, c)
	case *workspacev1.ReportInvitationMailed:
		return invitationMailed(call, s, c), nil
	case *workspacev1.AcceptInvitation:
		return acceptInvitation(call, s, c)
	case *workspacev1.DescribeInvitation:
		return nil, known(s.GetInvitations(), c.GetInvitationId(), errNoInvitation)
	case *workspacev1.RecordAudit:
		return recordAudit(call, c)
	case *workspacev1.CreateAnchor:
		return createAnchor(call, s, c)
	case *workspacev1.RemoveAnchor:
		return removeAnchor(call, s, c)
	case *workspacev1.Reanchor:
		return reanchor(call, s, c)
	case *workspacev1.MoveAnchor:
		return moveAnchor(call, s, c)
	case *workspacev1.BreakAnchor:
		return breakAnchor(call, s, c)
	case *workspacev1.RepairAnchor:
		return repairAnchor(call, s, c)
	case *workspacev1.OrphanAnchors:
		return orphanAnchors(call, s)
	case *workspacev1.ReportLocksRemoved:
		return locksRemoved(call, s, c), nil
	case *workspacev1.RequestAnchorCheck:
		return []workspacev1.Event{&workspacev1.AnchorCheckRequested{Check: call.Version, At: call.At()}}, nil
	case *workspacev1.ReportAnchorsChecked:
		return anchorsChecked(call, s, c), nil
	case *workspacev1.Authorize, *workspacev1.DescribeWorkspace, *workspacev1.ListAnchors:
		return nil, nil
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event. It shares with s what the event did not change.
func Evolve(s *workspacev1.Workspace, e workspacev1.Event) *workspacev1.Workspace {
	next := copyOf(s)
	switch e := e.(type) {
	case *workspacev1.WorkspaceCreated:
		created(next, e)
	case *workspacev1.WorkspaceReady:
		next.Status = workspacev1.Status_STATUS_ACTIVE
	case *workspacev1.WorkspaceUnhealthy:
		next.Status = workspacev1.Status_STATUS_UNHEALTHY
	case *workspacev1.WorkspaceRenamed:
		next.Slug, next.Name = e.GetNewSlug(), e.GetName()
	case *workspacev1.StatusChanged:
		next.Status = e.GetStatus()
	case *workspacev1.DefaultModelChanged:
		next.DefaultTier = e.GetTier()
	case *workspacev1.WorkspaceSuspended:
		next.Suspension, next.ServicingChangedAt = e.GetSuspension(), e.GetSuspension().GetAt()
	case *workspacev1.WorkspaceResumed:
		next.Suspension, next.ServicingChangedAt = nil, e.GetAt()
	case *workspacev1.MemberRoleChanged:
		next.Members = altered(s.GetMembers(), e.GetUserId(), func(m *workspacev1.Membership) { m.Role = e.GetRole() })
		requireLockRemoval(next, e.GetUserId(), e.GetLockRemovalId(), e.GetAt())
	case *workspacev1.MemberRemoved:
		next.Members = entity.Without(s.GetMembers(), e.GetUserId())
		requireLockRemoval(next, e.GetUserId(), e.GetLockRemovalId(), e.GetAt())
	case *workspacev1.LocksRemoved:
		next.LockRemovals = entity.Without(s.GetLockRemovals(), e.GetUserId())
	case *workspacev1.MemberUpdated:
		next.Members = altered(s.GetMembers(), e.GetPerson().GetUserId(), func(m *workspacev1.Membership) {
			m.Email, m.Name = e.GetPerson().GetEmail(), e.GetPerson().GetName()
		})
	case *workspacev1.InvitationCreated:
		next.Invitations = invited(s.GetInvitations(), e.GetInvitation())
	case *workspacev1.InvitationRevoked:
		next.Invitations = altered(s.GetInvitations(), e.GetInvitationId(), func(i *workspacev1.Invitation) { i.RevokedAt = e.GetAt() })
	case *workspacev1.InvitationMailed:
		next.Invitations = altered(s.GetInvitations(), e.GetInvitationId(), func(i *workspacev1.Invitation) {
			i.MailId, i.MailRequestedAt = "", 0
		})
	case *workspacev1.InvitationAccepted:
		accepted(next, e)
		requireLockRemoval(next, e.GetPerson().GetUserId(), "", 0)
	case *workspacev1.AnchorCreated:
		next.Anchors = entity.With(s.GetAnchors(), e.GetAnchor().GetId(), e.GetAnchor())
	case *workspacev1.AnchorRemoved:
		next.Anchors = entity.Without(s.GetAnchors(), e.GetAnchorId())
	case *workspacev1.AnchorMoved:
		next.Anchors = altered(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) {
			a.Path, a.UpdatedAt, a.Seq = e.GetPath(), e.GetAt(), max(a.GetSeq(), e.GetSeq())
		})
	case *workspacev1.AnchorBroken:
		next.Anchors = altered(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) {
			a.State, a.BrokenAt, a.UpdatedAt, a.Seq = broken, e.GetAt(), e.GetAt(), max(a.GetSeq(), e.GetSeq())
		})
	case *workspacev1.AnchorRepaired:
		next.Anchors = altered(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) { repaired(a, e) })
	case *workspacev1.AnchorOrphaned:
		next.Anchors = altered(s.GetAnchors(), e.GetAnchorId(), func(a *workspacev1.Anchor) {
			a.State, a.UpdatedAt = orphaned, e.GetAt()
		})
	case *workspacev1.AnchorCheckRequested:
		next.AnchorCheck = e.GetCheck()
	case *workspacev1.AnchorsChecked:
		next.AnchorCheck = 0
	case *workspacev1.AuditRecorded:
	}
	return next
}

func copyOf(s *workspacev1.Workspace) *workspacev1.Workspace {
	return &workspacev1.Workspace{
		Id:                 s.GetId(),
		Slug:               s.GetSlug(),
		Name:               s.GetName(),
		Status:             s.GetStatus(),
		BillingUserId:      s.GetBillingUserId(),
		Members:            s.GetMembers(),
		CreatedAt:          s.GetCreatedAt(),
		Suspension:         s.GetSuspension(),
		ServicingChangedAt: s.GetServicingChangedAt(),
		DefaultTier:        s.GetDefaultTier(),
		Invitations:        s.GetInvitations(),
		Anchors:            s.GetAnchors(),
		LockRemovals:       s.GetLockRemovals(),
		AnchorCheck:        s.GetAnchorCheck(),
	}
}

// altered is a map in which one message is changed; the map given and what is in it are left alone.
func altered[V proto.Message](all map[string]V, id string, alter func(V)) map[string]V {
	one, found := all[id]
	if !found {
		return all
	}
	one = proto.CloneOf(one)
	alter(one)
	return entity.With(all, id, one)
}

func known[V any](all map[string]V, id string, refusal error) error {
	if _, found := all[id]; !found {
		return refusal
	}
	return nil
}
