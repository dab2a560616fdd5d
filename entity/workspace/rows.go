package workspace

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The names of the lists of a workspace, in addition to audit.List.
const (
	// MembersList has the members in the order of joining.
	MembersList = "members"
	// InvitationsList has the invitations, newest first.
	InvitationsList = "invitations"
	// AnchorsList has the anchors in the order of creation.
	AnchorsList = "anchors"
	// BrokenAnchorsList has the broken anchors by id.
	BrokenAnchorsList = "anchors.broken"
	// AgentsList has the anchors of the agents in the order of creation.
	AgentsList = "agents"
)

var (
	errNoEvent = entity.Errorf(entity.InvalidRequest, "event is empty")
	errTime    = entity.Errorf(entity.InvalidRequest, "at must be 0 to %d", int64(entity.MaxTime))
)

// Rows returns the changes of the lists that follow from a command. The events of one command never concern the same
// member, invitation or anchor twice, so the rows of each event follow from the states before and after the command.
func Rows(
	call entity.Call, before, after *workspacev1.Workspace, _ workspacev1.Command, events []workspacev1.Event,
) []entity.Row {
	var rows []entity.Row
	for i, e := range events {
		rows = append(rows, listRows(before, after, e)...)
		if entry := auditEvent(call, before, e); entry != nil {
			rows = append(rows, audit.NewRow(entity.KindWorkspace, call, i, entry))
		}
	}
	return rows
}

// listRows returns the changes of the lists, except the audit log, that follow from an event.
func listRows(before, after *workspacev1.Workspace, e workspacev1.Event) []entity.Row {
	switch e := e.(type) {
	case *workspacev1.WorkspaceCreated:
		return memberRow(before, after, e.GetCreatorId())
	case *workspacev1.MemberRoleChanged:
		return memberRow(before, after, e.GetUserId())
	case *workspacev1.MemberRemoved:
		return memberRow(before, after, e.GetUserId())
	case *workspacev1.MemberUpdated:
		return memberRow(before, after, e.GetPerson().GetUserId())
	case *workspacev1.MemberDisabledSet:
		return memberRow(before, after, e.GetUserId())
	case *workspacev1.InvitationCreated:
		return append(rowsWithoutOutdated(before, after), invitationRow(after, e.GetInvitation().GetId()))
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
	case *workspacev1.AgentUpdated:
		return anchorRows(before, after, e.GetAnchorId())
	case *workspacev1.AppPortsChanged:
		return anchorRows(before, after, e.GetAnchorId())
	case *workspacev1.WorkspaceReady, *workspacev1.WorkspaceUnhealthy, *workspacev1.WorkspaceRenamed,
		*workspacev1.WorkspaceSuspended, *workspacev1.WorkspaceResumed, *workspacev1.StatusChanged,
		*workspacev1.DefaultModelChanged, *workspacev1.AuditRecorded, *workspacev1.LocksRemoved,
		*workspacev1.AnchorCheckRequested, *workspacev1.AnchorsChecked, *workspacev1.DefaultSessionSet,
		*workspacev1.AgentUsageAdded, *workspacev1.AgentUsageAllowed, *workspacev1.SessionsStopped:
	}
	return nil
}

// memberRow returns the row of a member, which is removed if the person is no longer a member.
func memberRow(before, after *workspacev1.Workspace, id string) []entity.Row {
	if is, member := after.GetMembers()[id]; member {
		return []entity.Row{{List: MembersList, Key: entity.AscendingKey(is.GetPosition()), Message: is}}
	}
	return []entity.Row{{List: MembersList, Key: entity.AscendingKey(before.GetMembers()[id].GetPosition())}}
}

func invitationRow(after *workspacev1.Workspace, id string) entity.Row {
	is := after.GetInvitations()[id]
	return entity.Row{List: InvitationsList, Key: entity.DescendingKey(is.GetPosition()), Message: is}
}

// rowsWithoutOutdated removes the rows of the invitations that are no longer in the state.
func rowsWithoutOutdated(before, after *workspacev1.Workspace) []entity.Row {
	var rows []entity.Row
	for id, was := range before.GetInvitations() {
		if _, found := after.GetInvitations()[id]; !found {
			rows = append(rows, entity.Row{List: InvitationsList, Key: entity.DescendingKey(was.GetPosition())})
		}
	}
	return rows
}

// anchorRows returns the rows of an anchor in AnchorsList, BrokenAnchorsList and AgentsList.
func anchorRows(before, after *workspacev1.Workspace, id string) []entity.Row {
	was, is := before.GetAnchors()[id], after.GetAnchors()[id]
	row := entity.Row{List: AnchorsList, Key: entity.AscendingKey(max(was.GetPosition(), is.GetPosition()))}
	if is != nil {
		row.Message = is
	}
	rows := []entity.Row{row}
	if was.GetAgent() != nil || is.GetAgent() != nil {
		row.List = AgentsList
		rows = append(rows, row)
	}
	switch {
	case is.GetState() == broken:
		rows = append(rows, entity.Row{List: BrokenAnchorsList, Key: id, Message: is})
	case was.GetState() == broken:
		rows = append(rows, entity.Row{List: BrokenAnchorsList, Key: id})
	}
	return rows
}

// recordAudit records a change that another entity has made. A command without an id that is sent twice is recorded twice.
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
		actor = audit.SystemActor
	}
	return []workspacev1.Event{&workspacev1.AuditRecorded{Event: &auditv1.Event{
		Event: given.GetEvent(), ActorId: actor, At: at, Provenance: given.GetProvenance(),
	}}}, nil
}

// auditEvent returns the audit event for an event, or nil if it is not logged. before is the state before the command.
func auditEvent(call entity.Call, before *workspacev1.Workspace, e workspacev1.Event) *auditv1.Event {
	switch e := e.(type) {
	case *workspacev1.AuditRecorded:
		return e.GetEvent()
	case *workspacev1.WorkspaceCreated:
		return withActor(e.GetCreatorId(), audit.NewEvent(call, "workspace.created", &auditv1.Provenance{
			Slug: e.GetSlug(), Name: e.GetName(), Actor: e.GetImpersonatorId(),
		}))
	case *workspacev1.WorkspaceReady:
		return statusChanged(call, before, workspacev1.Status_STATUS_ACTIVE)
	case *workspacev1.WorkspaceUnhealthy:
		return statusChanged(call, before, workspacev1.Status_STATUS_UNHEALTHY)
	case *workspacev1.StatusChanged:
		return statusChanged(call, before, e.GetStatus())
	case *workspacev1.WorkspaceRenamed:
		return audit.NewEvent(call, "workspace.renamed", &auditv1.Provenance{
			OldSlug: e.GetOldSlug(), NewSlug: e.GetNewSlug(), Name: e.GetName(),
			BreaksPublicUrls: e.GetOldSlug() != e.GetNewSlug(), Acknowledged: true,
		})
	case *workspacev1.WorkspaceSuspended:
		return audit.NewEvent(call, "workspace.suspended", &auditv1.Provenance{Reason: e.GetSuspension().GetReason()})
	case *workspacev1.WorkspaceResumed:
		return audit.NewEvent(call, "workspace.resumed", nil)
	case *workspacev1.DefaultModelChanged:
		return audit.NewEvent(call, "default_model.changed", &auditv1.Provenance{Tier: apiName("TIER_", e.GetTier().String())})
	case *workspacev1.MemberRoleChanged, *workspacev1.MemberRemoved, *workspacev1.InvitationCreated,
		*workspacev1.InvitationRevoked, *workspacev1.InvitationAccepted:
		return peopleAuditEvent(call, before, e)
	case *workspacev1.AnchorCreated, *workspacev1.AnchorRemoved, *workspacev1.AnchorMoved, *workspacev1.AnchorBroken,
		*workspacev1.AnchorRepaired, *workspacev1.AnchorOrphaned:
		return anchorsAuditEvent(call, before, e)
	case *workspacev1.InvitationMailed, *workspacev1.LocksRemoved, *workspacev1.AnchorCheckRequested, *workspacev1.AnchorsChecked,
		*workspacev1.SessionsStopped, *workspacev1.AgentUsageAdded, *workspacev1.AgentUsageAllowed, *workspacev1.DefaultSessionSet:
	case *workspacev1.AppPortsChanged: // the app logs the update
	case *workspacev1.MemberUpdated, *workspacev1.MemberDisabledSet, *workspacev1.AgentUpdated:
		// The person has changed the account, or a file, not the workspace.
	}
	return nil
}

func statusChanged(call entity.Call, before *workspacev1.Workspace, to workspacev1.Status) *auditv1.Event {
	return audit.NewEvent(call, "workspace.status_changed", &auditv1.Provenance{
		PreviousStatus: apiName("STATUS_", before.GetStatus().String()), Action: apiName("STATUS_", to.String()),
	})
}

func peopleAuditEvent(call entity.Call, before *workspacev1.Workspace, event workspacev1.Event) *auditv1.Event {
	switch e := event.(type) {
	case *workspacev1.MemberRoleChanged:
		return audit.NewEvent(call, "member.role_changed", &auditv1.Provenance{
			MemberUserId: e.GetUserId(), Role: roleName(e.GetRole()),
			OldRole: roleName(before.GetMembers()[e.GetUserId()].GetRole()),
		})
	case *workspacev1.MemberRemoved:
		gone := before.GetMembers()[e.GetUserId()]
		return audit.NewEvent(call, "member.removed", &auditv1.Provenance{
			MemberUserId: e.GetUserId(), TargetEmail: gone.GetEmail(), OldRole: roleName(gone.GetRole()),
		})
	case *workspacev1.InvitationCreated:
		return audit.NewEvent(call, "invitation.created", &auditv1.Provenance{
			TargetEmail: e.GetInvitation().GetEmail(), Role: roleName(e.GetInvitation().GetRole()),
			ExpiresAt: e.GetInvitation().GetExpiresAt(),
		})
	case *workspacev1.InvitationRevoked:
		revoked := before.GetInvitations()[e.GetInvitationId()]
		return audit.NewEvent(call, "invitation.revoked", &auditv1.Provenance{
			TargetEmail: revoked.GetEmail(), Role: roleName(revoked.GetRole()),
		})
	case *workspacev1.InvitationAccepted:
		return withActor(e.GetPerson().GetUserId(), audit.NewEvent(call, "invitation.accepted", &auditv1.Provenance{
			TargetEmail:  before.GetInvitations()[e.GetInvitationId()].GetEmail(),
			MemberUserId: e.GetPerson().GetUserId(), Role: roleName(e.GetRole()),
		}))
	default:
		return nil
	}
}

func anchorsAuditEvent(call entity.Call, before *workspacev1.Workspace, event workspacev1.Event) *auditv1.Event {
	switch e := event.(type) {
	case *workspacev1.AnchorCreated:
		if e.GetRegistration() != nil {
			return appRegistered(call, e.GetRegistration())
		}
		return anchorAuditEvent(call, "anchor.created", e.GetAnchor(), "")
	case *workspacev1.AnchorRemoved:
		if before.GetAnchors()[e.GetAnchorId()].GetApp() != nil {
			return nil // the app has logged its removal
		}
		return anchorAuditEvent(call, "anchor.removed", before.GetAnchors()[e.GetAnchorId()], "")
	case *workspacev1.AnchorMoved:
		return anchorAuditEvent(call, "anchor.moved", before.GetAnchors()[e.GetAnchorId()], e.GetPath())
	case *workspacev1.AnchorBroken:
		return anchorAuditEvent(call, "anchor.broken", before.GetAnchors()[e.GetAnchorId()], "")
	case *workspacev1.AnchorRepaired:
		return anchorAuditEvent(call, "anchor.repaired", before.GetAnchors()[e.GetAnchorId()], e.GetPath())
	case *workspacev1.AnchorOrphaned:
		return anchorAuditEvent(call, "anchor.orphaned", before.GetAnchors()[e.GetAnchorId()], "")
	default:
		return nil
	}
}

// anchorAuditEvent returns the audit event for a change of an anchor. was is the anchor before the change, toPath its path
// afterwards; empty if the change cannot move it.
func anchorAuditEvent(call entity.Call, name string, was *workspacev1.Anchor, toPath string) *auditv1.Event {
	p := &auditv1.Provenance{
		AnchorId: was.GetId(), Path: was.GetPath(), Kind: apiName("ANCHOR_KIND_", was.GetKind().String()),
		Slug: was.GetAgent().GetSlug(), AppId: was.GetApp().GetId(), AppSlug: was.GetApp().GetSlug(),
	}
	if toPath != "" && toPath != was.GetPath() {
		p.FromPath, p.ToPath, p.Path = was.GetPath(), toPath, toPath
	}
	return audit.NewEvent(call, name, p)
}

// appRegistered returns the audit event for the registration of an app, the only one, although it creates an anchor.
func appRegistered(call entity.Call, r *appv1.Registration) *auditv1.Event {
	p := &auditv1.Provenance{
		AppId: r.GetAppId(), AppSlug: r.GetSlug(), AnchorId: r.GetAnchorId(), Path: r.GetPath(), Name: r.GetName(),
		Scopes: r.GetRuntime().GetApiScopes(),
	}
	if r.GetOrigin() != nil {
		p.Mode = apiName("SHARE_MODE_", r.GetOrigin().GetMode().String())
	}
	return audit.NewEvent(call, "app.registered", p)
}

// withActor sets the actor of an audit event for a change that the platform made on behalf of a person.
func withActor(person string, e *auditv1.Event) *auditv1.Event {
	e.ActorId = person
	return e
}

func roleName(role workspacev1.Role) string { return apiName("ROLE_", role.String()) }

// apiName returns the name of an enum value in the API.
func apiName(prefix, name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
}
