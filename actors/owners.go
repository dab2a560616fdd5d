package actors

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// Owners are those in a partition who have rows in a list, in the order of their ids: at most limit of them, after one.
// Each costs one look-up, however many rows they have.
func (s *System) Owners(p persistence.Partition, list, after string, limit int) ([]string, error) {
	return s.IndexOwners(p, listIndex(list), after, limit)
}

// IndexOwners is Owners for the index of any name whose values begin with an id and a zero byte.
func (s *System) IndexOwners(p persistence.Partition, index, after string, limit int) ([]string, error) {
	v, err := s.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	var found []string
	for len(found) < limit {
		next, err := ownerAfter(v, p, index, after)
		if err != nil || next == "" {
			return found, err
		}
		found, after = append(found, next), next
	}
	return found, nil
}

// ownerAfter is the next one; "": there is none. All of an owner's values begin with the id and a zero byte, so that they
// come before the id and a one.
func ownerAfter(v persistence.View, p persistence.Partition, index, after string) (string, error) {
	query := persistence.Query{Index: index, Prefix: true}
	if after != "" {
		query.After = after + "\x01"
	}
	for row, err := range v.Index(p, query) {
		if err != nil {
			return "", err
		}
		owner, _, _ := strings.Cut(row.Value, "\x00")
		return strings.Clone(owner), nil
	}
	return "", nil
}

// Rows is a page of an owner's list as it lies in the journal. It asks nobody whether it may be read, and brings no entity
// into memory: a walk over everybody takes no more than a page at a time.
func (s *System) Rows(p persistence.Partition, owner string, asked *wirev1.List) (*wirev1.Page, error) {
	v, err := s.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return listPage(place{view: v, partition: p, identity: owner}, entity.List{}, asked)
}
