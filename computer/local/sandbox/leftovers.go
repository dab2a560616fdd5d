package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Leftover is an init that an earlier process of the node has left.
type Leftover struct {
	PID int
	// Name is the name of the computer.
	Name string
}

// EndLeftovers ends the keepers and inits that an earlier process of the node has left, and returns the inits. With an init, the
// kernel ends all processes of its computer. Control groups must have been removed before, because suspended processes do not
// end.
func EndLeftovers(ctx context.Context, node string) ([]Leftover, error) {
	return endAll(ctx, roleInit, node)
}

// EndKeeper ends the keeper of an earlier process of the node, which would also remove things that this process creates.
func EndKeeper(ctx context.Context, node string) error {
	_, err := endAll(ctx, roleKeeper, node)
	return err
}

// endAll ends the processes of this program with a role.
func endAll(ctx context.Context, role, node string) (ended []Leftover, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !isOurs(pid, role, node) {
			continue
		}
		name, err := endOne(ctx, pid, role, node)
		if err != nil {
			return ended, fmt.Errorf("cannot end the process %d: %w", pid, err)
		}
		ended = append(ended, Leftover{pid, name})
	}
	return ended, nil
}

func arguments(pid int) []string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// isOurs reports whether a process is one of the server's user, with the name of a role of the node.
func isOurs(pid int, role, node string) bool {
	words := arguments(pid)
	if len(words) != 3 || words[0] != role || words[1] != node {
		return false
	}
	at, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	// A process that is not dumpable belongs to root there.
	owner, is := at.Sys().(*syscall.Stat_t)
	return is && (int(owner.Uid) == os.Geteuid() || owner.Uid == 0)
}

// endOne kills a process and waits for its end. It returns the last argument of the process.
func endOne(ctx context.Context, pid int, role, node string) (string, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return "", nil
	}
	if err != nil {
		return "", os.NewSyscallError("pidfd_open", err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	defer file.Close()
	words := arguments(pid)
	if !isOurs(pid, role, node) || len(words) != 3 {
		return "", nil // it has ended, and another process has its number
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return words[2], nil
		}
		return "", os.NewSyscallError("pidfd_send_signal", err)
	}
	for !hasEnded(file, pollPause) {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	return words[2], nil
}
