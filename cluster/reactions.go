package cluster

import (
	"context"
	"strings"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	"github.com/atelier-run/atelier/persistence"
)

// ParkedReactions returns the streams whose reactions are suspended, by partition and stream. Errors: *entity.Error.
func (r *Router) ParkedReactions(ctx context.Context) ([]*journalv1.Parked, error) {
	var all []*journalv1.Parked
	for p := range r.partitions {
		if err := ctx.Err(); err != nil {
			return nil, answered(err)
		}
		rows, err := r.local.Parked(persistence.Partition(p))
		if err != nil {
			return nil, answered(err)
		}
		all = append(all, rows...)
	}
	return all, nil
}

// ResumeReactions has the reactions of a parked stream carried out again; with skip, from behind the event that failed.
// Errors: *entity.Error; not_found if the stream is not parked.
func (r *Router) ResumeReactions(ctx context.Context, stream string, skip bool) error {
	_, identity, ok := strings.Cut(stream, "/")
	if !ok {
		return entity.Errorf(entity.InvalidRequest, "a stream is named by its kind, a slash and its identity")
	}
	return r.retry(ctx, func(ctx context.Context) error { return r.local.Resume(ctx, r.Partition(identity), stream, skip) })
}
