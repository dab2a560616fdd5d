package place

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestAtMostAsManyAsPlaces(t *testing.T) {
	const count = 2
	folder := t.TempDir()
	var inside, most atomic.Int64
	both := make(chan struct{})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			release, err := take(folder, count)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			if inside.Add(1) > count {
				t.Error("more tests than places run")
			}
			defer inside.Add(-1)
			if most.Add(1) == count {
				close(both) // the first test waits until a second test is inside
			}
			<-both
		})
	}
	all.Wait()
}

// TestSubtestsShareAPlace would not end if a subtest waited for a place of its own.
func TestSubtestsShareAPlace(t *testing.T) {
	Take(t)
	t.Run("first", func(t *testing.T) {
		Take(t)
		t.Run("second", func(t *testing.T) { Take(t) })
	})
}
