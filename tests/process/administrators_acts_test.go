package process

import "net/http"

// found creates a workspace under a slug that others want as well.
func (p *person) found() bool {
	slug, name := p.town.signs.want(p.random.IntN(1000)), p.name()
	attempt := p.attempt("workspace.created", "", slug, name)
	a := p.ask("POST", "/v1/workspaces", map[string]string{"slug": slug, "name": name})
	var made struct{ WorkspaceID, Slug string }
	if a.outcome == acknowledged {
		err := a.read(&made)
		p.expect(a, err == nil && made.WorkspaceID != "" && made.Slug == slug && a.status == http.StatusCreated)
		p.town.signs.put(made.WorkspaceID, slug)
		p.own = append(p.own, made.WorkspaceID)
	}
	return p.learn(attempt, a)
}

// rename gives a slug that others want as well, or one that the space had before, or has.
func (p *person) rename(space string) bool {
	slug, name := p.town.signs.want(p.random.IntN(1000)), p.name()
	if p.random.IntN(3) == 0 {
		slug = p.town.signs.again(space, p.random.IntN(1000))
	}
	attempt := p.attempt("workspace.renamed", space, slug, name)
	a := p.ask("PATCH", "/v1/workspaces/"+p.town.signs.slug(space), map[string]any{
		"slug": slug, "name": name, "publicUrlBreakAcknowledged": true,
	})
	if p.note(space, a); a.outcome == acknowledged {
		p.town.signs.put(space, slug)
	}
	return p.learn(attempt, a)
}

func (p *person) changeRole(space string, other *person, role string) bool {
	attempt := p.attempt("member.role_changed", space, other.id, role)
	a := p.inSpace("PATCH", space, "/members/"+other.id, map[string]string{"role": role})
	var changed struct{ Member member }
	p.expect(a, a.read(&changed) == nil && changed.Member.ID == other.id && changed.Member.Role == role)
	return p.learn(attempt, a)
}

func (p *person) remove(space string, other *person) bool {
	attempt := p.attempt("member.removed", space, other.id, "")
	a := p.inSpace("DELETE", space, "/members/"+other.id, nil)
	var gone struct{ Removed bool }
	if err := a.read(&gone); a.outcome == acknowledged {
		p.expect(a, err == nil)
		if !gone.Removed {
			a.outcome = nothing
		}
	}
	return p.learn(attempt, a)
}

func (p *person) invite(space string, other *person, role string) bool {
	attempt := p.attempt("invitation.created", space, other.email, role)
	a := p.inSpace("POST", space, "/invites", map[string]string{"email": other.email, "role": role})
	var made invitation
	if err := a.read(&made); a.outcome == acknowledged {
		p.expect(a, err == nil && made.ID != "" && made.Email == other.email && made.Role == role)
		p.town.signs.keep(invited{space, made.ID, other.email})
	}
	return p.learn(attempt, a)
}

func (p *person) revoke() bool {
	i, some := p.town.signs.take(p.random.IntN(1000))
	if !some {
		return true
	}
	attempt := p.attempt("invitation.revoked", i.space, i.email, "")
	a := p.inSpace("DELETE", i.space, "/invites/"+i.id, nil)
	var gone struct{ RevokedAt int64 }
	err := a.read(&gone)
	p.expect(a, err == nil && gone.RevokedAt > 0)
	attempt.at = gone.RevokedAt
	return p.learn(attempt, a)
}

// addressed is an invitation as the person sees it who is invited.
type addressed struct {
	ID        string
	Workspace struct{ ID, Slug string }
}

func (p *person) invitations() (items []addressed, answered bool) {
	a := p.ask("GET", "/v1/user/invitations?limit=100", nil)
	var page struct{ Items []addressed }
	p.expect(a, a.read(&page) == nil)
	return page.Items, !a.lost
}

// accept accepts one of the invitations that are addressed to the person.
func (p *person) accept() bool {
	items, answered := p.invitations()
	if len(items) == 0 {
		return answered
	}
	return p.acceptOne(items[p.random.IntN(len(items))])
}

func (p *person) acceptAll() {
	items, _ := p.invitations()
	for _, i := range items {
		p.acceptOne(i)
	}
}

// acceptOne may be the second time, after the first one's answer was lost.
func (p *person) acceptOne(i addressed) bool {
	attempt := p.attempt("invitation.accepted", i.Workspace.ID, p.email, "")
	if p.began == nil {
		p.began = map[string]int64{}
	}
	if p.began[i.ID] == 0 {
		p.began[i.ID] = attempt.began
	}
	attempt.since = p.began[i.ID]
	a := p.ask("POST", "/v1/user/invitations/"+i.ID+"/accept", nil)
	var joined struct{ WorkspaceID, WorkspaceSlug string }
	if err := a.read(&joined); a.outcome == acknowledged {
		p.expect(a, err == nil && joined.WorkspaceID == i.Workspace.ID)
		p.town.signs.put(joined.WorkspaceID, joined.WorkspaceSlug)
	}
	p.note(i.Workspace.ID, a)
	return p.learn(attempt, a)
}

func (p *person) suspend(space string) bool {
	reason := p.name()
	attempt := p.attempt("workspace.suspended", space, "", reason)
	a := p.inSpace("PUT", space, "/admin/suspension", map[string]any{"suspended": true, "reason": reason})
	var state suspension
	p.expect(a, a.read(&state) == nil && state.Suspended && state.SuspensionReason == reason)
	return p.learn(attempt, a)
}

func (p *person) resume(space string) bool {
	attempt := p.attempt("workspace.resumed", space, "", "")
	a := p.inSpace("PUT", space, "/admin/suspension", map[string]any{"suspended": false})
	var state suspension
	p.expect(a, a.read(&state) == nil && !state.Suspended)
	return p.learn(attempt, a)
}

func (p *person) setModel(space, tier string) bool {
	attempt := p.attempt("default_model.changed", space, "", tier)
	a := p.inSpace("PUT", space, "/default-model", map[string]string{"tier": tier})
	var state struct{ Tier string }
	p.expect(a, a.read(&state) == nil && state.Tier == tier)
	return p.learn(attempt, a)
}

// look asks which workspaces the person belongs to, and where they are found now.
func (p *person) look() bool {
	a := p.ask("GET", "/v1/whoami", nil)
	if a.outcome != acknowledged {
		p.expectEntry(a)
		return !a.lost
	}
	var who whoami
	p.expect(a, a.read(&who) == nil && who.User.ID == p.id)
	for _, s := range who.Workspaces {
		p.town.signs.put(s.ID, s.Slug)
	}
	return true
}

// expectEntry: nothing refuses a person to know who they are.
func (p *person) expectEntry(a answer) {
	if a.outcome == refused {
		p.errorf("whoami of %s: %d %s", p.email, a.status, a.body)
	}
}
