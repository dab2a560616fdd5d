package actors

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

// seenBy returns a page of the authors who read or wrote a path, the most recently active first. The totals of an author with
// rows or counts that the indexes lack are computed from both.
func (a activityReader) seenBy(q *activityv1.ReadSeenBy) (proto.Message, error) {
	limit := pageOf(0, q.GetLimit(), true, persistence.Ascending).limit
	after := string(q.GetAfter())
	recent, err := a.recentTotals(q.GetPath())
	if err != nil {
		return nil, err
	}
	found, err := a.authors(q.GetPath(), after, limit, recent)
	if err != nil {
		return nil, err
	}
	for _, t := range recent {
		found = append(found, t)
	}
	ranked := make([]author, 0, len(found))
	for _, t := range found {
		if rank := activity.SeenPlace(t.GetLastAt(), t.GetAuthor()); rank > after {
			ranked = append(ranked, author{rank, t})
		}
	}
	slices.SortFunc(ranked, func(x, y author) int { return strings.Compare(x.rank, y.rank) })
	out := &activityv1.SeenBy{}
	for i, s := range ranked {
		if i == limit {
			out.Next = []byte(ranked[i-1].rank)
			break
		}
		t := s.totals
		out.Readers = append(out.Readers, &activityv1.Reader{
			Author: t.GetAuthor(), FirstAt: t.GetFirstAt(), LastAt: t.GetLastAt(),
			ReadCount: t.GetReadCount(), WriteCount: t.GetWriteCount(), LastWriteAt: t.GetLastWriteAt(),
		})
	}
	return out, nil
}

// An author is an author's totals on a path with the rank in the order of recency.
type author struct {
	rank   string
	totals *activityv1.Totals
}

// recentTotals returns the totals of those authors of a path for whom the indexes lack rows or counts, by their value in
// the Seen index.
func (a activityReader) recentTotals(path string) (map[string]*activityv1.Totals, error) {
	recent := map[string]*activityv1.Totals{}
	totals := func(author *activityv1.Author) (*activityv1.Totals, error) {
		seen := activity.SeenValue(a.identity, path, author)
		if t := recent[seen]; t != nil {
			return t, nil
		}
		t := new(activityv1.Totals)
		recent[seen] = t
		_, err := a.lookup(activity.Seen, seen, t)
		return t, err
	}
	for _, row := range a.tail {
		if row.Operation.GetPath() != path || !row.Counts() {
			continue
		}
		t, err := totals(row.Operation.GetAuthor())
		if err != nil {
			return nil, err
		}
		row.CountInto(t)
	}
	for _, pending := range a.uses {
		t, err := totals(pending.Author)
		if err != nil {
			return nil, err
		}
		pending.CountInto(t)
	}
	return recent, nil
}

// authors returns the totals of the path's authors from the indexes. Authors in except are left out. The result has all authors ranked
// after the rank after, or more than limit of the first; it may have further authors.
func (a activityReader) authors(path, after string, limit int, except map[string]*activityv1.Totals) ([]*activityv1.Totals, error) {
	query := persistence.Query{
		Index: activity.Recency, Value: activity.PathValue(a.identity, path), Prefix: true,
		After: activity.RecencyStart(a.identity, path, after),
	}
	var found []*activityv1.Totals
	behind, last := 0, int64(0)
	for entry, err := range a.view.Index(a.partition, query) {
		if err != nil {
			return nil, err
		}
		span, seen, ok := activity.RecencyEntry(a.identity, path, entry.Value)
		if !ok || except[seen] != nil {
			continue
		}
		if span != last && behind > limit {
			break // the entries of a span are not sorted, so a span is read completely
		}
		last = span
		t := new(activityv1.Totals)
		if ok, err := a.lookup(activity.Seen, seen, t); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		found = append(found, t)
		if activity.SeenPlace(t.GetLastAt(), t.GetAuthor()) > after {
			behind++
		}
	}
	return found, nil
}
