package sandbox

import (
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. On the machines that Go supports with little endian, the lower half of an argument is first.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArguments    = 16
)

// lastCall is the highest system call that the filter was written for, mseal. Later ones do not exist for processes.
const lastCall = 462

// namespaces are the flags of clone and unshare that create namespaces.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET

// setIDs are the bits of a mode that make a file run as its owner or group. On the disk the owner is the server's user.
const setIDs = unix.S_ISUID | unix.S_ISGID

// denied are system calls that a process never needs, or that could reach things outside of the computer.
var denied = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN,
	unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KCMP, unix.SYS_SYSLOG,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_VHANGUP,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
}

// absent are system calls that callers replace if the kernel does not know them. The filter cannot read the flags of clone3 and openat2.
var absent = []uint32{
	unix.SYS_CLONE3, unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_MEMFD_SECRET,
}

// deniedControls are requests of ioctl that put characters into a terminal's input, or change the project of a file. Quotas count
// the size of a file by its project.
var deniedControls = []uint32{
	unix.TIOCSTI, unix.TIOCLINUX, unix.FS_IOC_SETFLAGS,
	0x401c5820, // FS_IOC_FSSETXATTR
	0x40046602, // FS_IOC32_SETFLAGS
}

// freeing are the modes of fallocate that free space. With the others one call takes any part of the disk before anybody can notice. They
// are refused as by file systems that cannot preallocate; programs are prepared for this refusal.
const freeing = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_COLLAPSE_RANGE

// allocating are requests of ioctl that do the work of the refused modes of fallocate, on all file systems. They are refused alike.
// Requests that free space, as FS_IOC_UNRESVSP does, are permitted.
var allocating = []uint32{
	0x40305828, // FS_IOC_RESVSP
	0x4030582a, // FS_IOC_RESVSP64
	0x40305839, // FS_IOC_ZERO_RANGE
}

// families are the families of sockets that a process may open. Others may reach beyond the network namespace, as AF_VSOCK does.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

// protocols are the protocols of sockets that a process may open; 0 is the usual protocol of a family and type, and for AF_NETLINK
// the protocol that configures interfaces.
var protocols = []uint32{0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_MPTCP}

// personalities are the execution domains that a process may choose: the usual one, and the question for the current one.
var personalities = []uint32{0, 0xffffffff}

func refuse(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

func load(argument uint32) bpf.Instruction {
	return bpf.LoadAbsolute{Off: offsetArguments + 8*argument, Size: 4}
}

// A filter collects instructions. Between system calls the number of the call is loaded.
type filter struct{ instructions []bpf.Instruction }

// on adds instructions for one system call. If they do not return, the call is allowed.
func (f *filter) on(call uint32, instructions ...bpf.Instruction) {
	f.instructions = append(f.instructions, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: uint8(len(instructions) + 1)})
	f.instructions = append(f.instructions, instructions...)
	f.instructions = append(f.instructions, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
}

// onMode refuses a system call if the argument has bits for running as another user.
func (f *filter) onMode(call, argument uint32) {
	f.on(call, load(argument), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: setIDs, SkipTrue: 1}, refuse(unix.EPERM))
}

// onCreate refuses a system call that creates a file with such bits.
func (f *filter) onCreate(call, flags, mode uint32) {
	f.on(call,
		load(flags), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY, SkipTrue: 3},
		load(mode), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: setIDs, SkipTrue: 1}, refuse(unix.EPERM))
}

// oneOf returns instructions that go on if the loaded value is one of some, and return otherwise.
func oneOf(values []uint32, otherwise bpf.Instruction) (instructions []bpf.Instruction) {
	for i, value := range values {
		instructions = append(instructions, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(len(values) - i)})
	}
	return append(instructions, otherwise)
}

// newFilter returns the program that decides about each system call of a process.
func newFilter() []bpf.Instruction {
	f := &filter{instructions: []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArchitecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		refuse(unix.ENOSYS), // a program for another architecture
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: lastCall, SkipTrue: 1},
		refuse(unix.ENOSYS), // among these are the calls of x32
	}}
	for _, call := range append(denied[:len(denied):len(denied)], deniedHere...) {
		f.on(call, refuse(unix.EPERM))
	}
	for _, call := range absent {
		f.on(call, refuse(unix.ENOSYS))
	}
	f.on(unix.SYS_CLONE, load(0), bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: namespaces, SkipTrue: 1}, refuse(unix.EPERM))
	f.on(unix.SYS_UNSHARE, load(0),
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: namespaces | unix.CLONE_NEWTIME, SkipTrue: 1}, refuse(unix.EPERM))
	f.on(unix.SYS_PERSONALITY, append([]bpf.Instruction{load(0)}, oneOf(personalities, refuse(unix.EPERM))...)...)
	f.on(unix.SYS_IOCTL, slices.Concat([]bpf.Instruction{load(1)}, noneOf(deniedControls, refuse(unix.EPERM)),
		noneOf(allocating, refuse(unix.EOPNOTSUPP)))...)
	f.on(unix.SYS_SOCKET, socketRules()...)
	f.on(unix.SYS_FALLOCATE, load(1), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: freeing, SkipTrue: 1}, refuse(unix.EOPNOTSUPP))
	f.onMode(unix.SYS_FCHMOD, 1)
	f.onMode(unix.SYS_FCHMODAT, 2)
	f.onMode(unix.SYS_FCHMODAT2, 2)
	f.onMode(unix.SYS_MKNODAT, 2)
	f.onCreate(unix.SYS_OPENAT, 2, 3)
	addLegacyRules(f)
	return append(f.instructions, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
}

// noneOf returns instructions that return if the loaded value is one of some, and go on otherwise.
func noneOf(values []uint32, otherwise bpf.Instruction) (instructions []bpf.Instruction) {
	for _, value := range values {
		instructions = append(instructions, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: 1}, otherwise)
	}
	return instructions
}

func socketRules() []bpf.Instruction {
	refused := refuse(unix.EAFNOSUPPORT)
	netlink := []bpf.Instruction{load(2), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.NETLINK_ROUTE, SkipTrue: 1}, refused,
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}}
	rules := []bpf.Instruction{load(0), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: uint8(len(netlink))}}
	rules = append(rules, netlink...)
	rules = append(rules, oneOf(families, refused)...)
	rules = append(rules, load(2))
	return append(rules, oneOf(protocols, refuse(unix.EPROTONOSUPPORT))...)
}

// restrictCalls installs the filter in the calling thread and its descendants.
func restrictCalls() error {
	raw, err := bpf.Assemble(newFilter())
	if err != nil {
		return err
	}
	filters := make([]unix.SockFilter, len(raw))
	for i, one := range raw {
		filters[i] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	program := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	runtime.KeepAlive(filters)
	return err
}
