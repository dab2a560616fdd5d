package actors

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/retry"
)

func TestRetries(t *testing.T) {
	t.Run("a row is ready after pauses that grow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var r retries
			for i, pause := range []time.Duration{1, 2, 4, 8, 8} {
				if attempts := r.add("a", retry.Policy{First: time.Second, Longest: 8 * time.Second}); attempts != i+1 {
					t.Errorf("attempt %d is counted as %d", i+1, attempts)
				}
				if next := r.untilNext(); next < pause*time.Second/2 || next > pause*time.Second {
					t.Errorf("attempt %d is followed by a pause of %v", i+1, next)
				}
				if len(r.ready()) != 0 {
					t.Error("a row is ready before its pause has passed")
				}
				time.Sleep(r.untilNext())
				if ready := r.ready(); len(ready) != 1 {
					t.Errorf("ready: %v", ready)
				}
				r.begin("a")
				if len(r.ready()) != 0 {
					t.Error("a row that is tried is ready")
				}
			}
		})
	})
	t.Run("rows past the bound are found by reading the index again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var r retries
			for i := range maxRetries + 10 {
				r.add(fmt.Sprint(i), retry.Policy{First: time.Hour, Longest: time.Hour})
			}
			if len(r.rows) != maxRetries || r.takeRescan() {
				t.Errorf("%d rows are held", len(r.rows))
			}
			time.Sleep(time.Hour)
			if !r.takeRescan() || r.takeRescan() {
				t.Error("the index is not read again, or twice")
			}
		})
	})
}
