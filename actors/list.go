package actors

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// List is one of a kind's lists.
type List struct {
	// Need is what who walks it needs of the entity.
	Need entity.Need
	// Match tells whether a row fits what is searched for; nil: the list cannot be searched.
	Match func(row []byte, search string) bool
	// Most is the longest page; 0: 100.
	Most int
}

// changes are the index entries of rows. They lie with the workspace or person that the entity belongs to.
func changes(identity string, rows []entity.Row) ([]persistence.Change, error) {
	var all []persistence.Change
	for _, row := range rows {
		c := persistence.Change{
			Entry:  persistence.Entry{Index: listIndex(row.List), Value: listPrefix(identity) + row.Key},
			Remove: row.Message == nil,
		}
		if !c.Remove {
			var err error
			if c.Data, err = proto.Marshal(row.Message); err != nil {
				return nil, err
			}
		}
		all = append(all, c)
	}
	return all, nil
}

func listIndex(name string) string { return "list." + name }

// Listed are the entities that have rows in a list, over all partitions.
func (s *System) Listed(list string) ([]string, error) { return s.Identities(listIndex(list)) }

func listPrefix(identity string) string {
	owner, _, _ := strings.Cut(identity, "/")
	return owner + "\x00"
}

// list answers a page of a list from a view, off the actor, for whom the entity's rules let in.
func (e *entityActor) list(r *request, l *wirev1.List) {
	lists, p := e.kind.lists, e.own
	if r.command.Kind != e.kind.name {
		lists, p = e.kind.parts[r.command.Kind].lists, e.part(r.command.Kind)
	}
	found, ok := lists[l.GetName()]
	if !ok || l.GetSearch() != "" && found.Match == nil {
		p.refuse(r, entity.Errorf(entity.InvalidRequest, "a %s has no such list %q", r.command.Kind, l.GetName()))
		return
	}
	if err := e.guard(r.command.Principal, found.Need); err != nil {
		p.refuse(r, err)
		return
	}
	e.answer(p, r, func(at place) (proto.Message, error) { return found.page(at, l) })
}

// page passes over at most scanBudget rows that do not match; such a page is short.
func (l List) page(at place, asked *wirev1.List) (*wirev1.Page, error) {
	most := l.Most
	if most == 0 {
		most = 100
	}
	limit := min(max(int(asked.GetLimit()), 1), most)
	prefix := listPrefix(at.identity)
	query := persistence.Query{Index: listIndex(asked.GetName()), Value: prefix, Prefix: true}
	if len(asked.GetAfter()) > 0 {
		query.After = prefix + string(asked.GetAfter())
	}
	out, last, scanned := &wirev1.Page{}, "", 0
	for entry, err := range at.view.Index(at.partition, query) {
		if err != nil {
			return nil, err
		}
		if len(out.Rows) == limit || scanned == max(scanBudget, most) {
			out.Next = []byte(last[len(prefix):])
			break
		}
		scanned++
		last = entry.Value
		if asked.GetSearch() == "" || l.Match(entry.Data, asked.GetSearch()) {
			out.Rows = append(out.Rows, append([]byte(nil), entry.Data...))
		}
	}
	return out, nil
}
