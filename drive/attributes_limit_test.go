package drive

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAttributesAreLimited adds the attributes of a file to a header that has room for some of them.
func TestAttributesAreLimited(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, name := range []string{"user.a", "user.b", "user.atelier.c"} {
		if err := unix.Fsetxattr(int(file.Fd()), name, []byte("value"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		limit, records int
		isWhole        bool
	}{{22, 2, true}, {21, 1, false}, {10, 0, false}} {
		var h tar.Header
		isWhole, err := addAttributes(&h, file, make([]byte, maxProps), test.limit)
		if err != nil || isWhole != test.isWhole || len(h.PAXRecords) != test.records {
			t.Errorf("with a limit of %d bytes: %v, %v, %v", test.limit, isWhole, h.PAXRecords, err)
		}
	}
}
