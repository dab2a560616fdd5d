package sandbox

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
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
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	kept := []uintptr{unix.CAP_SETPCAP}
	if os.Getuid() == 0 {
		kept = append(kept, unix.CAP_SETUID, unix.CAP_SETGID)
	}
	attributes := &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() != 0 {
		attributes.AmbientCaps = kept
	}
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
			if number := one.(syscall.Signal); number != unix.SIGCHLD && number != unix.SIGURG {
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
