package drive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/quota"
)

// TestUnpackRequiresSpaceForEveryEntry unpacks entries without content, which use space on the disk as well.
func TestUnpackRequiresSpaceForEveryEntry(t *testing.T) {
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	for i := range 100 {
		h := &tar.Header{Format: tar.FormatPAX, Name: fmt.Sprintf("%d/", i), Mode: 0o755, Typeflag: tar.TypeDir, Uid: os.Geteuid(), Gid: os.Getegid()}
		if i%2 == 1 {
			h.Name, h.Typeflag, h.Linkname = fmt.Sprint(i), tar.TypeSymlink, "x"
		}
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	left := 10
	u, err := newUnpacker(t.Context(), handle{root}, func(int64) error {
		if left--; left < 0 {
			return unix.ENOSPC
		}
		return nil
	}, func(quota.Usage, uint64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	if err := u.unpack(&archive); !errors.Is(err, unix.ENOSPC) || u.entries != 10 {
		t.Errorf("got %d entries and %v, want 10 entries and ENOSPC", u.entries, err)
	}
}
