package cluster

import (
	"context"

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
		if err := ctx.Err(); err != nil {
			return nil, answered(err)
		}
		more, err := r.local.Owners(persistence.Partition(p), list, after, limit-len(found))
		if err != nil {
			return nil, answered(err)
		}
		found, after = append(found, more...), ""
	}
	return found, nil
}

// Rows is a page of an owner's list; see actors.System.Rows. Errors: *entity.Error.
func (r *Router) Rows(ctx context.Context, owner string, asked *wirev1.List) (*wirev1.Page, error) {
	if err := ctx.Err(); err != nil {
		return nil, answered(err)
	}
	page, err := r.local.Rows(r.Partition(owner), owner, asked)
	return page, answered(err)
}
