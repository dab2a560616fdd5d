package process

import (
	"fmt"
	"slices"
)

// history is what a space's audit log says became of it.
type history struct {
	slug, name, tier string
	suspension       suspension
	// members are in the order of joining, invitations newest first.
	members     []member
	invitations []invitation
	used        []string

	// moments are, for each thing that changes, what it became and when.
	moments  map[string][]moment
	problems []string
}

type moment struct {
	at    int64
	value string
}

func (h *history) complain(format string, arguments ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, arguments...))
}

func (h *history) became(thing string, at int64, value string) {
	h.moments[thing] = append(h.moments[thing], moment{at, value})
}

// was tells whether a thing had a value at some time between two.
func (h *history) was(thing, value string, from, to int64) bool {
	before := ""
	for _, m := range h.moments[thing] {
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

// replay is the history that an audit log, oldest first, tells. A row that does not fit what came before is a problem.
func replayAudit(w *town, b *books) *history {
	h := &history{moments: map[string][]moment{}}
	for i, e := range b.audit {
		if (e.Event == "workspace.created") != (i == 0) {
			h.complain("row %d of %s: %s", i, b.ID, e)
		}
		h.allow(e)
		h.enter(w, e)
	}
	slices.Reverse(h.invitations)
	return h
}

// allow: who did something was in the role for it then, and nothing but its end changes a space that is suspended.
func (h *history) allow(e entered) {
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
			h.complain("done by a person in the role %q: %s", role, e)
		}
		return
	case "invitation.created", "invitation.revoked":
		allowed = role == "owner" || role == "editor"
	case "invitation.accepted":
		allowed = true
	}
	if !allowed {
		h.complain("done by a person in the role %q: %s", role, e)
	}
	if h.suspension.Suspended {
		h.complain("done while it was suspended: %s", e)
	}
}

func (h *history) enter(w *town, e entered) {
	p := e.Provenance
	switch e.Event {
	case "workspace.created":
		h.slug, h.name, h.used = p.Slug, p.Name, append(h.used, p.Slug)
		h.join(w, e, "owner")
		h.members[0].IsBillingUser = true
	case "workspace.renamed":
		if p.OldSlug != h.slug {
			h.complain("renamed from %s, which was %s: %s", p.OldSlug, h.slug, e)
		}
		h.slug, h.name, h.used = p.NewSlug, p.Name, append(h.used, p.NewSlug)
	case "workspace.suspended":
		if !h.suspension.Suspended {
			h.suspension.SuspendedAt = e.At
		}
		h.suspension.Suspended, h.suspension.SuspensionReason = true, p.Reason
		h.became("suspended", e.At, "yes")
	case "workspace.resumed":
		h.suspension = suspension{}
		h.became("suspended", e.At, "")
	case "default_model.changed":
		h.tier = p.Tier
		h.became("tier", e.At, p.Tier)
	case "member.role_changed", "member.removed":
		h.change(e)
	case "invitation.created", "invitation.revoked", "invitation.accepted":
		h.invite(w, e)
	case "workspace.status_changed":
		if e.ActorID != "system" {
			h.complain("only the platform knows of computers: %s", e)
		}
	default:
		h.complain("nobody does such a thing here: %s", e)
	}
}

func (h *history) join(w *town, e entered, role string) {
	p := w.byID[e.ActorID]
	if p == nil {
		h.complain("somebody unknown joined: %s", e)
		return
	}
	h.members = append(h.members, member{ID: p.id, Email: p.email, Name: fmt.Sprint("Person ", p.number), Role: role})
	h.became(p.id, e.At, role)
}

func (h *history) at(id string) int {
	return slices.IndexFunc(h.members, func(m member) bool { return m.ID == id })
}

func (h *history) change(e entered) {
	p := e.Provenance
	i := h.at(p.MemberUserID)
	if i < 0 || h.members[i].Role != p.OldRole || p.Role == p.OldRole {
		h.complain("the member was something else before: %s", e)
		return
	}
	h.became(p.MemberUserID, e.At, p.Role)
	if h.members[i].Role = p.Role; p.Role == "" {
		h.members = slices.Delete(h.members, i, i+1)
	}
}

// invite is about the one invitation of an address that is pending, or makes one.
func (h *history) invite(w *town, e entered) {
	p := e.Provenance
	i := slices.IndexFunc(h.invitations, func(i invitation) bool {
		return i.Email == p.TargetEmail && i.RevokedAt == 0 && i.ConsumedAt == 0
	})
	if i < 0 {
		if e.Event != "invitation.created" {
			h.complain("there was no such invitation: %s", e)
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
