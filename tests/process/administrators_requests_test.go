package process

import "net/http"

// createWorkspace creates a workspace with a slug that other people compete for.
func (p *person) createWorkspace() bool {
	slug, name := p.scenario.directory.want(p.random.IntN(1000)), p.name()
	request := p.newRequest("workspace.created", "", slug, name)
	a := p.send("POST", "/v1/workspaces", map[string]string{"slug": slug, "name": name})
	var made struct{ WorkspaceID, Slug string }
	if a.outcome == acknowledged {
		err := a.read(&made)
		p.expect(a, err == nil && made.WorkspaceID != "" && made.Slug == slug && a.status == http.StatusCreated)
		p.scenario.directory.put(made.WorkspaceID, slug)
		p.own = append(p.own, made.WorkspaceID)
	}
	return p.finish(request, a)
}

// rename changes a workspace's slug to a slug that other people compete for, or to its current or a former slug.
func (p *person) rename(space string) bool {
	slug, name := p.scenario.directory.want(p.random.IntN(1000)), p.name()
	if p.random.IntN(3) == 0 {
		slug = p.scenario.directory.again(space, p.random.IntN(1000))
	}
	request := p.newRequest("workspace.renamed", space, slug, name)
	a := p.send("PATCH", "/v1/workspaces/"+p.scenario.directory.slug(space), map[string]any{
		"slug": slug, "name": name, "publicUrlBreakAcknowledged": true,
	})
	if p.note(space, a); a.outcome == acknowledged {
		p.scenario.directory.put(space, slug)
	}
	return p.finish(request, a)
}

func (p *person) changeRole(space string, other *person, role string) bool {
	request := p.newRequest("member.role_changed", space, other.id, role)
	a := p.sendTo("PATCH", space, "/members/"+other.id, map[string]string{"role": role})
	var changed struct{ Member member }
	p.expect(a, a.read(&changed) == nil && changed.Member.ID == other.id && changed.Member.Role == role)
	return p.finish(request, a)
}

func (p *person) remove(space string, other *person) bool {
	request := p.newRequest("member.removed", space, other.id, "")
	a := p.sendTo("DELETE", space, "/members/"+other.id, nil)
	var gone struct{ Removed bool }
	if err := a.read(&gone); a.outcome == acknowledged {
		p.expect(a, err == nil)
		if !gone.Removed {
			a.outcome = nothing
		}
	}
	return p.finish(request, a)
}

func (p *person) invite(space string, other *person, role string) bool {
	request := p.newRequest("invitation.created", space, other.email, role)
	a := p.sendTo("POST", space, "/invites", map[string]string{"email": other.email, "role": role})
	var made invitation
	if err := a.read(&made); a.outcome == acknowledged {
		p.expect(a, err == nil && made.ID != "" && made.Email == other.email && made.Role == role)
		p.scenario.directory.addInvitation(invited{space, made.ID, other.email})
	}
	return p.finish(request, a)
}

func (p *person) revoke() bool {
	i, some := p.scenario.directory.invitation(p.random.IntN(1000))
	if !some {
		return true
	}
	request := p.newRequest("invitation.revoked", i.space, i.email, "")
	a := p.sendTo("DELETE", i.space, "/invites/"+i.id, nil)
	var gone struct{ RevokedAt int64 }
	err := a.read(&gone)
	p.expect(a, err == nil && gone.RevokedAt > 0)
	request.at = gone.RevokedAt
	return p.finish(request, a)
}

// addressed is an invitation in the list of the invited person.
type addressed struct {
	ID        string
	Workspace struct{ ID, Slug string }
}

func (p *person) invitations() (items []addressed, answered bool) {
	a := p.send("GET", "/v1/user/invitations?limit=100", nil)
	var page struct{ Items []addressed }
	p.expect(a, a.read(&page) == nil)
	return page.Items, !a.lost
}

// accept accepts one of the person's invitations.
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

// acceptOne accepts an invitation, perhaps a second time after the first response was lost.
func (p *person) acceptOne(i addressed) bool {
	request := p.newRequest("invitation.accepted", i.Workspace.ID, p.email, "")
	if p.began == nil {
		p.began = map[string]int64{}
	}
	if p.began[i.ID] == 0 {
		p.began[i.ID] = request.began
	}
	request.since = p.began[i.ID]
	a := p.send("POST", "/v1/user/invitations/"+i.ID+"/accept", nil)
	var joined struct{ WorkspaceID, WorkspaceSlug string }
	if err := a.read(&joined); a.outcome == acknowledged {
		p.expect(a, err == nil && joined.WorkspaceID == i.Workspace.ID)
		p.scenario.directory.put(joined.WorkspaceID, joined.WorkspaceSlug)
	}
	p.note(i.Workspace.ID, a)
	return p.finish(request, a)
}

func (p *person) suspend(space string) bool {
	reason := p.name()
	request := p.newRequest("workspace.suspended", space, "", reason)
	a := p.sendTo("PUT", space, "/admin/suspension", map[string]any{"suspended": true, "reason": reason})
	var state suspension
	p.expect(a, a.read(&state) == nil && state.Suspended && state.SuspensionReason == reason)
	return p.finish(request, a)
}

func (p *person) resume(space string) bool {
	request := p.newRequest("workspace.resumed", space, "", "")
	a := p.sendTo("PUT", space, "/admin/suspension", map[string]any{"suspended": false})
	var state suspension
	p.expect(a, a.read(&state) == nil && !state.Suspended)
	return p.finish(request, a)
}

func (p *person) setModel(space, tier string) bool {
	request := p.newRequest("default_model.changed", space, "", tier)
	a := p.sendTo("PUT", space, "/default-model", map[string]string{"tier": tier})
	var state struct{ Tier string }
	p.expect(a, a.read(&state) == nil && state.Tier == tier)
	return p.finish(request, a)
}

// whoami reads the person's workspaces and records their current slugs.
func (p *person) whoami() bool {
	a := p.send("GET", "/v1/whoami", nil)
	if a.outcome != acknowledged {
		p.expectWhoami(a)
		return !a.lost
	}
	var self whoami
	p.expect(a, a.read(&self) == nil && self.User.ID == p.id)
	for _, s := range self.Workspaces {
		p.scenario.directory.put(s.ID, s.Slug)
	}
	return true
}

// expectWhoami fails the test if whoami was refused.
func (p *person) expectWhoami(a answer) {
	if a.outcome == refused {
		p.errorf("whoami of %s: %d %s", p.email, a.status, a.body)
	}
}
