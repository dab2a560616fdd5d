package process

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

// verdict is what is wrong.
type verdict struct {
	town      *town
	read      *reading
	histories map[string]*history
	problems  []string
}

func (v *verdict) complain(format string, arguments ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, arguments...))
}

// judge reads everything until it is as it should be: what follows from changes may take its time after a start.
func (w *town) judge(t *testing.T) {
	t.Helper()
	for _, p := range w.people {
		p.reconnect()
		defer p.client.close()
	}
	given := time.After(patience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		v := &verdict{town: w, histories: map[string]*history{}}
		v.all()
		if len(v.problems) == 0 {
			v.tell(t)
			w.judgeSlugs(t, v)
			return
		}
		select {
		case <-time.After(pause):
		case <-given:
			for _, p := range v.problems[:min(len(v.problems), 50)] {
				t.Error(p)
			}
			t.Fatalf("%d problems", len(v.problems))
		}
	}
}

func (v *verdict) all() {
	var err error
	if v.read, err = v.town.read(); err != nil {
		v.complain("%v", err)
		return
	}
	ids, slugs := map[string]bool{}, map[string]string{}
	for id, b := range v.read.spaces {
		h := replayAudit(v.town, b)
		v.histories[id] = h
		v.problems = append(v.problems, h.problems...)
		for i, e := range b.audit {
			if ids[e.ID] || e.ID == "" {
				v.complain("the id of an audit event twice: %s", e)
			}
			if ids[e.ID] = true; i > 0 && e.At < b.audit[i-1].At {
				v.complain("the audit log of %s is out of order: %s", id, e)
			}
		}
		for _, slug := range h.used {
			if other := slugs[slug]; other != "" && other != id {
				v.complain("the slug %s was given to %s and to %s", slug, other, id)
			}
			slugs[slug] = id
		}
		v.space(b, h)
	}
	v.people()
	v.changes()
}

// space: what a space is now is what its audit log tells, and it never is without an owner.
func (v *verdict) space(b *books, h *history) {
	owners, payers := 0, 0
	for _, m := range b.members {
		if m.Role == "owner" {
			owners++
		}
		if m.IsBillingUser && m.ID == b.BillingUserID && m.Role == "owner" {
			payers++
		}
		if v.town.byID[m.ID] == nil {
			v.complain("somebody unknown is a member of %s: %+v", b.ID, m)
		}
	}
	if owners == 0 || payers != 1 {
		v.complain("%s has %d owners, of whom %d pay", b.ID, owners, payers)
	}
	same(v, b.ID+" is called", b.Slug+" "+b.Name, h.slug+" "+h.name)
	same(v, "the model of "+b.ID, b.DefaultTier.Configured, h.tier)
	same(v, "the suspension of "+b.ID, b.suspension, h.suspension)
	same(v, b.ID+" is suspended", b.ServicingStatus != "active", h.suspension.Suspended)
	sameAll(v, "the members of "+b.ID, b.members, h.members)
	var invitations []invitation
	for _, i := range b.invitations {
		i.ID = ""
		invitations = append(invitations, i)
	}
	sameAll(v, "the invitations of "+b.ID, invitations, h.invitations)
}

func same[V comparable](v *verdict, what string, is, said V) {
	if is != said {
		v.complain("%s: %+v, the audit log says %+v", what, is, said)
	}
}

func sameAll[V comparable](v *verdict, what string, is, said []V) {
	if slices.Equal(is, said) {
		return
	}
	v.complain("%s: %d, the audit log says %d", what, len(is), len(said))
	for i := range min(len(is), len(said)) {
		if is[i] != said[i] {
			v.complain("%s, number %d: %+v, the audit log says %+v", what, i, is[i], said[i])
			return
		}
	}
}

// people see the spaces that list them as members, in their role, and the invitations that are theirs.
func (v *verdict) people() {
	roles, waiting := map[string]map[string]string{}, map[string]map[string]bool{}
	for _, p := range v.town.people {
		roles[p.id], waiting[p.email] = map[string]string{}, map[string]bool{}
	}
	for id, b := range v.read.spaces {
		for _, m := range b.members {
			if roles[m.ID] != nil {
				roles[m.ID][id] = m.Role
			}
		}
		for _, i := range b.invitations {
			if i.RevokedAt == 0 && i.ConsumedAt == 0 {
				waiting[i.Email][i.ID] = true
			}
		}
	}
	for _, p := range v.town.people {
		sees, addressed := map[string]string{}, map[string]bool{}
		for _, s := range v.read.who[p.id].Workspaces {
			sees[s.ID] = s.Role
		}
		for _, i := range v.read.own[p.id] {
			addressed[i.ID] = true
		}
		if !maps.Equal(sees, roles[p.id]) {
			v.complain("%s is told of %v, and is a member of %v", p.email, sees, roles[p.id])
		}
		if !maps.Equal(addressed, waiting[p.email]) {
			v.complain("%s is told of the invitations %v; these wait: %v", p.email, addressed, waiting[p.email])
		}
	}
}

// tell says how much the verdict is about.
func (v *verdict) tell(t *testing.T) {
	t.Helper()
	outcomes, rows := map[outcome]int{}, 0
	for _, p := range v.town.people {
		for _, one := range p.told {
			outcomes[one.outcome]++
		}
	}
	for _, b := range v.read.spaces {
		rows += len(b.audit)
	}
	t.Logf("%d kills, %d spaces, %d audit rows; %d changes acknowledged, %d refused, %d that changed nothing, %d cut off",
		v.town.site.life, len(v.read.spaces), rows, outcomes[acknowledged], outcomes[refused], outcomes[nothing], outcomes[unknown])
}

// judgeSlugs: a space is found under its own slug alone; one that it had is kept for it, and one that nobody got is free.
func (w *town) judgeSlugs(t *testing.T, v *verdict) {
	t.Helper()
	used := map[string]bool{}
	for id, h := range v.histories {
		payer := w.byID[v.read.spaces[id].BillingUserID]
		stranger := w.people[(payer.number+1)%peopleAtWork]
		for _, slug := range h.used {
			used[slug] = true
			if slug == h.slug {
				continue
			}
			payer.client.expect(t, http.StatusNotFound, "GET", "/v1/ws/"+slug+"/members", "")
			stranger.client.expect(t, http.StatusConflict, "POST", "/v1/workspaces",
				fmt.Sprintf(`{"slug":%q,"name":"Mine"}`, slug), "Content-Type", "application/json")
		}
	}
	free := 0
	for slug := range w.signs.wanted {
		if used[slug] {
			continue
		}
		if free++; free > 20 {
			break
		}
		eventually(t, "the slug "+slug+", which nobody got, is free", func() bool {
			a := w.people[0].ask("POST", "/v1/workspaces", map[string]string{"slug": slug, "name": slug})
			return a.status == http.StatusCreated
		})
	}
	t.Logf("%d slugs given, %d not", len(used), free)
}
