// Package await waits in tests for events that tests can only look for again and again. A wait has no time that a busy machine could
// exceed: its deadline is against hanging only.
package await

import (
	"fmt"
	"time"
)

const (
	// deadline is the time after which a wait fails.
	deadline = 5 * time.Minute
	// firstPause and longestPause are the pauses between two looks.
	firstPause, longestPause = time.Millisecond, 50 * time.Millisecond
)

// T is a test, of package testing or of testscript.
type T interface {
	Fatalf(format string, args ...any)
}

// True waits until a condition is true. It fails the test, with the name of the event, if that takes five minutes.
func True(t T, event string, is func() bool) {
	if helper, is := t.(interface{ Helper() }); is {
		helper.Helper()
	}
	Seen(t, event, func() (any, bool) { return nil, is() })
}

// Seen waits like True. look also returns the value that it has seen; the failure shows the value.
func Seen(t T, event string, look func() (seen any, is bool)) {
	if helper, is := t.(interface{ Helper() }); is {
		helper.Helper()
	}
	if seen, is := until(time.Now().Add(deadline), look); !is {
		t.Fatalf("waited %s for: %s%s", deadline, event, describe(seen))
	}
}

func until(end time.Time, look func() (seen any, is bool)) (any, bool) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		seen, is := look()
		if is || time.Now().After(end) {
			return seen, is
		}
		time.Sleep(pause)
	}
}

func describe(seen any) string {
	if seen == nil {
		return ""
	}
	return fmt.Sprintf("; seen: %v", seen)
}
