package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Keeper is the server's side of a process that outlives the server for a moment, to end the computers and remove their leftovers
// on the machine. All methods may be called concurrently.
type Keeper struct {
	node string
	// groups is the name of the node's control group; empty: there is none.
	groups string
	// live returns the files that refer to the inits of the running computers, for a keeper that replaces one that has ended.
	live func() []*os.File

	mu      sync.Mutex
	server  socket
	command *exec.Cmd
}

// StartKeeper starts a keeper. groups is the name of the node's control group; empty: there is none. live returns the files
// that refer to the inits of the running computers.
func StartKeeper(node, groups string, live func() []*os.File) (*Keeper, error) {
	k := &Keeper{node: node, groups: groups, live: live}
	return k, k.start()
}

// start starts the process. The caller holds mu, or is the only one that knows k.
func (k *Keeper) start() error {
	server, other, err := newSocketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	defer other.Close()
	k.command = &exec.Cmd{
		Path: self, Args: []string{roleKeeper, k.node, k.groups}, Env: []string{}, Dir: "/", ExtraFiles: []*os.File{other},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := k.command.Start(); err != nil {
		_ = server.Close()
		return fmt.Errorf("cannot start the keeper: %w", err)
	}
	k.server = server
	return nil
}

// Watch tells the keeper of an init. If the keeper has ended, it is replaced.
func (k *Keeper) Watch(pidFD *os.File) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.server.send(request{}, pidFD)
	if err == nil {
		return nil
	}
	_ = k.server.Close()
	_ = k.command.Process.Kill()
	_ = k.command.Wait()
	if err := k.start(); err != nil {
		return err
	}
	for _, file := range append(k.live(), pidFD) {
		if err := k.server.send(request{}, file); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	return nil
}

// Close makes the keeper remove the leftovers, and returns when it has. It returns an error if ctx ends first.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.server.Close()
	stop := context.AfterFunc(ctx, func() { _ = k.command.Process.Kill() })
	err := k.command.Wait()
	if isInTime := stop(); err != nil && !isInTime {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("the keeper has failed: %w", err)
	}
	return nil
}

// pollPause is how long the end of a process is waited for without looking at a context.
const pollPause = 100 * time.Millisecond

// keeperTimeout limits the work of a keeper after the end of the server.
const keeperTimeout = time.Minute

// IsKeeper reports whether this process is a keeper.
func IsKeeper() bool { return filepath.Base(os.Args[0]) == roleKeeper && len(os.Args) == 3 }

// RunKeeper is the life of a keeper, and ends the process. removeGroups removes the node's control group of a name. It is not in this
// package, so that the other roles, which are executed more often, need not initialize the packages that it imports.
func RunKeeper(removeGroups func(ctx context.Context, name string) error) {
	exit(keep(removeGroups))
}

func keep(removeGroups func(ctx context.Context, name string) error) error {
	server, err := openSocket(os.NewFile(3, "server"))
	if err != nil {
		return err
	}
	var inits []*os.File
	for {
		files, err := server.receive(&request{})
		if err != nil {
			break // the server has ended
		}
		inits = slices.DeleteFunc(inits, func(init *os.File) bool {
			ended := hasEnded(init, 0)
			if ended {
				_ = init.Close()
			}
			return ended
		})
		inits = append(inits, files...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), keeperTimeout)
	defer cancel()
	var failed []error
	for _, init := range inits {
		if err := unix.PidfdSendSignal(int(init.Fd()), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = append(failed, err)
		}
	}
	if name := os.Args[2]; name != "" {
		failed = append(failed, removeGroups(ctx, name))
	}
	return errors.Join(failed...)
}

// hasEnded reports whether a process has ended, and waits for that at most so long.
func hasEnded(pidFD *os.File, wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pidFD.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(wait.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n > 0
	}
}
