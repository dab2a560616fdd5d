package drive

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/atelier-run/atelier/drive/drivetest"
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
