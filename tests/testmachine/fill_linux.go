package testmachine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// FillInodes makes files in a folder, as another program does, until the disk has no inode left.
func FillInodes(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		file, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(i)), os.O_CREATE|os.O_WRONLY, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			return
		}
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// FillBytes writes to a file in a folder, as another program does, until the disk has no block left.
func FillBytes(t testing.TB, dir string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{1 << 20, 4 << 10} {
		block := make([]byte, size)
		for {
			if _, err := file.Write(block); errors.Is(err, unix.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}
