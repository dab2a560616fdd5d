package entity

import "time"

// HasPassed reports whether a period has passed since a recorded time; both times are in milliseconds since the Unix epoch. The platform
// acts again after a period: pauses before the next check or attempt, leases, windows and budgets.
//
// A time that lies in the future by more than the period was recorded while the clock was ahead, and says nothing: the period counts as
// passed, so that nothing waits until the clock reaches that time. A time that lies less far in the future is of a member with a clock that
// differs a little.
//
// A time until which something was granted (a key, a session, an invitation) is no such period. It is absolute, whatever the clock was when
// it was granted: docs/operations.md, section Clocks.
func HasPassed(since, at int64, period time.Duration) bool {
	passed, whole := at-since, period.Milliseconds()
	return passed >= whole || -passed > whole
}
