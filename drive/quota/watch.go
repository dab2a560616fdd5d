package quota

import (
	"context"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// A process may write gigabytes within the second between two calls of Check. So the free space of the disk is measured more often as it
// nears the reserve, which takes a microsecond each time, and Check is called at once when it falls within the band.
const (
	// fastestBytes and fastestFiles are the bytes and files that processes write in a second at the most, as the watch assumes.
	fastestBytes, fastestFiles = 4 << 30, 500_000
	watchLeast, watchMost      = 10 * time.Millisecond, time.Second
	// watchFalling is the least time between two measurements while the free space falls fast.
	watchFalling = time.Millisecond
	// watchSteps is the number of times that the watch reports a fall from the upper to the lower threshold, and it reports falls
	// near the reserve as well.
	watchSteps = 32
)

// Watch returns a channel that receives a value whenever the free space of the disk has fallen by a part of the band, below the
// reserve or near it: Check is to be called for drives with processes. The caller calls stop when no process runs on its drive.
func (l *Limiter) Watch() (fell <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers[c] = true
	if len(l.watchers) == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		l.stopWatch = cancel
		go l.watch(ctx)
	}
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, c)
		if len(l.watchers) == 0 {
			l.stopWatch()
		}
	}
}

func (l *Limiter) watch(ctx context.Context) {
	var w falls
	before, measured := disk{}, time.Time{}
	for pause := watchLeast; retry.Pause(ctx, pause); {
		d, err := l.measureDisk()
		if err != nil { // Check returns the error
			pause = watchMost
			continue
		}
		now := time.Now()
		pause = nextMeasurement(before, d, now.Sub(measured))
		before, measured = d, now
		if w.next(d) {
			l.mu.Lock()
			for c := range l.watchers {
				select {
				case c <- struct{}{}:
				default: // the last value was not received yet
				}
			}
			l.mu.Unlock()
		}
	}
}

// nextMeasurement returns how long the watch waits: the time in which processes cannot come near the reserve. Near the reserve and below,
// it is the time until half of the free space above the next threshold is gone, if the free space goes on to fall as fast as since the
// measurement before.
func nextMeasurement(before, now disk, since time.Duration) time.Duration {
	pause := min(now.bytes.next(before.FreeBytes, now.FreeBytes, since, fastestBytes), now.files.next(before.FreeFiles, now.FreeFiles, since, fastestFiles))
	return time.Duration(pause * float64(time.Second))
}

// next is nextMeasurement for one resource, in seconds.
func (b band) next(before, free uint64, since time.Duration, fastest float64) float64 {
	if far := float64(free-min(free, b.near())) / fastest; far > watchLeast.Seconds() {
		return min(far, watchMost.Seconds())
	}
	threshold := uint64(0)
	switch {
	case free >= b.high:
		threshold = b.high
	case free >= b.low:
		threshold = b.low
	}
	fallen := float64(before - min(before, free))
	if fallen == 0 {
		return watchLeast.Seconds()
	}
	half := float64(free-threshold) / 2 / fallen * since.Seconds()
	return min(max(half, watchFalling.Seconds()), watchLeast.Seconds())
}

// falls finds when the free space has fallen by a part of the band. bytes and files are the greatest free space since the last report, but
// at most the space near the reserve (band.near).
type falls struct {
	isStarted    bool
	bytes, files uint64
}

// next reports whether a measurement is to be reported.
func (f *falls) next(d disk) bool {
	if !f.isStarted {
		f.isStarted, f.bytes, f.files = true, d.bytes.near(), d.files.near()
	}
	hasFallen := d.bytes.hasFallen(f.bytes, d.FreeBytes) || d.files.hasFallen(f.files, d.FreeFiles)
	if hasFallen {
		f.bytes, f.files = 0, 0
	}
	f.bytes, f.files = min(max(f.bytes, d.FreeBytes), d.bytes.near()), min(max(f.files, d.FreeFiles), d.files.near())
	return hasFallen
}

func (b band) hasFallen(before, free uint64) bool {
	return free < before && before-free > (b.high-b.low)/watchSteps
}
