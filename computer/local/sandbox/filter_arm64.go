package sandbox

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_AARCH64

// deniedHere are denied system calls that only this architecture has.
var deniedHere []uint32

// addLegacyRules adds rules for system calls that newer architectures do not have: none.
func addLegacyRules(*filter) {}
