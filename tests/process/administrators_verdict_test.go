package process

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

// A verification compares a snapshot with the audit logs and with the requests of the people.
type verification struct {
	scenario  *scenario
	read      *snapshot
	histories map[string]*history
	problems  []string
}

func (v *verification) addProblem(format string, arguments ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, arguments...))
}

// verify reads a snapshot and verifies it until there is no problem, because the consequences of changes may still be
// pending after a start. It fails the test after patience.
func (s *scenario) verify(t *testing.T) {
	t.Helper()
	address, _ := s.site.current()
	for _, p := range s.people {
		p.connect(address)
		defer p.client.close()
	}
	deadline := time.After(patience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		v := &verification{scenario: s, histories: map[string]*history{}}
		v.verifyAll()
		if len(v.problems) == 0 {
			v.logSummary(t)
			s.verifySlugs(t, v)
			return
		}
		select {
		case <-time.After(pause):
		case <-deadline:
			for _, p := range v.problems[:min(len(v.problems), 50)] {
				t.Error(p)
			}
			t.Fatalf("%d problems", len(v.problems))
		}
	}
}

func (v *verification) verifyAll() {
	var err error
	if v.read, err = v.scenario.read(); err != nil {
		v.addProblem("%v", err)
		return
	}
	ids, slugs := map[string]bool{}, map[string]string{}
	for id, b := range v.read.spaces {
		h := replayAudit(v.scenario, b)
		v.histories[id] = h
		v.problems = append(v.problems, h.problems...)
		for i, e := range b.audit {
			if ids[e.ID] || e.ID == "" {
				v.addProblem("duplicate or empty id of an audit row: %s", e)
			}
			if ids[e.ID] = true; i > 0 && e.At < b.audit[i-1].At {
				v.addProblem("the audit log of %s is out of order: %s", id, e)
			}
		}
		for _, slug := range h.used {
			if other := slugs[slug]; other != "" && other != id {
				v.addProblem("the slug %s belonged to both %s and %s", slug, other, id)
			}
			slugs[slug] = id
		}
		v.verifyWorkspace(b, h)
	}
	v.verifyPeople()
	v.verifyChanges()
}

// verifyWorkspace verifies that a workspace agrees with its audit log, and has an owner and one billing user.
func (v *verification) verifyWorkspace(b *workspaceView, h *history) {
	owners, payers := 0, 0
	for _, m := range b.members {
		if m.Role == "owner" {
			owners++
		}
		if m.IsBillingUser && m.ID == b.BillingUserID && m.Role == "owner" {
			payers++
		}
		if v.scenario.byID[m.ID] == nil {
			v.addProblem("an unknown person is a member of %s: %+v", b.ID, m)
		}
	}
	if owners == 0 || payers != 1 {
		v.addProblem("%s has %d owners and %d billing users among them, want 1 or more and 1", b.ID, owners, payers)
	}
	compare(v, "the slug and name of "+b.ID, b.Slug+" "+b.Name, h.slug+" "+h.name)
	compare(v, "the model of "+b.ID, b.DefaultTier.Configured, h.tier)
	compare(v, "the suspension of "+b.ID, b.suspension, h.suspension)
	compare(v, "the servicing status of "+b.ID, b.ServicingStatus != "active", h.suspension.Suspended)
	compareAll(v, "the members of "+b.ID, b.members, h.members)
	var invitations []invitation
	for _, i := range b.invitations {
		i.ID = ""
		invitations = append(invitations, i)
	}
	compareAll(v, "the invitations of "+b.ID, invitations, h.invitations)
}

// compare adds a problem if a value differs from the value that follows from the audit log.
func compare[V comparable](v *verification, name string, got, want V) {
	if got != want {
		v.addProblem("%s: got %+v, want %+v from the audit log", name, got, want)
	}
}

// compareAll is compare for lists. It reports the first difference.
func compareAll[V comparable](v *verification, name string, got, want []V) {
	if slices.Equal(got, want) {
		return
	}
	v.addProblem("%s: got %d, want %d from the audit log", name, len(got), len(want))
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			v.addProblem("%s, number %d: got %+v, want %+v from the audit log", name, i, got[i], want[i])
			return
		}
	}
}

// verifyPeople verifies that each person sees the workspaces that list them as a member, with that role, and their
// invitations.
func (v *verification) verifyPeople() {
	roles, waiting := map[string]map[string]string{}, map[string]map[string]bool{}
	for _, p := range v.scenario.people {
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
	for _, p := range v.scenario.people {
		sees, addressed := map[string]string{}, map[string]bool{}
		for _, s := range v.read.who[p.id].Workspaces {
			sees[s.ID] = s.Role
		}
		for _, i := range v.read.own[p.id] {
			addressed[i.ID] = true
		}
		if !maps.Equal(sees, roles[p.id]) {
			v.addProblem("%s sees the workspaces %v, want %v from the lists of members", p.email, sees, roles[p.id])
		}
		if !maps.Equal(addressed, waiting[p.email]) {
			v.addProblem("%s sees the invitations %v, want %v from the workspaces", p.email, addressed, waiting[p.email])
		}
	}
}

// logSummary logs how many requests and rows were verified.
func (v *verification) logSummary(t *testing.T) {
	t.Helper()
	outcomes, rows := map[outcome]int{}, 0
	for _, p := range v.scenario.people {
		for _, one := range p.requests {
			outcomes[one.outcome]++
		}
	}
	for _, b := range v.read.spaces {
		rows += len(b.audit)
	}
	t.Logf("%d kills, %d workspaces, %d audit rows; %d changes acknowledged, %d refused, %d without effect, %d with an unknown outcome",
		v.scenario.site.generation, len(v.read.spaces), rows, outcomes[acknowledged], outcomes[refused], outcomes[nothing], outcomes[unknown])
}

// verifySlugs verifies that a workspace is found only by its current slug, that its former slugs stay reserved for it,
// and that unused slugs are free.
func (s *scenario) verifySlugs(t *testing.T, v *verification) {
	t.Helper()
	used := map[string]bool{}
	for id, h := range v.histories {
		payer := s.byID[v.read.spaces[id].BillingUserID]
		stranger := s.people[(payer.number+1)%peopleCount]
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
	for slug := range s.directory.wanted {
		if used[slug] {
			continue
		}
		if free++; free > 20 {
			break
		}
		eventually(t, "the unused slug "+slug+" is free", func() bool {
			a := s.people[0].send("POST", "/v1/workspaces", map[string]string{"slug": slug, "name": slug})
			return a.status == http.StatusCreated
		})
	}
	t.Logf("%d slugs used, %d free", len(used), free)
}

// A ledger has the audit rows and the requests for one change.
type ledger struct {
	rows []auditRow
	// taken marks the rows that were assigned to a request.
	taken []bool
	asked []request
}

// verifyChanges verifies that each acknowledged change is in the audit log exactly once, a change with an unknown outcome
// at most once, and nothing else.
func (v *verification) verifyChanges() {
	ledgers := map[change]*ledger{}
	of := func(d change) *ledger {
		if ledgers[d] == nil {
			ledgers[d] = &ledger{}
		}
		return ledgers[d]
	}
	for id, b := range v.read.spaces {
		for _, e := range b.audit {
			if e.Event == "workspace.status_changed" {
				continue
			}
			l := of(e.change(id))
			l.rows, l.taken = append(l.rows, e), append(l.taken, false)
		}
	}
	for _, p := range v.scenario.people {
		for _, one := range p.requests {
			l := of(one.change)
			l.asked = append(l.asked, one)
		}
	}
	for d, l := range ledgers {
		v.balance(d.space, l)
	}
}

// balance assigns the rows of one change to its requests. A person has one request in flight at a time, so a row's time
// determines the request.
func (v *verification) balance(space string, l *ledger) {
	for _, one := range l.asked {
		if one.outcome != acknowledged && one.outcome != nothing {
			continue
		}
		took := one.outcome == acknowledged && l.take(func(e auditRow) bool { return one.during(e.At) })
		if !took && !v.alreadySo(one, l) {
			v.addProblem("an acknowledged change is not in the audit log: %s", one)
		}
	}
	for _, one := range l.asked {
		if one.outcome == unknown {
			l.take(func(e auditRow) bool { return one.began-slack <= e.At })
		}
	}
	for i, e := range l.rows {
		if !l.taken[i] && !v.read.spaces[space].endedWithInviter(e) {
			v.addProblem("the audit row belongs to no request: %s; requests: %v", e, l.asked)
		}
	}
}

// endedWithInviter reports whether a row says that an invitation was revoked because the person who had sent it lost the right to invite:
// the change that took the right has the same actor and time.
func (b *workspaceView) endedWithInviter(e auditRow) bool {
	if b == nil || e.Event != "invitation.revoked" {
		return false
	}
	return slices.ContainsFunc(b.audit, func(lost auditRow) bool {
		takesRight := lost.Event == "member.removed" || lost.Event == "member.role_changed" && lost.Provenance.Role == "viewer"
		return takesRight && lost.ActorID == e.ActorID && lost.At == e.At && slices.ContainsFunc(b.audit, func(sent auditRow) bool {
			return sent.Event == "invitation.created" && sent.ActorID == lost.Provenance.MemberUserID &&
				sent.Provenance.TargetEmail == e.Provenance.TargetEmail && sent.At <= e.At
		})
	})
}

func (l *ledger) take(fits func(auditRow) bool) bool {
	for i, e := range l.rows {
		if !l.taken[i] && fits(e) {
			l.taken[i] = true
			return true
		}
	}
	return false
}

// alreadySo reports whether the request had nothing to change at some time while it was in flight.
func (v *verification) alreadySo(one request, l *ledger) bool {
	h := v.histories[one.space]
	if h == nil {
		return false
	}
	switch one.event {
	case "member.role_changed":
		return h.hadValue(one.target, one.value, one.began, one.ended)
	case "member.removed":
		return one.outcome == nothing && h.hadValue(one.target, "", one.began, one.ended)
	case "workspace.resumed":
		return h.hadValue("suspended", "", one.began, one.ended)
	case "default_model.changed":
		return h.hadValue("tier", one.value, one.began, one.ended)
	case "invitation.accepted":
		return slices.ContainsFunc(l.rows, func(e auditRow) bool { return one.since-slack <= e.At && e.At <= one.ended+slack })
	case "invitation.revoked":
		return slices.ContainsFunc(v.read.spaces[one.space].audit, func(e auditRow) bool {
			return e.Event == one.event && e.Provenance.TargetEmail == one.target && e.At == one.at
		})
	}
	return false
}
