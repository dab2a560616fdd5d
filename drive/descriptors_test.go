package drive

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/limit"
)

func manyDrives(t testing.TB, workspaces, capacity int) *Drives {
	t.Helper()
	drives, err := New(Options{
		Dir: t.TempDir(), Asker: &drivetest.Activity{}, Log: slog.New(slog.DiscardHandler), Descriptors: capacity,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drives.Close() })
	for i := range workspaces {
		if err := drives.Provision(context.Background(), fmt.Sprintf("ws_%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	return drives
}

// TestCacheForgetsClosedDrives verifies that closed drives leave the cache and that all descriptors are released.
func TestCacheForgetsClosedDrives(t *testing.T) {
	const workspaces = 50
	drives := manyDrives(t, workspaces, MinDescriptors)
	for i := range workspaces + 5 { // the last five workspaces do not exist
		if _, release, err := drives.Open(t.Context(), fmt.Sprintf("ws_%d", i)); err == nil {
			release()
		}
	}
	c := &drives.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	open := len(c.drives)
	if open > MinDescriptors/driveDescriptors || open != c.idle.Len() || c.reserved != open*driveDescriptors || c.waiting.Len() > 0 {
		t.Errorf("%d drives, %d of them idle, %d descriptors", open, c.idle.Len(), c.reserved)
	}
}

// TestOperationsOfOneDriveLeaveRoom has operations on one drive until one waits. Operations on other drives find room, and the operation that
// waits goes on when an earlier one has ended.
func TestOperationsOfOneDriveLeaveRoom(t *testing.T) {
	for _, capacity := range []int{MinDescriptors, 256} {
		synctest.Test(t, func(t *testing.T) {
			drives := manyDrives(t, 4, capacity)
			var releases []func()
			granted := make(chan func())
			open := func(workspaceID string) {
				_, release, err := drives.Open(t.Context(), workspaceID)
				if err != nil {
					t.Error(err)
				}
				granted <- release
			}
			for isWaiting := false; !isWaiting; {
				go open("ws_0")
				synctest.Wait()
				select {
				case release := <-granted:
					releases = append(releases, release)
				default:
					isWaiting = true
				}
			}
			if n := len(releases) * operationDescriptors; n > capacity-capacity/limit.ReservedPart || n < capacity/2 {
				t.Errorf("%d of %d descriptors are used", n, capacity)
			}
			for i := range 3 {
				_, release, err := drives.Open(t.Context(), fmt.Sprintf("ws_%d", 1+i))
				if err != nil {
					t.Fatalf("another drive, with %d of %d descriptors used: %v", drives.cache.reserved, capacity, err)
				}
				release()
			}
			releases[0]()
			releases[0] = <-granted
			for _, release := range releases {
				release()
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for name, capacity := range map[string]int{"open": 1024, "evicted": MinDescriptors} {
		b.Run(name, func(b *testing.B) {
			drives := manyDrives(b, 64, capacity)
			for n := 0; b.Loop(); n++ {
				_, release, err := drives.Open(context.Background(), fmt.Sprintf("ws_%d", n%64))
				if err != nil {
					b.Fatal(err)
				}
				release()
			}
		})
	}
}
