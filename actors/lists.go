package actors

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A row of a list is an index entry: the index is named after the list, and the value is the id of the owner, a zero byte and
// the row's key. The owner is the workspace or user that the entity of the row belongs to, or the entity itself.

// listChanges returns the index entries that write or, for a row without a message, remove the rows of an entity.
func listChanges(identity string, rows []entity.Row) ([]persistence.Change, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	owner := ownerOf(identity)
	all := make([]persistence.Change, 0, len(rows))
	for _, row := range rows {
		c := persistence.Change{
			Entry:  persistence.Entry{Index: listIndex(row.List), Value: owner + "\x00" + row.Key},
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

// listPrefix returns the common beginning of the values of an owner's rows.
func listPrefix(identity string) string { return ownerOf(identity) + "\x00" }

// defaultPageRows limits the rows of a page of a list that sets no limit (entity.List.Most).
const defaultPageRows = 100

// readListPage returns a page of a list, in the order of the rows' keys. A page may be shorter than its limit although more rows follow, for two
// reasons: readListPage reads at most scanBudget rows that the principal of the call does not see or that do not match, and, unless the list
// sets a limit, at most maxPageBytes.
func readListPage(src source, l entity.List, asked *wirev1.List, call entity.Call) (*wirev1.Page, error) {
	most := l.Most
	if most == 0 {
		most = defaultPageRows
	}
	limit := min(max(int(asked.GetLimit()), 1), most)
	prefix := listPrefix(src.identity)
	query := persistence.Query{Index: listIndex(asked.GetName()), Value: prefix + string(asked.GetPrefix()), Prefix: true}
	if len(asked.GetAfter()) > 0 {
		query.After = prefix + string(asked.GetAfter())
	}
	out, last, scanned, size := &wirev1.Page{}, "", 0, 0
	for entry, err := range src.view.Index(src.partition, query) {
		if err != nil {
			return nil, err
		}
		if len(out.Rows) == limit || scanned == max(scanBudget, most) || size >= maxPageBytes && l.Most == 0 {
			out.Next = []byte(last[len(prefix):])
			break
		}
		scanned++
		last = entry.Value
		row, selected, err := selectRow(src, l, asked, call, entry.Data)
		if err != nil {
			return nil, err
		}
		if selected {
			out.Rows = append(out.Rows, append([]byte(nil), row...)) // the entry's bytes belong to the view
			size += len(row)
		}
	}
	return out, nil
}

// selectRow returns the row for an entry of a list, which is in another list if the entry is a reference. selected is false if
// the row does not exist, the reader does not see it, or it does not match.
func selectRow(src source, l entity.List, asked *wirev1.List, call entity.Call, stored []byte) (row []byte, selected bool, err error) {
	if row = stored; l.Of != "" {
		key, err := l.Key(stored)
		if err != nil {
			return nil, false, err
		}
		found := false
		row, found, err = src.view.Lookup(src.partition, listIndex(l.Of), listPrefix(src.identity)+key, 0)
		if err != nil || !found {
			return nil, false, err
		}
	}
	if asked.GetSearch() != "" && !l.Match(row, asked.GetSearch()) {
		return nil, false, nil
	}
	if l.Visible != nil {
		if seen, err := l.Visible(call, row, asked.GetFilter()); err != nil || !seen {
			return nil, false, err
		}
	}
	return row, true, nil
}

// An OwnedPartition reads and writes a partition that this process owns, without its actors. Its methods are safe for
// concurrent use.
type OwnedPartition struct {
	system    *System
	partition persistence.Partition
}

// OwnedPartition returns a partition that this process owns.
func (s *System) OwnedPartition(p persistence.Partition) OwnedPartition { return OwnedPartition{s, p} }

// Active returns the identities of a kind's entities that are in memory, in no order; see System.Active.
func (p OwnedPartition) Active(kind string) []string { return p.system.Active(p.partition, kind) }

// Owners returns the owners that have rows in a list; see System.Owners.
func (p OwnedPartition) Owners(list, after string, limit int) ([]string, error) {
	return p.system.Owners(p.partition, list, after, limit)
}

// IndexOwners returns the owners that have entries in an index; see System.IndexOwners.
func (p OwnedPartition) IndexOwners(index, after string, limit int) ([]string, error) {
	return p.system.IndexOwners(p.partition, index, after, limit)
}

// FindRow returns the first row of a list behind a position that want selects; see System.FindRow.
func (p OwnedPartition) FindRow(list, after string, want func(row []byte) bool) (position string, row []byte, found bool, err error) {
	return p.system.FindRow(p.partition, list, after, want)
}

// Rows returns a page of an owner's list; see System.Rows.
func (p OwnedPartition) Rows(owner string, asked *wirev1.List) (*wirev1.Page, error) {
	return p.system.Rows(p.partition, owner, asked)
}

// Put writes rows of an owner's lists; see System.Put.
func (p OwnedPartition) Put(ctx context.Context, owner string, rows ...entity.Row) error {
	return p.system.Put(ctx, p.partition, owner, rows...)
}

// Owners returns at most limit owners in a partition that have rows in a list, in the order of their ids, beginning after one
// id. An empty result means that there are no more. Each owner costs one look-up, however many rows it has. Owners returns
// the journal's errors.
func (s *System) Owners(p persistence.Partition, list, after string, limit int) ([]string, error) {
	return s.IndexOwners(p, listIndex(list), after, limit)
}

// IndexOwners is Owners for an index of any name, if the values of its entries begin with an id and a zero byte.
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

// FindRow returns the first row that want accepts of a list, of any owner, behind a position; found is false if there is none.
// The position of a row is its owner, a zero byte and its key. want must not keep the row.
func (s *System) FindRow(p persistence.Partition, list, after string, want func(row []byte) bool) (position string, row []byte, found bool, err error) {
	v, err := s.journal.View()
	if err != nil {
		return "", nil, false, err
	}
	defer v.Close()
	for entry, err := range v.Index(p, persistence.Query{Index: listIndex(list), Prefix: true, After: after}) {
		if err != nil {
			return "", nil, false, err
		}
		if want(entry.Data) {
			return strings.Clone(entry.Value), bytes.Clone(entry.Data), true, nil
		}
	}
	return "", nil, false, nil
}

// ownerAfter returns the first owner after one id, or "" if there is none. The values of an owner's entries begin with its id
// and a zero byte, so that all of them are before the id followed by a one.
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

// Rows returns a page of an owner's list from the journal. It does not authorize the caller and activates no entity. It
// returns the journal's errors.
func (s *System) Rows(p persistence.Partition, owner string, asked *wirev1.List) (*wirev1.Page, error) {
	v, err := s.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return readListPage(source{view: v, partition: p, identity: owner}, entity.List{}, asked, entity.Call{})
}

// putStream is the stream of the proposals that write rows without events. It has no entity.
const putStream = persistence.Stream("rows/put")

// Put writes rows of an owner's lists without a command to its entity, and activates no entity. It is for rows that no rule
// decides on: each replaces the row of the same key, also if the entity writes the row at the same time. Put returns when the
// rows are durable. It returns ErrRetry if another process owns the partition, the journal's errors, and ctx's; after an error
// the rows may have been written all the same.
func (s *System) Put(ctx context.Context, p persistence.Partition, owner string, rows ...entity.Row) error {
	t := s.terms[p].Load()
	if t == nil {
		return ErrRetry
	}
	entries, err := listChanges(owner, rows)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	s.journal.Append(persistence.Proposal{
		Partition: p, Stream: putStream, Epoch: t.epoch, Entries: entries,
	}, func(r persistence.Result) { done <- r.Err })
	select {
	case err := <-done:
		var lost *persistence.NotLeaderError
		if errors.As(err, &lost) {
			return ErrRetry
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
