package sandbox

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights of Landlock's version 1, and the rights that later versions have added.
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
	fd, err := newRuleset(handled)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	readable := []string{"/"}
	if s.Unisolated {
		readable = append([]string{"/etc", "/proc", "/sys"}, systemFolders...)
	}
	if err := permit(fd, landlockRead, unix.O_DIRECTORY, readable...); err != nil {
		return err
	}
	if s.Program != "" {
		if err := permit(fd, landlockRead&^unix.LANDLOCK_ACCESS_FS_READ_DIR, 0, s.Program); err != nil {
			return err
		}
	}
	if err := permit(fd, handled, unix.O_DIRECTORY, s.writable()...); err != nil {
		return err
	}
	return restrictSelf(fd)
}

// writable returns the folders where a process may write. Files of /proc are not writable, so that a process cannot set its
// oom_score_adj to the value of the server. Without isolation, the folder at PrivateDir is the machine's.
func (s *spec) writable() []string {
	folders := []string{s.Drive, s.Home, "/tmp", "/var/tmp", "/run", "/dev"}
	if !s.Unisolated {
		folders = append(folders, PrivateDir)
	}
	return folders
}

// RestrictTracing makes the calling thread, and the program that it executes, unable to trace other processes than its own descendants
// and to read their memory, environments and open files. It restricts nothing else: Landlock lets no process trace one that is not
// in its domain, whatever the domain is for. It does nothing if the kernel has no Landlock, or a container engine forbids it. The caller has
// locked the thread to its goroutine, and has set no_new_privs.
func RestrictTracing() error {
	if LandlockVersion() == 0 {
		return nil
	}
	const moves = unix.LANDLOCK_ACCESS_FS_REFER
	ruleset, err := newRuleset(moves)
	if err != nil {
		return err
	}
	defer unix.Close(ruleset)
	if err := permit(ruleset, moves, unix.O_DIRECTORY, "/"); err != nil {
		return err
	}
	return restrictSelf(ruleset)
}

// newRuleset returns a ruleset that forbids some rights but where permit adds them.
func newRuleset(rights uint64) (int, error) {
	attributes := unix.LandlockRulesetAttr{Handled_access_fs: rights}
	size := unsafe.Sizeof(attributes.Handled_access_fs)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attributes)), size, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("landlock_create_ruleset", errno)
	}
	return int(fd), nil
}

// restrictSelf puts the calling thread into a domain of its own with a ruleset.
func restrictSelf(ruleset int) error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return nil
}

// permit adds rights for some files, or for the entries below some folders, to a ruleset. Paths that do not exist are left out. flags
// are added to the flags that open the paths.
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
