package node

import (
	"math"
	"sync/atomic"
	"time"
)

// SteadyClock returns a clock that tells the wall's time and never goes backwards. read reads at one moment the wall's time,
// which may be set at will, and how much time has passed since a moment of its own, which only grows.
//
// While the wall is behind what the clock has told, the clock goes on at 15/16 of the monotonic speed until the wall has
// caught up: after a step back of a minute for 16 minutes. When the wall steps ahead the clock follows at once. The clock
// is safe for concurrent use; a call that begins after another has returned tells no earlier time.
func SteadyClock(read func() (wall time.Time, passed time.Duration)) func() time.Time {
	// ahead is the greatest distance, in nanoseconds, that the wall had to the slowed monotonic time: what the clock tells
	// is this distance beyond it.
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

// systemClock is the steady clock of the machine.
func systemClock() func() time.Time {
	started := time.Now()
	return SteadyClock(func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(started)
	})
}
