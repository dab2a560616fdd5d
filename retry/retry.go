// Package retry has the pauses between attempts that fail: a Policy has pauses that grow and are random, and Pause waits.
//
// A pause doubles with each failure, so that an overloaded server is left alone, and is random, so that the callers that have failed
// together do not come back together. No pause begins after its context has ended. A loop is written as a loop, and decides itself which
// errors are failures:
//
//	for n := range policy.Attempts(ctx) {
//		if err = try(ctx); err == nil || isFinal(err) || n == attempts {
//			return err
//		}
//	}
//	return err // ctx has ended
//
// Work without a loop, such as the restart of an actor, counts its failures and asks the policy for the pause with After. A test of
// tests/rules finds pauses that are written elsewhere. entity.AskUntilAnswered repeats a command until its outcome is known.
//
// github.com/cenkalti/backoff is not used: its Retry gives up after 15 minutes unless told otherwise, drops the error of the last attempt when
// the context ends, and waits for nothing but the context. Its pauses are the state of one loop, but lanes, tasks and supervised processes
// store a number of failures.
package retry

import (
	"context"
	"iter"
	"math/rand/v2"
	"time"
)

// A Policy has the limits of the pauses between attempts. Both are positive.
type Policy struct {
	// First is the longest pause after the first failure. It doubles with each failure that follows, up to Longest.
	First, Longest time.Duration
}

// Limit returns the longest pause after a number of failures in a row.
func (p Policy) Limit(failures int) time.Duration {
	limit := min(p.First, p.Longest)
	for n := 1; n < failures && limit < p.Longest; n++ {
		limit += min(limit, p.Longest-limit) // cannot overflow
	}
	return limit
}

// After returns the pause after a number of failures in a row, which is random between half of Limit and Limit.
func (p Policy) After(failures int) time.Duration {
	limit := p.Limit(failures)
	return limit/2 + rand.N(limit-limit/2+1)
}

// Attempts counts attempts, from 1, with a pause after each. The first attempt is made even if ctx has ended, so that it has the caller's
// error; the loop ends if ctx ends before or during a pause.
func (p Policy) Attempts(ctx context.Context) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := 1; yield(n) && Pause(ctx, p.After(n)); n++ {
		}
	}
}

// Pause waits. It reports false if ctx ends first or has ended.
func Pause(ctx context.Context, d time.Duration) bool { return PauseUnless(ctx, d, nil) }

// PauseUnless waits. It reports false if ctx ends first or has ended, or if something is received from ended first, which is mostly a
// channel that is closed.
func PauseUnless(ctx context.Context, d time.Duration, ended <-chan struct{}) bool {
	select {
	case <-ctx.Done(): // a short pause could be over, too
		return false
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ended:
	case <-ctx.Done():
	}
	return false
}
