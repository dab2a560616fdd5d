package volume

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestUsageOf verifies the meaning of the numbers of statfs(2). The number of inodes is 0 if the file system has no table of inodes.
func TestUsageOf(t *testing.T) {
	for name, test := range map[string]struct {
		st   unix.Statfs_t
		want Usage
	}{
		"with_table_of_inodes": {
			unix.Statfs_t{Frsize: 4096, Bsize: 1 << 20, Blocks: 100, Bfree: 40, Bavail: 30, Files: 50, Ffree: 20},
			Usage{FreeBytes: 30 * 4096, UsedBytes: 60 * 4096, TotalBytes: 100 * 4096, FreeFiles: 20, UsedFiles: 30},
		},
		"full": {unix.Statfs_t{Frsize: 1, Files: 50}, Usage{UsedFiles: 50}},
		"without_table_of_inodes": {
			unix.Statfs_t{Frsize: 1, Blocks: 1, Bfree: 1, Bavail: 1},
			Usage{FreeBytes: 1, TotalBytes: 1, FreeFiles: Unlimited, UsedFiles: Unlimited},
		},
	} {
		if got := usageOf(&test.st); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestMeasure(t *testing.T) {
	if u, err := Measure(t.TempDir()); err != nil || u.TotalBytes == 0 || u.FreeFiles == 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := Measure("/nonexistent"); err == nil {
		t.Error("a folder that does not exist is measured")
	}
}
