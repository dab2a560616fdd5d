package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// A private process and its descendants have a process namespace of their own, so that they and the other processes of the computer
// can neither list nor trace, read or signal each other. A process namespace hides its processes from its siblings but not from
// its ancestors, so the other processes of a computer are not in the namespace of the init either. They share one namespace:
//
//	init                        sees all processes of the computer
//	├── reaper                  first process of the shared namespace, without which nothing more starts there: the init ends with it
//	│   process, process, ...   start on the thread of networks, which is in the shared namespace
//	├── monitor                 first process of the namespace of a private process
//	│   └── process, ...
//	└── monitor
//	    └── process, ...
//
// Without control groups every process has a monitor (Config.Nested), and no namespace is shared.

// PrivateDir is a folder in memory that each private process has for itself and its descendants until it ends.
const PrivateDir = "/private"

// privateOptions are the options of the mount at PrivateDir. The files in PrivateDir count as memory of the processes that write them.
const privateOptions = "mode=1777,size=64m,nr_inodes=4k"

// runPrivate is the life of the monitor of a private process.
func runPrivate() error {
	if err := mountTmpfs(PrivateDir, privateOptions, unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	return runMonitor()
}

// runReaper is the life of the first process of the namespace that processes share. The orphans of that namespace become its children,
// which the kernel reaps because their parent ignores SIGCHLD.
func runReaper() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	signal.Ignore() // all signals: processes of an unprivileged server may send any
	if err := mountProc("/proc"); err != nil {
		return err
	}
	if err := limitCapabilities(nil); err != nil {
		return err
	}
	report := os.NewFile(reportFD, "report")
	if _, err := report.WriteString(reaperReady); err != nil {
		return err
	}
	if err := report.Close(); err != nil {
		return err
	}
	for {
		_ = unix.Pause() // until a signal that cannot be ignored
	}
}

// reaperReady is the report of a reaper when processes can be started beside it.
const reaperReady = "ready"

// startShared makes the namespace that processes share, and moves the thread of networks there. It is called in the root of the
// computer, on a thread with all capabilities.
func startShared(n *networks) error {
	pid, err := startReaper()
	if err != nil {
		return fmt.Errorf("cannot start the reaper of the computer: %w", err)
	}
	of := filepath.Join("/proc", strconv.Itoa(pid), "ns")
	processes, err := os.Open(filepath.Join(of, "pid"))
	if err != nil {
		return err
	}
	defer processes.Close()
	mounts, err := os.Open(filepath.Join(of, "mnt"))
	if err != nil {
		return err
	}
	defer mounts.Close()
	proc, err := openPath("/proc")
	if err != nil {
		return err
	}
	defer proc.Close()
	err = n.run(func() error { return n.share(int(processes.Fd()), int(mounts.Fd()), int(proc.Fd())) })
	if err != nil {
		return fmt.Errorf("cannot share the process namespace of the computer: %w", err)
	}
	n.reaper = pid
	return nil
}

// startReaper starts a reaper, and returns its process id when processes can be started beside it.
func startReaper() (int, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	diagnosis := os.NewFile(uintptr(fd), "stderr")
	defer diagnosis.Close()
	ready, report, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ready.Close()
	attributes := &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	pid, err := fork(roleReaper, attributes, []*os.File{null, null, diagnosis, null, report})
	_ = report.Close()
	if err != nil {
		return 0, err
	}
	if said, err := io.ReadAll(ready); err != nil || string(said) != reaperReady {
		return 0, errors.Join(errors.New("it has ended"), err)
	}
	return pid, nil
}

// share moves its caller, the thread of n, to the mount namespace mounts. The processes that the thread forks from then on are members of
// the process namespace processes. proc is the /proc of the init. The thread has no path to it in the new mount namespace, so share makes
// proc the working directory.
func (n *networks) share(processes, mounts, proc int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread changes its mounts only if it shares no working directory
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(mounts, unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if err := unix.Setns(processes, unix.CLONE_NEWPID); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if err := unix.Fchdir(proc); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	n.proc = "."
	return nil
}

// spawn calls f, which forks a process, on the thread with the namespaces that the process gets. own is its own network, or nil.
func (n *networks) spawn(own *os.File, isPrivate bool, f func() error) error {
	if own != nil || n == nil || n.reaper == 0 || isPrivate {
		return n.do(own, f)
	}
	return n.run(f)
}

// devicePath returns the path that the thread of networks opens the device of links at.
func (n *networks) devicePath() string {
	if n.device == nil {
		return guest.Device
	}
	return filepath.Join(n.proc, "thread-self/fd", strconv.Itoa(int(n.device.Fd())))
}
