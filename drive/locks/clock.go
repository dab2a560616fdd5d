package locks

import (
	"crypto/rand"
	"time"
)

// A clock reads the time for the locks. The end of a lock is counted by a monotonic clock, which cannot be set. The wall clock serves only
// for locks that an earlier process has stored.
type clock struct {
	// id identifies the monotonic clock: another clock has other readings.
	id string
	// read returns the time of the wall clock, and the time that has passed on the monotonic clock.
	read func() (wall time.Time, passed time.Duration)
}

// system is the clock of the process.
var system = newClock()

func newClock() clock {
	started := time.Now()
	return clock{id: rand.Text(), read: func() (time.Time, time.Duration) {
		now := time.Now()
		return now, now.Sub(started)
	}}
}

// A Term says when a lock ends.
type Term struct {
	// Expires is the end by the wall clock, in milliseconds since the Unix epoch; 0: the lock was released.
	Expires int64 `json:"expires"`
	// Timeout is the time that the lock lasts after it was acquired or refreshed, in milliseconds; 0: MaxTimeout, because earlier programs
	// did not store it.
	Timeout int64 `json:"timeout,omitempty"`
	// Clock is the id of a monotonic clock, and Ends the end by that clock, in milliseconds.
	Clock string `json:"clock,omitempty"`
	Ends  int64  `json:"ends,omitempty"`
}

// term returns the term of a lock that begins now.
func (c clock) term(timeout time.Duration) Term {
	wall, passed := c.read()
	return Term{
		Expires: wall.Add(timeout).UnixMilli(), Timeout: timeout.Milliseconds(), Clock: c.id, Ends: (passed + timeout).Milliseconds(),
	}
}

// remaining returns the time until the end of a lock, which is not positive if the lock has ended. A lock of an earlier process ends by the
// wall clock, but lasts no longer than its timeout from now: the wall clock may have been ahead when the lock was stored.
func (c clock) remaining(of Term) time.Duration {
	wall, passed := c.read()
	if of.Clock == c.id && of.Expires != 0 {
		return time.Duration(of.Ends)*time.Millisecond - passed
	}
	if of.Expires <= wall.UnixMilli() {
		return 0
	}
	longest := MaxTimeout.Milliseconds()
	if of.Timeout > 0 {
		longest = min(longest, of.Timeout)
	}
	return time.Duration(min(of.Expires-wall.UnixMilli(), longest)) * time.Millisecond
}

// adopt returns the term of a lock that was stored, by the clock of this process.
func (c clock) adopt(stored Term) Term {
	if stored.Clock == c.id {
		return stored
	}
	adopted := c.term(c.remaining(stored))
	adopted.Timeout = stored.Timeout
	return adopted
}
