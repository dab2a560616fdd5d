package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// Limits of an init.
const (
	dialTimeout  = 5 * time.Second
	maxDials     = 64
	maxProcesses = 4096
)

// An initProcess is the first process of a computer.
type initProcess struct {
	server   socket
	config   Config
	networks *networks

	mu sync.Mutex
	// processes has the children by their process ids in the computer.
	processes map[int]*child
	// pids has the process ids by the server's numbers.
	pids map[uint64]int
	// started wakes the reaper when there is a child.
	started chan struct{}
	dials   chan struct{}
}

// A child is a process that the init has started.
type child struct {
	number uint64
	// status is the end of a pipe on which a monitor reports the status of its process; nil without a monitor.
	status *os.File
}

// runInit is the life of the first process of a computer. It ends when its connection to the server does, and the kernel then
// ends all other processes of the computer.
func runInit() error {
	// No other process may look into this process: it runs on the machine's file of the program and has the server's socket.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	unix.Umask(0o022) // the server's umask may be stricter than processes can do with
	// Processes of an unprivileged server have the init's user and may send it signals. They are received and forgotten; if they
	// were ignored, the programs that it starts would ignore them, too.
	signal.Notify(make(chan os.Signal, 1))
	server, err := openSocket(os.NewFile(3, "server"))
	if err != nil {
		return err
	}
	var first setup
	files, err := server.receive(&first)
	if err != nil {
		return err
	}
	if first.Version != wireVersion {
		return fmt.Errorf("the server speaks version %d and not %d", first.Version, wireVersion)
	}
	networks, link, err := prepare(&first.Config, files)
	if err != nil {
		return errors.Join(err, server.send(event{Event: eventFailed, Error: err.Error()}))
	}
	closeAll(files)
	p := &initProcess{
		server: server, config: first.Config, networks: networks, processes: map[int]*child{}, pids: map[uint64]int{},
		started: make(chan struct{}, 1), dials: make(chan struct{}, maxDials),
	}
	if err := server.send(event{Event: eventReady}, link...); err != nil {
		return err
	}
	closeAll(link)
	go p.reap()
	err = p.serve()
	if first.Config.Unisolated {
		killDescendants()
	}
	return err
}

// prepare makes the computer around the calling process, and returns the maker of networks of processes, and the files of the
// computer's own link to the network.
func prepare(c *Config, files []*os.File) (*networks, []*os.File, error) {
	if c.Unisolated {
		return nil, nil, becomeReaper()
	}
	// These are first, because the device for links is not in the computer.
	networks, err := startNetworks(c)
	if err != nil {
		return nil, nil, err
	}
	link, err := guest.PrepareNamespace(c.Link, guest.Device)
	if err != nil {
		return nil, nil, err
	}
	if err := buildComputer(c, files); err != nil {
		return nil, link, err
	}
	if !c.Nested {
		if err := startShared(networks); err != nil {
			return nil, link, err
		}
	}
	return networks, link, errors.Join(networks.limit(c), limitCapabilities(c.capabilities()))
}

// serve handles the server's requests. It runs on the main thread, because the thread has the control group namespace.
func (p *initProcess) serve() error {
	for {
		var r request
		files, err := p.server.receive(&r)
		if err != nil {
			return err
		}
		switch r.Op {
		case opStart:
			err = p.start(r, files)
		case opSignal:
			p.signal(r, files)
		case opSignalAll:
			p.signalAll(r.Signal)
			err = p.server.send(event{Event: eventAnswered, Call: r.Call})
		case opDial:
			err = p.dial(r, files)
		case opListen:
			err = p.listen(r, files)
		default:
			err = fmt.Errorf("unknown operation %q", r.Op)
		}
		closeAll(files)
		if err != nil {
			return err
		}
	}
}

// start starts a process with the files gate, standard input, output and error; with a terminal the gate only. It reports a
// failure to the server.
func (p *initProcess) start(r request, files []*os.File) error {
	if len(files) != 1 && len(files) != 4 {
		return fmt.Errorf("a process was requested with %d files", len(files))
	}
	var own *os.File
	if r.OwnNetwork {
		made, err := p.networks.create()
		if err != nil {
			return p.server.send(event{Event: eventExited, Process: r.Process, Error: err.Error()})
		}
		defer closeAll(made)
		own = made[0]
		if err := p.server.send(event{Event: eventNetworked, Process: r.Process}, made...); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.processes) >= maxProcesses {
		return p.server.send(event{Event: eventExited, Process: r.Process, Error: "the computer has too many processes"})
	}
	isPrivate := r.Private && !p.config.Unisolated
	var pid int
	var status *os.File
	err := p.networks.spawn(own, isPrivate, func() (err error) {
		pid, status, err = p.fork(files, isPrivate)
		return err
	})
	if err != nil {
		return p.server.send(event{Event: eventExited, Process: r.Process, Error: err.Error()})
	}
	p.processes[pid], p.pids[r.Process] = &child{number: r.Process, status: status}, pid
	select {
	case p.started <- struct{}{}:
	default:
	}
	return nil
}

// fork starts a process, below a monitor if it is private or processes are nested. It returns the pipe of the monitor.
func (p *initProcess) fork(files []*os.File, isPrivate bool) (pid int, status *os.File, err error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	passed := []*os.File{null, null, null, files[0]}
	copy(passed, files[1:])
	attributes := &syscall.SysProcAttr{Setsid: true, AmbientCaps: p.config.ambient()}
	if p.config.Unisolated {
		attributes.AmbientCaps, attributes.Pdeathsig = nil, unix.SIGKILL // this is the main thread, which ends last
	}
	if !p.config.Nested && !isPrivate {
		pid, err = fork(roleProcess, attributes, passed)
		return pid, nil, err
	}
	status, report, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer report.Close()
	role := roleMonitor
	if isPrivate {
		role = rolePrivate
	}
	if p.config.Unisolated {
		role = roleSupervisor
	} else {
		attributes.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	}
	if pid, err = fork(role, attributes, append(passed, report)); err != nil {
		_ = status.Close()
		return 0, nil, err
	}
	return pid, status, nil
}

// fork starts this program in another role. The files become its files 0, 1, 2 and so on.
func fork(role string, attributes *syscall.SysProcAttr, files []*os.File) (int, error) {
	var fds []uintptr
	for _, file := range files {
		fds = append(fds, file.Fd())
	}
	pid, err := syscall.ForkExec(self, []string{role}, &syscall.ProcAttr{Dir: "/", Env: roleEnv, Files: fds, Sys: attributes})
	if err != nil {
		return 0, os.NewSyscallError("fork", err)
	}
	return pid, nil
}

// reap waits for the children and for all orphans of the computer.
func (p *initProcess) reap() {
	for {
		// WNOWAIT leaves the process id to its process until the number is forgotten, so that no signal reaches another.
		var of unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &of, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			<-p.started
			continue
		}
		if err == nil {
			p.reapAll()
		}
	}
}

// reapAll reaps all children that have ended, and reports the end of each process that the server has started. When the reaper ends, the
// computer ends: the kernel has ended all members of the shared process namespace, and starts no process in that namespace again.
func (p *initProcess) reapAll() {
	for {
		p.mu.Lock()
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		ended := p.processes[pid]
		if err == nil && ended != nil {
			delete(p.processes, pid)
			delete(p.pids, ended.number)
		}
		p.mu.Unlock()
		if err != nil || pid <= 0 {
			return
		}
		if p.networks != nil && pid == p.networks.reaper {
			exit(fmt.Errorf("the reaper of the computer has ended: wait status %#x", uint32(status)))
		}
		if ended != nil {
			// An error means that the server is gone; serve then ends this process.
			_ = p.server.send(event{Event: eventExited, Process: ended.number, Status: ended.read(uint32(status))})
		}
	}
}

// read returns the status that a monitor has reported, or its own.
func (c *child) read(own uint32) uint32 {
	if c.status == nil {
		return own
	}
	defer c.status.Close()
	text := make([]byte, 16)
	n, err := c.status.Read(text)
	if err != nil {
		return own
	}
	reported, err := strconv.ParseUint(string(text[:n]), 10, 32)
	if err != nil {
		return own
	}
	return uint32(reported)
}

// signal sends a signal to a process or, if the server passes its terminal, to the terminal's foreground process group. It
// does nothing if the process has ended.
func (p *initProcess) signal(r request, files []*os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, runs := p.pids[r.Process]
	if !runs {
		return
	}
	if len(files) == 1 && r.Signal != unix.SIGKILL {
		group, err := unix.IoctlGetInt(int(files[0].Fd()), unix.TIOCGPGRP)
		if err == nil && group > 1 {
			pid = -group
		}
	}
	if r.Signal == unix.SIGKILL && p.config.Unisolated && p.config.Nested {
		_ = unix.Kill(pid, endSignal) // the supervisor must end the descendants before itself
		_ = unix.Kill(pid, unix.SIGCONT)
		return
	}
	_ = unix.Kill(pid, r.Signal)
}

// signalAll sends a signal to all processes of the computer. Of an unisolated computer it reaches the process groups that were
// started.
func (p *initProcess) signalAll(s syscall.Signal) {
	if !p.config.Unisolated {
		_ = unix.Kill(-1, s) // fails if there is no process
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	reached := map[int]bool{}
	for again := true; again; { // until no process was created meanwhile
		again = false
		for pid := range p.processes {
			for _, one := range append(descendants(pid), pid) {
				if !reached[one] {
					reached[one], again = true, true
					_ = unix.Kill(one, s)
				}
			}
		}
	}
}
