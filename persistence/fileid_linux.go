package persistence

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// placeOf identifies a file by its inode number and the time when the inode was made, which neither a copy nor an
// unpacked archive can have in common with the original (statx(2)). It returns "" where the file system keeps no such
// time, since inode numbers alone are used again.
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
