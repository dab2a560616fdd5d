package process

import (
	"slices"
)

// told in the audit log, and by whom.
type ledger struct {
	rows []entered
	// taken are those that an acknowledgement or an attempt of unknown outcome accounts for.
	taken []bool
	asked []told
}

// changes: each acknowledged change is in the audit log exactly once, one of unknown outcome at most once, and nothing
// else is there.
func (v *verdict) changes() {
	ledgers := map[deed]*ledger{}
	of := func(d deed) *ledger {
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
			l := of(e.deed(id))
			l.rows, l.taken = append(l.rows, e), append(l.taken, false)
		}
	}
	for _, p := range v.town.people {
		for _, one := range p.told {
			l := of(one.deed)
			l.asked = append(l.asked, one)
		}
	}
	for _, l := range ledgers {
		v.balance(l)
	}
}

// balance accounts for the rows of one deed. Who asks has one request under way at a time, so that a row's time tells
// which it belongs to.
func (v *verdict) balance(l *ledger) {
	for _, one := range l.asked {
		if one.outcome != acknowledged && one.outcome != nothing {
			continue
		}
		took := one.outcome == acknowledged && l.take(func(e entered) bool { return one.during(e.At) })
		if !took && !v.alreadySo(one, l) {
			v.complain("not in the audit log: %s", one)
		}
	}
	for _, one := range l.asked {
		if one.outcome == unknown {
			l.take(func(e entered) bool { return one.began-slack <= e.At })
		}
	}
	for i, e := range l.rows {
		if !l.taken[i] {
			v.complain("nobody asked for this, or not so often: %s; asked: %v", e, l.asked)
		}
	}
}

func (l *ledger) take(fits func(entered) bool) bool {
	for i, e := range l.rows {
		if !l.taken[i] && fits(e) {
			l.taken[i] = true
			return true
		}
	}
	return false
}

// alreadySo tells whether there was nothing to change while a request was under way.
func (v *verdict) alreadySo(one told, l *ledger) bool {
	h := v.histories[one.space]
	if h == nil {
		return false
	}
	switch one.event {
	case "member.role_changed":
		return h.was(one.target, one.value, one.began, one.ended)
	case "member.removed":
		return one.outcome == nothing && h.was(one.target, "", one.began, one.ended)
	case "workspace.resumed":
		return h.was("suspended", "", one.began, one.ended)
	case "default_model.changed":
		return h.was("tier", one.value, one.began, one.ended)
	case "invitation.accepted":
		return slices.ContainsFunc(l.rows, func(e entered) bool { return one.since-slack <= e.At && e.At <= one.ended+slack })
	case "invitation.revoked":
		return slices.ContainsFunc(v.read.spaces[one.space].audit, func(e entered) bool {
			return e.Event == one.event && e.Provenance.TargetEmail == one.target && e.At == one.at
		})
	}
	return false
}
