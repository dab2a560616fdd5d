// Package clock provides the clock of a process: it follows the wall clock and never goes backwards.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

// Steady returns a clock that follows a wall clock and never goes backwards. read returns the time of the wall clock, which may
// be set at any moment, and the time that has passed on a monotonic clock; both are read at the same moment.
//
// If the wall clock is set ahead, the steady clock follows at once. If it is set back, the steady clock runs at 15/16 of the
// monotonic speed until the wall clock has caught up, which takes 16 minutes for each minute. The steady clock is safe for
// concurrent use: a call that begins after another call has returned does not return an earlier time.
func Steady(read func() (wall time.Time, passed time.Duration)) func() time.Time {
	// ahead is the greatest difference so far, in nanoseconds, between the wall clock and the slowed monotonic clock. The
	// steady clock is ahead of the slowed monotonic clock by this difference.
	var ahead atomic.Int64
	ahead.Store(math.MinInt64)
	return func() time.Time {
		wall, passed := read()
		slowed := int64(passed - passed/16)
		distance := wall.UnixNano() - slowed
		for {
			greatest := ahead.Load()
			if distance <= greatest {
				return time.Unix(0, greatest+slowed)
			}
			if ahead.CompareAndSwap(greatest, distance) {
				return time.Unix(0, distance+slowed)
			}
		}
	}
}

// System returns a steady clock that follows the machine's clock.
func System() func() time.Time {
	started := time.Now()
	return Steady(func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(started)
	})
}
