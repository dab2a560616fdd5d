package user

import (
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// People is the list of the people of a partition, for operators: one row each, a User as Shown.
const People = "people"

// Rows are the entries of the operators' lists: who the person is, and what was done to them. What a person does with
// what they hold is in the logs of their workspaces.
func Rows(call entity.Call, _, after *userv1.User, _ userv1.Command, events []userv1.Event) []entity.Row {
	var rows []entity.Row
	changed := false
	for i, e := range events {
		if showsIn(e) {
			changed = true
		}
		if recorded := recordOf(call, after, e); recorded != nil {
			rows = append(rows, audit.Row(entity.KindUser, call, i, recorded))
		}
	}
	if changed {
		rows = append(rows, entity.Row{List: People, Key: after.GetId(), Message: Shown(after)})
	}
	return rows
}

// showsIn tells whether an event changes the person's row.
func showsIn(e userv1.Event) bool {
	switch e.(type) {
	case *userv1.UserCreated, *userv1.WorkspaceJoined, *userv1.WorkspaceLeft, *userv1.ProfileChanged,
		*userv1.UserDisabled, *userv1.UserEnabled, *userv1.InternalAdminSet:
		return true
	case *userv1.WorkspaceReserved, *userv1.WorkspaceForgotten,
		*userv1.ApiKeyIssued, *userv1.ApiKeyRevoked, *userv1.OneTimeLinkOffered, *userv1.OneTimeLinkMailed, *userv1.PasswordSet,
		*userv1.BrowserSessionStarted, *userv1.BrowserSessionEnded, *userv1.IdentityLinked,
		*userv1.IdentitiesUnlinked, *userv1.ImpersonationStarted, *userv1.GrantAllowed, *userv1.GrantRevoked,
		*userv1.MachineRegistered, *userv1.MachineRenamed, *userv1.MachineRemoved:
	}
	return false
}

// recordOf is what the operators' log says of an event, or nil.
func recordOf(call entity.Call, s *userv1.User, e userv1.Event) *auditv1.Event {
	who := &auditv1.Provenance{CanonicalEmail: s.GetEmail()}
	switch e := e.(type) {
	case *userv1.UserCreated:
		return audit.Event(call, "user.created", who)
	case *userv1.UserDisabled:
		return audit.Event(call, "user.disabled", who)
	case *userv1.UserEnabled:
		return audit.Event(call, "user.enabled", who)
	case *userv1.InternalAdminSet:
		who.Role = "user"
		if e.GetInternalAdmin() {
			who.Role = "internal_admin"
		}
		return audit.Event(call, "user.admin_changed", who)
	case *userv1.IdentityLinked:
		who.Source = e.GetIdentity().GetIssuer()
		return audit.Event(call, "user.identity_linked", who)
	case *userv1.IdentitiesUnlinked:
		return audit.Event(call, "user.identities_unlinked", who)
	case *userv1.ImpersonationStarted:
		who.Reason, who.ExpiresAt = e.GetReason(), e.GetExpiresAt()
		recorded := audit.Event(call, "impersonation.started", who)
		recorded.ActorId, recorded.Provenance.Actor = e.GetImpersonatorId(), e.GetImpersonatorId()
		return recorded
	case *userv1.WorkspaceJoined, *userv1.WorkspaceLeft, *userv1.WorkspaceReserved, *userv1.WorkspaceForgotten,
		*userv1.ProfileChanged, *userv1.ApiKeyIssued,
		*userv1.ApiKeyRevoked, *userv1.OneTimeLinkOffered, *userv1.OneTimeLinkMailed, *userv1.PasswordSet, *userv1.BrowserSessionStarted,
		*userv1.BrowserSessionEnded, *userv1.GrantAllowed, *userv1.GrantRevoked, *userv1.MachineRegistered,
		*userv1.MachineRenamed, *userv1.MachineRemoved:
	}
	return nil
}
