package testmachine

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a tmpfs with the options at a folder until the end of the test.
func Mount(t testing.TB, dir, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Lacks(t, "mounting needs root")
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		Lacks(t, fmt.Sprintf("mounting is not allowed: %v", err))
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// Volume returns a folder with a tmpfs of its own, until the end of the test.
func Volume(t testing.TB, options string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	Mount(t, dir, options)
	return dir
}
