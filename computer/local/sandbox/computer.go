package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout limits the start of a computer, and the start of a process.
const startTimeout = 30 * time.Second

// maxDiagnosis limits the bytes of the messages of a failed init that are kept.
const maxDiagnosis = 4 << 10

// A Computer is the server's side of a running computer. All methods may be called concurrently.
type Computer struct {
	config  Config
	command *exec.Cmd
	// pidFD refers to the init, until the computer has ended.
	pidFD  *os.File
	server socket
	link   []*os.File
	// ended is closed when all processes of the computer have ended.
	ended     chan struct{}
	diagnosis diagnosis

	mu        sync.Mutex
	last      uint64
	processes map[uint64]*Process
	calls     map[uint64]chan<- answer
}

// An answer is the answer of an init to a call.
type answer struct {
	file *os.File
	err  error
}

// Start starts a computer. join is called with the process id of its init before the init does anything.
func Start(ctx context.Context, config Config, join func(pid int) error) (*Computer, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var mapping []*os.File
	if !config.Unprivileged && !config.Unisolated {
		file, err := openMapping(config.UID)
		if err != nil {
			return nil, fmt.Errorf("cannot map the owner of the drive: %w", err)
		}
		defer file.Close()
		mapping = []*os.File{file}
	}
	server, other, err := newSocketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	c := &Computer{
		config: config, server: server, ended: make(chan struct{}),
		processes: map[uint64]*Process{}, calls: map[uint64]chan<- answer{},
	}
	err = c.clone(other)
	_ = other.Close()
	if err != nil {
		_ = server.Close()
		return nil, err
	}
	if err := c.setUp(ctx, mapping, join); err != nil {
		_ = c.Kill(context.WithoutCancel(ctx))
		return nil, err
	}
	go c.receive()
	return c, nil
}

// clone starts the init in its namespaces, and the goroutine that waits for its end.
func (c *Computer) clone(socket *os.File) error {
	pidFD := -1
	attributes := &syscall.SysProcAttr{
		Setsid: true, PidFD: &pidFD,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if c.config.Unisolated {
		attributes.Cloneflags = 0
	} else if c.config.Unprivileged {
		attributes.Cloneflags |= unix.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: c.config.UID, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: c.config.UID, HostID: os.Getgid(), Size: 1}}
		for one := uintptr(0); one <= unix.CAP_CHECKPOINT_RESTORE; one++ {
			attributes.AmbientCaps = append(attributes.AmbientCaps, one)
		}
	}
	c.command = &exec.Cmd{
		Path: self, Args: []string{roleInit, c.config.Node, c.config.Name}, Env: roleEnv, Dir: "/",
		Stderr: &c.diagnosis, ExtraFiles: []*os.File{socket}, SysProcAttr: attributes, WaitDelay: time.Second,
	}
	if err := c.command.Start(); err != nil {
		return fmt.Errorf("cannot create namespaces: %w", err)
	}
	c.pidFD = os.NewFile(uintptr(pidFD), "pidfd")
	go func() {
		_ = c.command.Wait() // how the init has ended does not matter
		close(c.ended)
	}()
	return nil
}

func (c *Computer) setUp(ctx context.Context, mapping []*os.File, join func(pid int) error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.server.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := join(c.command.Process.Pid); err != nil {
		return err
	}
	if err := c.server.send(setup{Version: wireVersion, Config: c.config}, mapping...); err != nil {
		return fmt.Errorf("cannot set up the computer: %w", c.explain(ctx, err))
	}
	var e event
	files, err := c.server.receive(&e)
	switch {
	case err != nil:
		return fmt.Errorf("cannot set up the computer: %w", c.explain(ctx, err))
	case e.Event != eventReady:
		closeAll(files)
		return fmt.Errorf("cannot set up the computer: %s", e.Error)
	case !stop():
		closeAll(files)
		return ctx.Err()
	}
	c.link = files
	return nil
}

// explain returns the reason why the computer does not answer.
func (c *Computer) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if text := c.diagnosis.String(); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// Ended returns a channel that is closed when all processes of the computer have ended.
func (c *Computer) Ended() <-chan struct{} { return c.ended }

// PidFD returns a file that refers to the init. It is valid until the computer has ended.
func (c *Computer) PidFD() *os.File { return c.pidFD }

// LinkFiles returns the files of the computer's link to the network, which the caller closes.
func (c *Computer) LinkFiles() []*os.File { return c.link }

// Processes returns the ids, in the namespace of the server, of the processes of the computer without its init.
func (c *Computer) Processes() []int { return descendants(c.command.Process.Pid) }

// Diagnosis returns the messages that the init wrote before it ended.
func (c *Computer) Diagnosis() string { return c.diagnosis.String() }

// Kill ends all processes of the computer and returns when none is left. It returns an error only if ctx ends first.
func (c *Computer) Kill(ctx context.Context) error {
	if c.config.Unisolated {
		// Nothing ends the processes with their init, so it does, if there is still time.
		_ = c.server.Close()
		stop := context.AfterFunc(ctx, func() { _ = c.command.Process.Kill() })
		defer stop()
	} else {
		_ = c.command.Process.Kill() // an error means that it has ended
	}
	select {
	case <-c.ended:
		_ = c.server.Close()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the computer has not ended: %w", ctx.Err())
	}
}

// receive handles the events of the init until the computer ends.
func (c *Computer) receive() {
	for {
		var e event
		files, err := c.server.receive(&e)
		if err != nil {
			break
		}
		switch e.Event {
		case eventExited:
			c.finish(e)
		case eventAnswered:
			c.deliver(e, files)
			files = nil
		case eventNetworked:
			c.adoptNetwork(e, files)
			files = nil
		}
		closeAll(files)
	}
	if !c.config.Unisolated {
		_ = c.command.Process.Kill()
	}
	<-c.ended
	_ = c.server.Close()
	_ = c.pidFD.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		p.finish(Result{Lost: true})
	}
	for _, waiting := range c.calls {
		waiting <- answer{err: ErrEnded}
	}
	c.processes, c.calls = nil, nil
}

func (c *Computer) finish(e event) {
	c.mu.Lock()
	p := c.processes[e.Process]
	delete(c.processes, e.Process)
	c.mu.Unlock()
	if p == nil {
		return
	}
	r := Result{Status: unix.WaitStatus(e.Status)}
	if e.Error != "" {
		r.Err = errors.New(e.Error)
	}
	p.finish(r)
}

// deliver passes an answer on. It holds mu until then, so that a caller that has forgotten its call either finds the answer or has none.
func (c *Computer) deliver(e event, files []*os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.calls[e.Call]
	delete(c.calls, e.Call)
	switch {
	case waiting == nil:
		closeAll(files)
	case e.Error == "" && len(files) == 0:
		waiting <- answer{}
	case e.Error == "" && len(files) == 1:
		waiting <- answer{file: files[0]}
	default:
		closeAll(files)
		waiting <- answer{err: errors.New(e.Error)}
	}
}

// SignalAll sends a signal to all processes of the computer besides its init, and returns when it was sent.
func (c *Computer) SignalAll(ctx context.Context, s syscall.Signal) error {
	_, err := c.call(ctx, request{Op: opSignalAll, Signal: s})
	return err
}

// call sends a request to the init and waits for the answer. The file of the answer may be nil.
func (c *Computer) call(ctx context.Context, r request) (*os.File, error) {
	waiting, err := c.sendCall(&r)
	if err != nil {
		return nil, err
	}
	return c.await(ctx, r.Call, waiting)
}

// sendCall numbers a request and sends it with files. await returns the answer.
func (c *Computer) sendCall(r *request, files ...*os.File) (<-chan answer, error) {
	waiting := make(chan answer, 1)
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return nil, ErrEnded
	}
	c.last++
	r.Call = c.last
	c.calls[r.Call] = waiting
	c.mu.Unlock()
	if err := c.server.send(*r, files...); err != nil {
		c.forgetCall(r.Call)
		return nil, err
	}
	return waiting, nil
}

func (c *Computer) forgetCall(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, number)
}

func (c *Computer) await(ctx context.Context, number uint64, waiting <-chan answer) (*os.File, error) {
	select {
	case a := <-waiting:
		return a.file, a.err
	case <-ctx.Done():
		c.forgetCall(number)
		select {
		case a := <-waiting:
			if a.file != nil {
				_ = a.file.Close()
			}
		default:
		}
		return nil, ctx.Err()
	}
}

// A diagnosis keeps the first bytes that are written to it.
type diagnosis struct {
	mu   sync.Mutex
	text strings.Builder
}

func (d *diagnosis) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text.Write(p[:min(len(p), maxDiagnosis-min(d.text.Len(), maxDiagnosis))])
	return len(p), nil
}

func (d *diagnosis) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.TrimSpace(d.text.String())
}

// openMapping returns a user namespace that maps the server's user and group to a different user and group.
func openMapping(uid int) (*os.File, error) {
	hold, release, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	command := &exec.Cmd{
		Path: self, Args: []string{roleMapping}, Env: []string{}, Dir: "/", Stdin: hold,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: uid, Size: 1}},
		},
	}
	if err := command.Start(); err != nil {
		_ = release.Close()
		return nil, err
	}
	file, err := os.Open("/proc/" + strconv.Itoa(command.Process.Pid) + "/ns/user")
	_ = release.Close()
	_ = command.Wait()
	return file, err
}

// runMapping waits until the server has opened the user namespace of this process.
func runMapping() error {
	_, err := io.Copy(io.Discard, os.NewFile(0, "stdin"))
	return err
}
