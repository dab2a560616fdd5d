package volume

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Measure returns the use of the file system that contains a folder.
func Measure(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, fmt.Errorf("cannot measure the free space of %s: %w", dir, err)
	}
	return usageOf(&st), nil
}

func usageOf(st *unix.Statfs_t) Usage {
	size := uint64(st.Frsize)
	u := Usage{
		FreeBytes: st.Bavail * size, UsedBytes: (st.Blocks - st.Bfree) * size, TotalBytes: st.Blocks * size,
		FreeFiles: Unlimited, UsedFiles: Unlimited,
	}
	if st.Files > 0 { // statfs(2) reports 0 files for a file system without a table of inodes
		u.FreeFiles, u.UsedFiles = st.Ffree, st.Files-min(st.Ffree, st.Files)
	}
	return u
}
