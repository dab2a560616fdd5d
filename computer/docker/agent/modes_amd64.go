package agent

import "golang.org/x/sys/unix"

const (
	architecture = unix.AUDIT_ARCH_X86_64
	// foreignCalls is the bit of system calls of the x32 interface.
	foreignCalls = 0x40000000
)

var legacyModeCalls = []modeCall{
	{unix.SYS_CHMOD, 1, -1},
	{unix.SYS_MKNOD, 1, -1},
	{unix.SYS_CREAT, 1, -1},
	{unix.SYS_OPEN, 2, 1},
}
