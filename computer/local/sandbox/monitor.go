package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runMonitor is the life of the first process of a nested process namespace, which a process gets if there are no control
// groups. When the process has ended, the monitor ends too, and the kernel ends all descendants, however they were detached.
func runMonitor() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	unix.CloseOnExec(reportFD)
	if err := mountProc("/proc"); err != nil {
		return err
	}
	kept := []uintptr{unix.CAP_SETPCAP}
	if os.Getuid() == 0 {
		kept = append(kept, unix.CAP_SETUID, unix.CAP_SETGID)
	}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() != 0 {
		attributes.AmbientCaps = kept
	}
	return monitor(attributes)
}

// endSignal tells a supervisor to end its process and all descendants.
const endSignal = syscall.Signal(64)

// runSupervisor is the life of the monitor of an unisolated process. All orphans among the descendants become its children, so
// that it finds them. A process that is fast enough may escape.
func runSupervisor() error {
	unix.CloseOnExec(reportFD)
	if err := becomeReaper(); err != nil {
		return err
	}
	err := monitor(&syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL})
	killDescendants()
	return err
}

// monitor starts a process with the files that were passed, forwards signals to it and reports its status.
func monitor(attributes *syscall.SysProcAttr) error {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	var files []*os.File
	for fd := range uintptr(gateFD + 1) {
		files = append(files, os.NewFile(fd, "passed"))
	}
	pid, err := fork(roleProcess, attributes, files)
	if err != nil {
		return err
	}
	closeAll(files) // or the ends of the streams are never reached
	go func() {
		for one := range signals {
			switch number := one.(syscall.Signal); number {
			case unix.SIGCHLD, unix.SIGURG:
			case endSignal:
				for _, one := range descendants(os.Getpid()) {
					_ = unix.Kill(one, unix.SIGKILL)
				}
			default:
				_ = unix.Kill(pid, number)
			}
		}
	}()
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if ended == pid {
			_, err := os.NewFile(reportFD, "report").WriteString(strconv.FormatUint(uint64(status), 10))
			return err
		}
	}
}

// becomeReaper makes orphans among the descendants children of this process.
func becomeReaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// descendants returns the process ids of the descendants of a process.
func descendants(pid int) (all []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // fails only for an invalid pattern
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended, and a different thread has its children
		}
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

// killDescendants ends all descendants of this process, which must be their reaper.
func killDescendants() {
	for range maxProcesses {
		left := descendants(os.Getpid())
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_, _ = unix.Wait4(-1, nil, 0, nil)
	}
}
