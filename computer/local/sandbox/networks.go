package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// networks makes the networks of processes that do not use the network of the computer, and works in them. A network is a network
// namespace with a loopback interface and a link like the computer's:
//
//	server                      init, main thread           init, the thread of networks
//	  Computer.Start ──────────► start ── create ──────────► unshare, guest.PrepareNamespace
//	    ◄───── networked: namespace, link ───┘
//	                              do ──────────────────────► fork, in the namespace
//	  Network.Dial ── namespace ► dial ── do ──────────────► opens sockets, in the namespace
//
// The thread alone keeps the capability for that. The init forgets a network when the server has its files, so a network
// exists until its processes have ended and the server has closed its files and its sockets.
type networks struct {
	link guest.Link
	// device is the TUN device if link needs it. It is not in the computer, and is opened through this file.
	device *os.File
	// home is the network namespace of the computer, which the thread leaves only during a call.
	home  *os.File
	calls chan func()
	// proc is the path at which the thread finds the /proc of the init.
	proc string
	// reaper is the process id of the first process of the shared process namespace (private.go). The thread forks members of that
	// namespace. 0: no namespace is shared.
	reaper int
}

// startNetworks starts the thread. It must be called in the network namespace of the computer, while the calling thread has all
// capabilities and the machine's /dev and /proc.
func startNetworks(c *Config) (*networks, error) {
	n := &networks{link: c.Link, calls: make(chan func()), proc: "/proc"}
	if c.Link == guest.TUN {
		var err error
		if n.device, err = openPath(guest.Device); err != nil {
			return nil, fmt.Errorf("cannot prepare networks of processes: %w", err)
		}
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may have the capabilities
		started <- n.enter()
		for call := range n.calls {
			call()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot prepare networks of processes: %w", err)
	}
	return n, nil
}

// openPath returns a file that names a path and cannot be read or written.
func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// enter prepares the thread. Processes that it forks have its namespaces, so it makes one for control groups as buildComputer
// does for the main thread.
func (n *networks) enter() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	n.home, err = n.openNamespace()
	return err
}

// limit gives up the capabilities of the thread that networks do not need.
func (n *networks) limit(c *Config) error {
	return n.run(func() error { return limitCapabilities(append(c.capabilities(), unix.CAP_NET_ADMIN)) })
}

// openNamespace returns the network namespace of the thread, which calls it.
func (n *networks) openNamespace() (*os.File, error) {
	return os.Open(filepath.Join(n.proc, "thread-self/ns/net"))
}

// run calls f on the thread, which then returns to the computer's network.
func (n *networks) run(f func() error) error {
	done := make(chan error)
	n.calls <- func() {
		err := f()
		if failed := unix.Setns(int(n.home.Fd()), unix.CLONE_NEWNET); failed != nil {
			exit(fmt.Errorf("cannot return to the network of the computer: %w", failed)) // which ends the computer
		}
		done <- err
	}
	return <-done
}

// do calls f on a thread that is in a network. own is its namespace; nil: the network of the computer, where f is called on the
// calling thread.
func (n *networks) do(own *os.File, f func() error) error {
	if own == nil {
		return f()
	}
	return n.run(func() error {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return f()
	})
}

// create makes a network, and returns its namespace and the files of its link.
func (n *networks) create() (files []*os.File, err error) {
	if n == nil {
		return nil, errors.New("without isolation a process has no network of its own")
	}
	err = n.run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		link, err := guest.PrepareNamespace(n.link, n.devicePath())
		if err != nil {
			return err
		}
		namespace, err := n.openNamespace()
		files = append([]*os.File{namespace}, link...)
		if err != nil {
			closeAll(link)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a network: %w", err)
	}
	return files, nil
}
