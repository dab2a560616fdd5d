package sandbox

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights of Landlock's version 1, and those that later versions have added.
const (
	landlockFirst  = unix.LANDLOCK_ACCESS_FS_REFER - 1
	landlockRead   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockOldest = 2
)

// LandlockVersion returns the version of Landlock that the kernel has, or 0 if it has none that can be used. Version 1 forbids
// moving files to another folder.
func LandlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < landlockOldest {
		return 0
	}
	return int(version)
}

// restrictFiles restricts the calling thread and its descendants to the file system of the computer, even if a mount could be
// circumvented; an unisolated process to the drive, temporary files, the server's program and the machine's programs and
// settings. It does nothing if the kernel has no Landlock. The caller executes the program from the same thread.
func restrictFiles(s *spec) error {
	version := LandlockVersion()
	if version == 0 {
		return nil
	}
	handled := uint64(landlockFirst | unix.LANDLOCK_ACCESS_FS_REFER)
	if version >= 3 {
		handled |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 5 {
		handled |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	attributes := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	size := unsafe.Sizeof(attributes.Handled_access_fs)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attributes)), size, 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(fd))
	readable := []string{"/"}
	if s.Unisolated {
		readable = append([]string{"/etc", "/proc", "/sys"}, systemFolders...)
	}
	if err := permit(int(fd), landlockRead, unix.O_DIRECTORY, readable...); err != nil {
		return err
	}
	if s.Program != "" {
		if err := permit(int(fd), landlockRead&^unix.LANDLOCK_ACCESS_FS_READ_DIR, 0, s.Program); err != nil {
			return err
		}
	}
	// Files of /proc are not writable, so that a process cannot set its oom_score_adj to that of the server.
	writable := []string{s.Drive, s.Home, "/tmp", "/var/tmp", "/run", "/dev"}
	if err := permit(int(fd), handled, unix.O_DIRECTORY, writable...); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return nil
}

// permit adds rights for some files, or for the entries below some folders, to a ruleset. Paths that do not exist are left out.
// flags are added to those with which the paths are opened.
func permit(ruleset int, rights uint64, flags int, paths ...string) error {
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
			uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		runtime.KeepAlive(&rule)
		_ = unix.Close(fd)
		if errno != 0 {
			return &os.PathError{Op: "landlock_add_rule", Path: path, Err: errno}
		}
	}
	return nil
}
