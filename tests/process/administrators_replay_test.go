package process

import (
	"fmt"
	"slices"
)

// A history is the state of a workspace that follows from its audit log.
type history struct {
	slug, name, tier string
	suspension       suspension
	// members are in the order in which they joined, invitations newest first.
	members     []member
	invitations []invitation
	used        []string

	// moments has the values over time of a property: "suspended", "tier", or the id of a member for the role.
	moments  map[string][]moment
	problems []string
}

type moment struct {
	at    int64
	value string
}

func (h *history) addProblem(format string, arguments ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, arguments...))
}

func (h *history) setValue(property string, at int64, value string) {
	h.moments[property] = append(h.moments[property], moment{at, value})
}

// hadValue reports whether a property had a value at some time from one time to another.
func (h *history) hadValue(property, value string, from, to int64) bool {
	before := ""
	for _, m := range h.moments[property] {
		if before == value && m.at >= from-slack {
			return true
		}
		if m.at > to+slack {
			return false
		}
		before = m.value
	}
	return before == value
}

// replayAudit returns the history that follows from a workspace's audit log. A row that contradicts the rows before it is
// a problem.
func replayAudit(w *scenario, b *workspaceView) *history {
	h := &history{moments: map[string][]moment{}}
	for i, e := range b.audit {
		if (e.Event == "workspace.created") != (i == 0) {
			h.addProblem("row %d of %s: %s", i, b.ID, e)
		}
		if !b.endedWithInviter(e) { // its actor may have left with the same change
			h.checkPermission(e)
		}
		h.apply(w, e)
	}
	slices.Reverse(h.invitations)
	return h
}

// checkPermission verifies that the actor had the required role at that time, and that only the end of the suspension
// changes a suspended workspace.
func (h *history) checkPermission(e auditRow) {
	role := ""
	if i := h.at(e.ActorID); i >= 0 {
		role = h.members[i].Role
	}
	allowed := role == "owner"
	switch e.Event {
	case "workspace.created", "workspace.status_changed":
		return
	case "workspace.suspended", "workspace.resumed":
		if !allowed {
			h.addProblem("done with the role %q: %s", role, e)
		}
		return
	case "invitation.created", "invitation.revoked":
		allowed = role == "owner" || role == "editor"
	case "invitation.accepted":
		allowed = true
	}
	if !allowed {
		h.addProblem("done with the role %q: %s", role, e)
	}
	if h.suspension.Suspended {
		h.addProblem("a change while the workspace was suspended: %s", e)
	}
}

func (h *history) apply(w *scenario, e auditRow) {
	p := e.Provenance
	switch e.Event {
	case "workspace.created":
		h.slug, h.name, h.used = p.Slug, p.Name, append(h.used, p.Slug)
		h.join(w, e, "owner")
		h.members[0].IsBillingUser = true
	case "workspace.renamed":
		if p.OldSlug != h.slug {
			h.addProblem("renamed from %s, but the slug was %s: %s", p.OldSlug, h.slug, e)
		}
		h.slug, h.name, h.used = p.NewSlug, p.Name, append(h.used, p.NewSlug)
	case "workspace.suspended":
		if !h.suspension.Suspended {
			h.suspension.SuspendedAt = e.At
		}
		h.suspension.Suspended, h.suspension.SuspensionReason = true, p.Reason
		h.setValue("suspended", e.At, "yes")
	case "workspace.resumed":
		h.suspension = suspension{}
		h.setValue("suspended", e.At, "")
	case "default_model.changed":
		h.tier = p.Tier
		h.setValue("tier", e.At, p.Tier)
	case "member.role_changed", "member.removed":
		h.change(e)
	case "invitation.created", "invitation.revoked", "invitation.accepted":
		h.invite(w, e)
	case "workspace.status_changed":
		if e.ActorID != "system" {
			h.addProblem("the status was changed by a person: %s", e)
		}
	default:
		h.addProblem("unexpected event: %s", e)
	}
}

func (h *history) join(w *scenario, e auditRow, role string) {
	p := w.byID[e.ActorID]
	if p == nil {
		h.addProblem("an unknown person has joined: %s", e)
		return
	}
	h.members = append(h.members, member{ID: p.id, Email: p.email, Name: fmt.Sprint("Person ", p.number), Role: role})
	h.setValue(p.id, e.At, role)
}

func (h *history) at(id string) int {
	return slices.IndexFunc(h.members, func(m member) bool { return m.ID == id })
}

func (h *history) change(e auditRow) {
	p := e.Provenance
	i := h.at(p.MemberUserID)
	if i < 0 || h.members[i].Role != p.OldRole || p.Role == p.OldRole {
		h.addProblem("the member had another role before: %s", e)
		return
	}
	h.setValue(p.MemberUserID, e.At, p.Role)
	if h.members[i].Role = p.Role; p.Role == "" {
		h.members = slices.Delete(h.members, i, i+1)
	}
}

// invite applies an event to the pending invitation of an address, or adds one.
func (h *history) invite(w *scenario, e auditRow) {
	p := e.Provenance
	i := slices.IndexFunc(h.invitations, func(i invitation) bool {
		return i.Email == p.TargetEmail && i.RevokedAt == 0 && i.ConsumedAt == 0
	})
	if i < 0 {
		if e.Event != "invitation.created" {
			h.addProblem("there was no such invitation: %s", e)
			return
		}
		h.invitations = append(h.invitations, invitation{Email: p.TargetEmail})
		i = len(h.invitations) - 1
	}
	switch one := &h.invitations[i]; e.Event {
	case "invitation.created":
		one.Role, one.ExpiresAt = p.Role, p.ExpiresAt
	case "invitation.revoked":
		one.RevokedAt = e.At
	default:
		one.ConsumedAt = e.At
		if h.at(e.ActorID) < 0 {
			h.join(w, e, one.Role)
		}
	}
}
