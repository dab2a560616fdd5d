package workspace

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	errNoEvent = entity.Errorf(entity.InvalidRequest, "event is empty")
	errTime    = entity.Errorf(entity.InvalidRequest, "at must be 0 to %d", int64(entity.MaxTime))
)

// recordAudit takes down what happened elsewhere. Sent twice it is two rows, but for the command's id.
func recordAudit(call entity.Call, c *workspacev1.RecordAudit) ([]workspacev1.Event, error) {
	given := c.GetEvent()
	at := given.GetAt()
	switch {
	case given.GetEvent() == "":
		return nil, errNoEvent
	case at < 0 || at > entity.MaxTime:
		return nil, errTime
	case at == 0:
		at = call.At()
	}
	actor := given.GetActorId()
	if actor == "" {
		actor = audit.System
	}
	return []workspacev1.Event{&workspacev1.AuditRecorded{Event: &auditv1.Event{
		Event: given.GetEvent(), ActorId: actor, At: at, Provenance: given.GetProvenance(),
	}}}, nil
}

// logged is what the audit log says of an event; nil: nothing. before is the state before the command.
func logged(call entity.Call, before *workspacev1.Workspace, e workspacev1.Event) *auditv1.Event {
	switch e := e.(type) {
	case *workspacev1.AuditRecorded:
		return e.GetEvent()
	case *workspacev1.WorkspaceCreated:
		return by(e.GetCreatorId(), audit.Event(call, "workspace.created", &auditv1.Provenance{
			Slug: e.GetSlug(), Name: e.GetName(), Actor: e.GetImpersonatorId(),
		}))
	case *workspacev1.WorkspaceReady:
		return statusChanged(call, before, workspacev1.Status_STATUS_ACTIVE)
	case *workspacev1.WorkspaceUnhealthy:
		return statusChanged(call, before, workspacev1.Status_STATUS_UNHEALTHY)
	case *workspacev1.StatusChanged:
		return statusChanged(call, before, e.GetStatus())
	case *workspacev1.WorkspaceRenamed:
		return audit.Event(call, "workspace.renamed", &auditv1.Provenance{
			OldSlug: e.GetOldSlug(), NewSlug: e.GetNewSlug(), Name: e.GetName(),
			BreaksPublicUrls: e.GetOldSlug() != e.GetNewSlug(), Acknowledged: true,
		})
	case *workspacev1.WorkspaceSuspended:
		return audit.Event(call, "workspace.suspended", &auditv1.Provenance{Reason: e.GetSuspension().GetReason()})
	case *workspacev1.WorkspaceResumed:
		return audit.Event(call, "workspace.resumed", nil)
	case *workspacev1.DefaultModelChanged:
		return audit.Event(call, "default_model.changed", &auditv1.Provenance{Tier: apiName("TIER_", e.GetTier().String())})
	case *workspacev1.MemberRoleChanged, *workspacev1.MemberRemoved, *workspacev1.InvitationCreated,
		*workspacev1.InvitationRevoked, *workspacev1.InvitationAccepted:
		return ofPeople(call, before, e)
	case *workspacev1.AnchorCreated, *workspacev1.AnchorRemoved, *workspacev1.AnchorMoved, *workspacev1.AnchorBroken,
		*workspacev1.AnchorRepaired, *workspacev1.AnchorOrphaned:
		return ofAnchors(call, before, e)
	case *workspacev1.InvitationMailed, *workspacev1.LocksRemoved, *workspacev1.AnchorCheckRequested, *workspacev1.AnchorsChecked:
	case *workspacev1.MemberUpdated:
		// The change is the person's own, not the workspace's.
	}
	return nil
}

func statusChanged(call entity.Call, before *workspacev1.Workspace, to workspacev1.Status) *auditv1.Event {
	return audit.Event(call, "workspace.status_changed", &auditv1.Provenance{
		PreviousStatus: apiName("STATUS_", before.GetStatus().String()), Action: apiName("STATUS_", to.String()),
	})
}

func ofPeople(call entity.Call, before *workspacev1.Workspace, event workspacev1.Event) *auditv1.Event {
	switch e := event.(type) {
	case *workspacev1.MemberRoleChanged:
		return audit.Event(call, "member.role_changed", &auditv1.Provenance{
			MemberUserId: e.GetUserId(), Role: roleName(e.GetRole()),
			OldRole: roleName(before.GetMembers()[e.GetUserId()].GetRole()),
		})
	case *workspacev1.MemberRemoved:
		gone := before.GetMembers()[e.GetUserId()]
		return audit.Event(call, "member.removed", &auditv1.Provenance{
			MemberUserId: e.GetUserId(), TargetEmail: gone.GetEmail(), OldRole: roleName(gone.GetRole()),
		})
	case *workspacev1.InvitationCreated:
		return audit.Event(call, "invitation.created", &auditv1.Provenance{
			TargetEmail: e.GetInvitation().GetEmail(), Role: roleName(e.GetInvitation().GetRole()),
			ExpiresAt: e.GetInvitation().GetExpiresAt(),
		})
	case *workspacev1.InvitationRevoked:
		revoked := before.GetInvitations()[e.GetInvitationId()]
		return audit.Event(call, "invitation.revoked", &auditv1.Provenance{
			TargetEmail: revoked.GetEmail(), Role: roleName(revoked.GetRole()),
		})
	case *workspacev1.InvitationAccepted:
		return by(e.GetPerson().GetUserId(), audit.Event(call, "invitation.accepted", &auditv1.Provenance{
			TargetEmail:  before.GetInvitations()[e.GetInvitationId()].GetEmail(),
			MemberUserId: e.GetPerson().GetUserId(), Role: roleName(e.GetRole()),
		}))
	default:
		return nil
	}
}

func ofAnchors(call entity.Call, before *workspacev1.Workspace, event workspacev1.Event) *auditv1.Event {
	switch e := event.(type) {
	case *workspacev1.AnchorCreated:
		return ofAnchor(call, "anchor.created", e.GetAnchor(), "")
	case *workspacev1.AnchorRemoved:
		return ofAnchor(call, "anchor.removed", before.GetAnchors()[e.GetAnchorId()], "")
	case *workspacev1.AnchorMoved:
		return ofAnchor(call, "anchor.moved", before.GetAnchors()[e.GetAnchorId()], e.GetPath())
	case *workspacev1.AnchorBroken:
		return ofAnchor(call, "anchor.broken", before.GetAnchors()[e.GetAnchorId()], "")
	case *workspacev1.AnchorRepaired:
		return ofAnchor(call, "anchor.repaired", before.GetAnchors()[e.GetAnchorId()], e.GetPath())
	case *workspacev1.AnchorOrphaned:
		return ofAnchor(call, "anchor.orphaned", before.GetAnchors()[e.GetAnchorId()], "")
	default:
		return nil
	}
}

// ofAnchor is about an anchor as it was; toPath is where it stands now, where that may be another path.
func ofAnchor(call entity.Call, name string, was *workspacev1.Anchor, toPath string) *auditv1.Event {
	p := &auditv1.Provenance{
		AnchorId: was.GetId(), Path: was.GetPath(), Kind: apiName("ANCHOR_KIND_", was.GetKind().String()),
	}
	if toPath != "" && toPath != was.GetPath() {
		p.FromPath, p.ToPath, p.Path = was.GetPath(), toPath, toPath
	}
	return audit.Event(call, name, p)
}

// by names who did what the platform carried out for them.
func by(person string, e *auditv1.Event) *auditv1.Event {
	e.ActorId = person
	return e
}

func roleName(role workspacev1.Role) string { return apiName("ROLE_", role.String()) }

// apiName is an enumeration's value as the API writes it.
func apiName(prefix, name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
}
