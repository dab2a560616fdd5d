package cluster

import (
	"context"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// Owners are those who have rows in a list, over all partitions, in an order that lasts: at most limit of them, after one.
// None: there are no more. Errors: *entity.Error.
func (r *Router) Owners(ctx context.Context, list, after string, limit int) ([]string, error) {
	from := persistence.Partition(0)
	if after != "" {
		from = r.Partition(after)
	}
	var found []string
	for p := int(from); p < r.partitions && len(found) < limit; p++ {
		var more []string
		err := r.onLeader(ctx, persistence.Partition(p), func(_ context.Context, leader *actors.System) (err error) {
			more, err = leader.Owners(persistence.Partition(p), list, after, limit-len(found))
			return err
		})
		if err != nil {
			return nil, err
		}
		found, after = append(found, more...), ""
	}
	return found, nil
}

// Rows is a page of an owner's list; see actors.System.Rows. Errors: *entity.Error.
func (r *Router) Rows(ctx context.Context, owner string, asked *wirev1.List) (*wirev1.Page, error) {
	p := r.Partition(owner)
	var page *wirev1.Page
	err := r.onLeader(ctx, p, func(_ context.Context, leader *actors.System) (err error) {
		page, err = leader.Rows(p, owner, asked)
		return err
	})
	return page, err
}

// Put writes rows of an owner's lists past its entity; see actors.System.Put. Errors: *entity.Error.
func (r *Router) Put(ctx context.Context, owner string, rows ...entity.Row) error {
	p := r.Partition(owner)
	return r.onLeader(ctx, p, func(ctx context.Context, leader *actors.System) error {
		return leader.Put(ctx, p, owner, rows...)
	})
}
