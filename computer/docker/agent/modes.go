package agent

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The files of a drive belong to the user of the server. A program with the mode set-user-id on the drive would therefore run with
// the server's rights if somebody ran it outside of the container, and the engine's API cannot mount the drive in a way
// that ignores the mode. So the kernel refuses to create the mode: a filter of system calls looks at the modes of files. It also
// refuses what it cannot look into: openat2, whose mode is in memory, io_uring, and system calls of other architectures.

// A modeCall is a system call that sets the mode of a file.
type modeCall struct {
	number uint32
	// mode is the number of the argument with the mode; flags is that of the argument that says with createsFile whether
	// there is a mode, or -1.
	mode, flags int
}

// modeCalls are those that all architectures have.
var modeCalls = []modeCall{
	{unix.SYS_FCHMOD, 1, -1},
	{unix.SYS_FCHMODAT, 2, -1},
	{unix.SYS_FCHMODAT2, 2, -1},
	{unix.SYS_MKNODAT, 2, -1},
	{unix.SYS_OPENAT, 3, 2},
}

// hiddenCalls are refused as if the kernel did not know them.
var hiddenCalls = []uint32{unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP}

const (
	createsFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
	setID       = unix.S_ISUID | unix.S_ISGID
)

// Offsets in struct seccomp_data of linux/seccomp.h. The arguments have 64 bits, of which the first 32 have the modes and flags.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArguments    = 16
)

// refuseSetID installs the filter for the calling thread and the program that it executes. The caller has locked the thread.
func refuseSetID() error {
	if architecture == 0 {
		return errors.New("the driver of containers does not support processors of type " + runtime.GOARCH)
	}
	code := filter()
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); err != 0 {
		return os.NewSyscallError("seccomp", err)
	}
	return nil
}

// filter returns the code of the filter.
func filter() []unix.SockFilter {
	load := func(offset int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
	}
	argument := func(n int) unix.SockFilter { return load(offsetArguments + 8*n) }
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	// jump continues after onTrue or onFalse instructions.
	jump := func(condition uint16, k uint32, onTrue, onFalse uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | condition | unix.BPF_K, Jt: onTrue, Jf: onFalse, K: k}
	}
	allow := answer(unix.SECCOMP_RET_ALLOW)
	refuse := answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	hide := answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))

	code := []unix.SockFilter{load(offsetArchitecture), jump(unix.BPF_JEQ, architecture, 1, 0), hide, load(offsetNumber)}
	if foreignCalls != 0 {
		code = append(code, jump(unix.BPF_JSET, foreignCalls, 0, 1), hide)
	}
	for _, number := range hiddenCalls {
		code = append(code, jump(unix.BPF_JEQ, number, 0, 1), hide)
	}
	for _, call := range append(modeCalls, legacyModeCalls...) {
		var block []unix.SockFilter
		if call.flags >= 0 {
			block = append(block, argument(call.flags), jump(unix.BPF_JSET, createsFile, 1, 0), allow)
		}
		block = append(block, argument(call.mode), jump(unix.BPF_JSET, setID, 0, 1), refuse, allow)
		code = append(code, jump(unix.BPF_JEQ, call.number, 0, uint8(len(block))))
		code = append(code, block...)
	}
	return append(code, allow)
}
