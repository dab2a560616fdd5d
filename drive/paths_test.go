package drive

import (
	"context"
	"sync"
	"testing"
)

// TestPathLocksExcludeConflictingClaims acquires claims concurrently and verifies that no two conflicting ones are held at the
// same time.
func TestPathLocksExcludeConflictingClaims(t *testing.T) {
	sets := [][]string{{"a"}, {"a/b"}, {"a/c", "d"}, {"d", "a/b"}, {"d/e"}, {""}, {"f"}}
	var locks pathLocks
	var mu sync.Mutex
	held := map[*claim]bool{}
	var work sync.WaitGroup
	for _, set := range sets {
		for range 20 {
			work.Go(func() {
				release, err := locks.acquire(context.Background(), set...)
				if err != nil {
					t.Error(err)
					return
				}
				mine := &claim{paths: set}
				mu.Lock()
				for other := range held {
					if other.conflicts(mine) {
						t.Errorf("%v and %v are held at the same time", other.paths, set)
					}
				}
				held[mine] = true
				mu.Unlock()
				mu.Lock()
				delete(held, mine)
				mu.Unlock()
				release()
			})
		}
	}
	work.Wait()
	if len(locks.claims) != 0 {
		t.Errorf("%d claims remain after all were released", len(locks.claims))
	}
}

func TestPathLocksGrantInOrderAndDropCanceledClaims(t *testing.T) {
	var locks pathLocks
	first, _ := locks.acquire(t.Context(), "a")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.acquire(canceled, "a/b"); err == nil {
		t.Error("a canceled claim was granted")
	}
	root := locks.enqueue([]string{""})
	late := locks.enqueue([]string{"z"})
	select {
	case <-late.granted:
		t.Error("a claim was granted before an earlier one that it conflicts with")
	default:
	}
	first()
	<-root.granted
	locks.remove(root)
	<-late.granted
}
