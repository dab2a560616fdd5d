package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrEnded is the error of a computer that has ended.
var ErrEnded = errors.New("the computer has ended")

// A Group is a control group. cgroup.Group is one.
type Group interface {
	// Entrances returns files through which a thread that writes "0" to each of them joins the group; none if that is not possible.
	Entrances() ([]*os.File, error)
	// Join moves a process to the group.
	Join(pid int) error
}

// A Spec describes a process.
type Spec struct {
	Argv, Env []string
	// Program is the file of the server's program, which a process may execute where it is if it is not isolated.
	Program string
	// Cwd is a path below the drive without a leading slash.
	Cwd string
	// Terminal is the size of the terminal of the process; nil: it has pipes.
	Terminal *unix.Winsize
	// OwnNetwork gives the process a network of its own. Otherwise it has the network of the computer.
	OwnNetwork bool
	// Private gives the process and its descendants a process namespace and a folder of their own (private.go). It has no effect on
	// unisolated processes, and excludes OwnNetwork.
	Private bool
	// Group is the control group of the process; nil: the control group of the init.
	Group Group
	// Held is called with the process id in the namespace of the server, before any code of the program runs. If it fails, the
	// program is not executed. own is the network of the process if OwnNetwork is set, and else nil. The callee owns it, and
	// closes it when the process has ended, or has not been started.
	Held func(pid int, own *Network) error
}

// A RefusedError says that a spec cannot be run in the computer.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

// A Result says how a process has ended.
type Result struct {
	Status unix.WaitStatus
	// Lost is true if the computer ended before the process did.
	Lost bool
	// Err is the reason why the process could not be created.
	Err error
}

// A Process is a process of a computer.
type Process struct {
	// Stdin and Stdout are the same file if the process has a terminal, and Stderr is nil then.
	Stdin, Stdout, Stderr *os.File

	computer *Computer
	number   uint64
	terminal bool
	// networked receives the own network of the process; nil: the process has the network of the computer.
	networked chan *Network
	ended     chan struct{}
	once      sync.Once
	result    Result
}

// Ended returns a channel that is closed when the process has ended. Its descendants may still run.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Result returns how the process has ended. It is called after Ended.
func (p *Process) Result() Result { return p.result }

func (p *Process) finish(r Result) {
	p.once.Do(func() {
		p.result = r
		close(p.ended)
	})
}

// Signal sends a signal to the process, or to the foreground process group of its terminal.
func (p *Process) Signal(s syscall.Signal) error {
	var files []*os.File
	if p.terminal && s != unix.SIGKILL {
		files = []*os.File{p.Stdin}
	}
	select {
	case <-p.ended:
		return nil
	default:
		return p.computer.server.send(request{Op: opSignal, Process: p.number, Signal: s}, files...)
	}
}

// Resize changes the size of the terminal.
func (p *Process) Resize(size *unix.Winsize) error {
	if !p.terminal {
		return nil
	}
	raw, err := p.Stdin.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
	return errors.Join(controlErr, err)
}

// Close closes the server's ends of the streams.
func (p *Process) Close() {
	for _, file := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// Start starts a process. If it fails or ctx ends, the program does not run; a RefusedError says that the spec is the reason.
func (c *Computer) Start(ctx context.Context, s Spec) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	gate, other, err := newSocketPair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	files := []*os.File{other}
	defer func() { closeAll(files) }()
	p := &Process{computer: c, ended: make(chan struct{}), terminal: s.Terminal != nil}
	if s.OwnNetwork {
		p.networked = make(chan *Network, 1)
	}
	if s.Terminal == nil {
		streams, err := p.openPipes()
		files = append(files, streams...)
		if err != nil {
			p.Close()
			return nil, err
		}
	}
	if err := gate.passCredentials(); err != nil {
		p.Close()
		return nil, err
	}
	if err := c.register(p); err != nil {
		p.Close()
		return nil, err
	}
	err = c.server.send(request{Op: opStart, Process: p.number, OwnNetwork: s.OwnNetwork, Private: s.Private}, files...)
	closeAll(files) // so that the gate and the streams end with the process
	files = nil
	if err == nil {
		err = p.passGate(ctx, gate, s)
	}
	if err != nil {
		_ = gate.Close()
		p.abandon()
		return nil, err
	}
	return p, nil
}

// register gives the process a number.
func (c *Computer) register(p *Process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.processes == nil {
		return ErrEnded
	}
	c.last++
	p.number = c.last
	c.processes[p.number] = p
	return nil
}

// openPipes creates the pipes of the process, and returns its ends.
func (p *Process) openPipes() (ends []*os.File, err error) {
	for _, one := range []struct {
		own    **os.File
		writes bool
	}{{&p.Stdin, true}, {&p.Stdout, false}, {&p.Stderr, false}} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return ends, os.NewSyscallError("pipe2", err)
		}
		own, its := fds[0], fds[1]
		if one.writes {
			own, its = its, own
		}
		ends = append(ends, os.NewFile(uintptr(its), "stream"))
		if *one.own, err = newStream(own); err != nil {
			return ends, err
		}
	}
	return ends, nil
}

// newStream returns a file that can be closed while it is read or written.
func newStream(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "stream"), nil
}

func (s socket) passCredentials() error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return errors.Join(controlErr, err)
}

// passGate waits for the process at its gate, tells it the program to run and waits until the program runs.
func (p *Process) passGate(ctx context.Context, gate socket, s Spec) error {
	stop := context.AfterFunc(ctx, func() { _ = gate.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	pid, err := p.awaitArrival(ctx, gate)
	if err != nil {
		return err
	}
	if err := p.enterGroup(ctx, gate, pid, s.Group); err != nil {
		return err
	}
	own, err := p.awaitNetwork(ctx)
	if err != nil {
		return err
	}
	if err := s.Held(pid, own); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	config := &p.computer.config
	told := spec{
		Version: wireVersion, Argv: s.Argv, Cwd: s.Cwd, Env: s.Env, Terminal: s.Terminal, UID: config.UID,
		MaxProcesses: config.MaxProcesses, Drive: driveDir, Home: Home,
	}
	if config.Unisolated {
		told.UID, told.Drive, told.Home, told.Unisolated = os.Getuid(), config.Files, config.Home, true
		told.Program = s.Program
	}
	if err := sendLong(gate, told); err != nil {
		return p.explain(ctx, err)
	}
	for {
		kind, files, _, err := gate.receiveByte()
		switch {
		case errors.Is(err, io.EOF):
			return p.checkExecuted(s)
		case err != nil:
			return p.explain(ctx, err)
		case kind == gateTerminal && len(files) == 1 && p.terminal && p.Stdin == nil:
			if err := p.adoptTerminal(files[0]); err != nil {
				return err
			}
		case kind == gateRefused:
			closeAll(files)
			return p.receiveRefusal(ctx, gate)
		default:
			closeAll(files)
			return errors.New("the process has sent an unexpected message")
		}
	}
}

// enterGroup puts the process, which waits at its gate, into its control group. The process enters by itself if that is possible.
func (p *Process) enterGroup(ctx context.Context, gate socket, pid int, group Group) error {
	var files []*os.File
	if group != nil {
		var err error
		if files, err = group.Entrances(); err != nil {
			return err
		}
	}
	defer closeAll(files)
	var fds []int
	for _, file := range files {
		fds = append(fds, int(file.Fd()))
	}
	if _, _, err := gate.WriteMsgUnix([]byte{gateEnter}, unix.UnixRights(fds...), nil); err != nil {
		return p.explain(ctx, err)
	}
	kind, received, _, err := gate.receiveByte()
	closeAll(received)
	switch {
	case err != nil:
		return p.explain(ctx, err)
	case kind != gateEntered && kind != gateOutside:
		return errors.New("the process has sent an unexpected message")
	case group != nil && (kind == gateOutside || len(files) == 0):
		return group.Join(pid)
	}
	return nil
}

// awaitArrival returns the process id of the process that has arrived at the gate. The kernel vouches for it.
func (p *Process) awaitArrival(ctx context.Context, gate socket) (int, error) {
	kind, files, pid, err := gate.receiveByte()
	closeAll(files)
	if err != nil {
		return 0, p.explain(ctx, err)
	}
	if kind != gateArrived || pid <= 0 {
		return 0, errors.New("the process has sent an unexpected message")
	}
	return pid, nil
}

// receiveByte receives one byte of a stream, with the files and the process id that were sent with it.
func (s socket) receiveByte() (kind byte, files []*os.File, pid int, err error) {
	text, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxFiles)+unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, _, _, err := s.ReadMsgUnix(text, oob)
	if err != nil {
		return 0, nil, 0, err
	}
	if files, pid, err = parseControl(oob[:oobn]); err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		closeAll(files)
		return 0, nil, 0, err
	}
	return text[0], files, pid, nil
}

// checkExecuted returns an error if a process with a terminal has closed its gate without passing the terminal. How a process
// ends after it has closed its gate is its own matter.
func (p *Process) checkExecuted(s Spec) error {
	if s.Terminal != nil && p.Stdin == nil {
		return errors.New("the process has ended before it had its terminal")
	}
	return nil
}

// adoptTerminal makes a duplicate of the terminal's file, so that Signal and Resize work while Stdout is closed.
func (p *Process) adoptTerminal(file *os.File) error {
	defer file.Close()
	for _, own := range []**os.File{&p.Stdin, &p.Stdout} {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		if *own, err = newStream(fd); err != nil {
			return err
		}
	}
	return nil
}

func (p *Process) receiveRefusal(ctx context.Context, gate socket) error {
	var r refusal
	if err := receiveLong(gate, &r); err != nil {
		return p.explain(ctx, err)
	}
	if r.Invalid {
		return &RefusedError{r.Message}
	}
	return fmt.Errorf("the process cannot be started: %s", r.Message)
}

// explain returns the reason why a process has not answered at its gate.
func (p *Process) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-p.ended:
	case <-time.After(time.Second): // only until the init reports why the gate was closed
		return err
	}
	if p.result.Lost {
		return ErrEnded
	}
	if p.result.Err != nil {
		return p.result.Err
	}
	return fmt.Errorf("the process has ended before its program ran: %w", err)
}

// abandon ends a process that has not executed its program, and returns when the process has ended.
func (p *Process) abandon() {
	_ = p.Signal(unix.SIGKILL)
	select {
	case <-p.ended:
	case <-time.After(startTimeout):
		_ = p.computer.Kill(context.Background())
	}
	p.Close()
	select {
	case unused := <-p.networked: // nil never receives
		unused.Close()
	default:
	}
}
