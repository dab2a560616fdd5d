package persistence

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestEachWriteFails breaks the first, second, third ... thing that is written, and looks after a loss of power for what
// was acknowledged.
func TestEachWriteFails(t *testing.T) {
	for n := range int64(60) {
		f := newFaulty(t, Options{})
		f.must("a", 0)
		var left atomic.Int64
		left.Store(n)
		f.inject(func(op errorfs.Op) error {
			if left.Add(-1) == -1 {
				return errors.New("broken")
			}
			return nil
		})
		least, most := uint64(1), uint64(1)
		flushed := make(chan struct{})
		for most < 20 {
			if most == 5 {
				go func() { // may stay at the fault
					_, _ = f.db.AsyncFlush()
					close(flushed)
				}()
			}
			most++
			if r := f.append("a", most-1); r.Err != nil {
				if f.Err() == nil {
					t.Fatalf("fault %d: %v without an end", n, r.Err)
				}
				break
			}
			least = most
		}
		f.fault.Store(nil)
		reopenAfter(t, f, least, most)
		if most >= 5 { // Pebble panics where a flush is asked for after its end
			select {
			case <-flushed:
			case <-f.Failed():
			}
		}
		_ = f.Close()
	}
}
