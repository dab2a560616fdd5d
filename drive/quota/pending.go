package quota

import (
	"context"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/volume"
)

// mayHaveGrown reports whether processes may have written to the drive since it was measured. Bytes that the operations of the drive
// itself have written count already.
func (a *account) mayHaveGrown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.measured.IsZero() && (a.checked.After(a.measured) || time.Since(a.checked) < runningFor)
}

// grown returns how much the file system has grown since the drive was measured: processes have written no more than that to the drive,
// unless others have freed something meanwhile.
func (a *account) grown(free volume.Usage) Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return growth(a.free, free)
}

// growth returns how much less a file system has free than before.
func growth(before, now volume.Usage) (grown Usage) {
	grown.Bytes = before.FreeBytes - min(now.FreeBytes, before.FreeBytes)
	if now.FreeFiles != volume.Unlimited {
		grown.Files = before.FreeFiles - min(now.FreeFiles, before.FreeFiles)
	}
	return grown
}

// remeasure measures a drive on which processes may have written more than fits: as soon as its walks have taken their urgent share of
// the time. It returns Unavailable if that takes too long.
func (l *Limiter) remeasure(ctx context.Context, a *account, workspaceID string) error {
	a.mu.Lock()
	wait := time.Until(a.measured.Add((urgentShare - 1) * a.took))
	a.mu.Unlock()
	if wait > longestWait {
		return &entity.Error{
			Code: entity.Unavailable, Message: "the drive is nearly full and is being measured; try again", RetryAfter: wait,
		}
	}
	if !retry.Pause(ctx, wait) {
		return ctx.Err()
	}
	return l.measureNow(ctx, a, workspaceID, func() bool { return l.isDue(a, 0, true) })
}
