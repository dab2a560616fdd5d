package persistence

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// fileIDOf identifies a file by its inode number and its time of birth (statx(2)). A copy or an unpacked archive has
// another id. fileIDOf returns "" if the file system stores no time of birth, because inode numbers alone are reused.
func fileIDOf(file vfs.File) string {
	fd := file.Fd()
	if fd == vfs.InvalidFd {
		return ""
	}
	var at unix.Statx_t
	err := unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &at)
	if err != nil || at.Mask&unix.STATX_BTIME == 0 || at.Mask&unix.STATX_INO == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d.%09d", at.Ino, at.Btime.Sec, at.Btime.Nsec)
}
