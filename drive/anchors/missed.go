package anchors

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	// MissedList has a row for each workspace with anchors that had to be checked when the process stopped. Only versions
	// before workspace.AnchorCheckTask wrote such rows.
	MissedList = "anchors.missed"
	// MissedKey is the key of each row of MissedList.
	MissedKey = "drive"
	// missedPage limits the workspaces that are listed at once, missedTimeout the conversion of one row.
	missedPage    = 64
	missedTimeout = 10 * time.Second
)

// A MissedRows reads and removes rows of MissedList.
type MissedRows interface {
	// Owners returns at most limit workspaces that have rows in a list, in the order of their ids, beginning after one id. An
	// empty result means that there are no more.
	Owners(list, after string, limit int) ([]string, error)
	// Put writes rows of a workspace's lists; a row without a message is removed.
	Put(ctx context.Context, workspaceID string, rows ...entity.Row) error
}

// ConvertMissed requests a check for each workspace that has a row in MissedList, and then removes the row. It logs errors: a
// row that could not be converted is converted when ConvertMissed is called again. It returns when ctx ends.
func (f *Follower) ConvertMissed(ctx context.Context, rows MissedRows) {
	for after := ""; ctx.Err() == nil; {
		page, err := rows.Owners(MissedList, after, missedPage)
		if err != nil && ctx.Err() == nil {
			f.log.Error("cannot list the workspaces with missed anchor checks; the partition's next term tries again", slog.Any("error", err))
		}
		if err != nil || len(page) == 0 {
			return
		}
		for _, id := range page {
			if err := f.convert(ctx, rows, id); err != nil && ctx.Err() == nil {
				f.log.Error("cannot request a missed anchor check; the partition's next term tries again",
					slog.String("workspace", id), slog.Any("error", err))
			}
		}
		after = page[len(page)-1]
	}
}

func (f *Follower) convert(ctx context.Context, rows MissedRows, workspaceID string) error {
	ctx, cancel := context.WithTimeout(ctx, missedTimeout)
	defer cancel()
	_, err := f.ask(ctx, workspaceID, "", &workspacev1.RequestAnchorCheck{})
	if err != nil {
		return fmt.Errorf("request the check: %w", err)
	}
	if err := rows.Put(ctx, workspaceID, entity.Row{List: MissedList, Key: MissedKey}); err != nil {
		return fmt.Errorf("remove the row: %w", err)
	}
	return nil
}
