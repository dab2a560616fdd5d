package apps

import "time"

// A history has the results of the earlier attempts and the ends of the processes; the time of the next start follows from them. It reads
// no clock: the callers pass the time.
type history struct {
	// refused is the last requested generation that has failed. It is not tried again, even if the state of the app does not have the failure
	// yet.
	refused uint64
	// reconciled is the last requested generation that was reported to run.
	reconciled uint64
	// failures counts the failed starts and early ends in a row. retryAt is the time of the next start of the generation retryOf.
	failures int
	retryAt  time.Time
	retryOf  uint64
	// interrupted is the time of the first interruption in an unbroken sequence of interrupted attempts of the generation interruptedOf; zero if
	// the last attempt was not interrupted.
	interrupted   time.Time
	interruptedOf uint64
}

// nextStart returns the time of the next start of a generation; zero if the generation is to start at once.
func (h *history) nextStart(generation uint64) time.Time {
	if generation != h.retryOf {
		return time.Time{}
	}
	return h.retryAt
}

// delay sets the time of the next start of a generation.
func (h *history) delay(until time.Time, generation uint64) { h.retryAt, h.retryOf = until, generation }

// countFailure counts a failed start or an early end of a generation. pause returns the pause before the next start after a number of failures.
// countFailure sets the time of the next start, and returns the pause. Each call counts, also if the time is the time of the call before.
func (h *history) countFailure(now time.Time, generation uint64, pause func(failures int) time.Duration) time.Duration {
	h.failures++
	wait := pause(h.failures)
	h.delay(now.Add(wait), generation)
	return wait
}

// mayResume records an interrupted attempt, and reports whether the attempt is repeated. An attempt of a requested configuration is repeated for
// limit only, because a member waits for its result.
func (h *history) mayResume(now time.Time, c configuration, limit time.Duration) bool {
	if h.interrupted.IsZero() || h.interruptedOf != c.generation {
		h.interrupted, h.interruptedOf = now, c.generation
	}
	if c.isRequested && now.Sub(h.interrupted) >= limit {
		h.interrupted = time.Time{}
		return false
	}
	return true
}

// succeed records that a configuration runs.
func (h *history) succeed(c configuration) {
	h.interrupted = time.Time{}
	if c.isRequested {
		h.failures, h.reconciled = 0, c.generation
	}
}
