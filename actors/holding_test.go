package actors

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestHolding(t *testing.T) {
	t.Run("a row is ready after pauses that grow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var h holding
			for i, pause := range []time.Duration{1, 2, 4, 8, 8} {
				if attempts := h.hold("a", time.Second, 8*time.Second); attempts != i+1 {
					t.Errorf("attempt %d is counted as %d", i+1, attempts)
				}
				if next := h.untilNext(); next < pause*time.Second/2 || next > pause*time.Second {
					t.Errorf("attempt %d is followed by a pause of %v", i+1, next)
				}
				if len(h.ready()) != 0 {
					t.Error("a row is ready before its pause has passed")
				}
				time.Sleep(h.untilNext())
				if ready := h.ready(); len(ready) != 1 {
					t.Errorf("ready: %v", ready)
				}
				h.begin("a")
				if len(h.ready()) != 0 {
					t.Error("a row that is tried is ready")
				}
			}
		})
	})
	t.Run("rows past the bound are found by reading the index again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var h holding
			for i := range maxHeld + 10 {
				h.hold(fmt.Sprint(i), time.Hour, time.Hour)
			}
			if len(h.rows) != maxHeld || h.rescan() {
				t.Errorf("%d rows are held", len(h.rows))
			}
			time.Sleep(time.Hour)
			if !h.rescan() || h.rescan() {
				t.Error("the index is not read again, or twice")
			}
		})
	})
}
