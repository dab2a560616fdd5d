package sandbox

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_X86_64

// deniedHere are denied system calls that only this architecture has.
var deniedHere = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL,
}

// addLegacyRules adds rules for system calls that newer architectures do not have.
func addLegacyRules(f *filter) {
	f.onMode(unix.SYS_CHMOD, 1)
	f.onMode(unix.SYS_CREAT, 1)
	f.onMode(unix.SYS_MKNOD, 1)
	f.onCreate(unix.SYS_OPEN, 1, 2)
}
