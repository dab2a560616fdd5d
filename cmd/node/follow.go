package node

import (
	"context"
	"errors"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/persistence"
)

// follow does what a term of a partition asks of the process that leads it, until ctx ends with the term.
func (n *Node) follow(ctx context.Context, p persistence.Partition) {
	var group errgroup.Group
	group.Go(func() error {
		n.recoverDrives(ctx, p)
		n.takeOverMissed(ctx, p)
		return nil
	})
	n.Computers.Follow(ctx, share{n, p})
	_ = group.Wait() // neither has an error: both log what fails
}

// recoverPage bounds the drives that are looked up at once.
const recoverPage = 64

// recoverDrives recovers the drives of a partition on which operations were cut off, whichever process led the partition
// then, so that the first request of each does not wait for it. It is an optimisation: a drive recovers itself when it is
// opened, and serves nothing before. A drive that cannot be recovered now does not block the others.
func (n *Node) recoverDrives(ctx context.Context, p persistence.Partition) {
	for after := ""; ; {
		page, err := n.System.IndexOwners(p, activity.OpenIntents, after, recoverPage)
		if err != nil && !errors.Is(err, persistence.ErrClosed) {
			n.log.Error("drives that are to be recovered cannot be listed", slog.Int("partition", int(p)), slog.Any("error", err))
		}
		if err != nil || len(page) == 0 {
			return
		}
		for _, id := range page {
			err := n.Drives.Recover(ctx, id)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				n.log.Error("a drive cannot be recovered", slog.String("workspace", id), slog.Any("error", err))
			default:
				n.log.Info("a drive was recovered", slog.String("workspace", id))
			}
		}
		after = page[len(page)-1]
	}
}
