package http

import (
	"sync/atomic"
	"time"
)

// bucket is a token bucket in one word: the time at which it will be full again.
type bucket struct{ full atomic.Int64 }

// take takes one of rate tokens a second, of which burst may be saved up, or tells how long to wait for one.
// A rate of 0 or less never refuses.
func (b *bucket) take(now time.Time, rate, burst int) time.Duration {
	if rate <= 0 {
		return 0
	}
	return b.takeEach(now, time.Second/time.Duration(rate), burst)
}

// takeEach is take with the time in which one token comes. A clock that has gone back delays nobody by more than the time of
// one token: no bucket is emptier than empty.
func (b *bucket) takeEach(now time.Time, each time.Duration, burst int) time.Duration {
	interval, at := int64(each), now.UnixNano()
	for {
		full := b.full.Load()
		room := interval * int64(max(burst, 1))
		if full > at+room { // the clock has gone back
			b.full.CompareAndSwap(full, at+room)
			continue
		}
		next := max(full, at) + interval
		if over := next - at - room; over > 0 {
			return time.Duration(over)
		}
		if b.full.CompareAndSwap(full, next) {
			return 0
		}
	}
}
