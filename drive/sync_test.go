package drive

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestSharedSync calls do while a sync is in progress: the calls share one later sync with its result, and a call after that
// sync has begun gets another sync.
func TestSharedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs, errDisk := 0, errors.New("the disk has failed")
		ends := make(chan error)
		shared := newSharedSync()
		results := make(chan error, 16)
		call := func(n int) {
			for range n {
				go func() { results <- shared.do(func() error { syncs++; return <-ends }) }()
			}
			synctest.Wait()
		}
		end := func(err error, calls int) {
			t.Helper()
			ends <- err
			synctest.Wait()
			for range calls {
				select {
				case got := <-results:
					if got != err {
						t.Fatalf("a call returned %v, want %v", got, err)
					}
				default:
					t.Fatal("a call has not returned after its sync")
				}
			}
			if len(results) > 0 {
				t.Fatal("a call returned after a sync that began before it")
			}
		}
		call(1)
		call(8)
		if syncs != 1 {
			t.Fatalf("%d syncs have begun at the same time", syncs)
		}
		end(nil, 1)
		call(4)
		end(errDisk, 8)
		end(nil, 4)
		if syncs != 3 {
			t.Fatalf("%d syncs for three groups of calls", syncs)
		}
	})
}
