package actors

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

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

func listIndex(name string) string { return entity.ListIndex(name) }

// Listed are the entities that have rows in a list, over all partitions.
func (s *System) Listed(list string) ([]string, error) { return s.Identities(listIndex(list)) }

func listPrefix(identity string) string {
	owner, _, _ := strings.Cut(identity, "/")
	return owner + "\x00"
}

// listPage reads a page of a list. It passes over at most scanBudget rows that do not match; such a page is short.
func listPage(at place, l entity.List, asked *wirev1.List) (*wirev1.Page, error) {
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
