package cluster

import (
	"context"
	"strings"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
	"github.com/atelier-run/atelier/persistence"
)

// ParkedReactions returns the streams whose reactions are suspended, by partition and stream. Errors: *entity.Error.
func (r *Router) ParkedReactions(ctx context.Context) ([]*journalv1.Parked, error) {
	var all []*journalv1.Parked
	for p := range r.partitions {
		var rows []*journalv1.Parked
		err := r.onLeader(ctx, persistence.Partition(p), func(_ context.Context, leader *actors.System) (err error) {
			rows, err = leader.Parked(persistence.Partition(p))
			return err
		})
		if err != nil {
			return nil, err
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
	p := r.Partition(identity)
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error {
		return leader.Resume(ctx, p, stream, skip)
	})
}

// Progress returns how far the reactor of a partition has durably come. Errors: *entity.Error.
func (r *Router) Progress(ctx context.Context, p persistence.Partition) (progress actors.Progress, err error) {
	err = r.onLeader(ctx, p, func(_ context.Context, leader *actors.System) (err error) {
		progress, err = leader.Progress(p)
		return err
	})
	return progress, err
}
