package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// terminal is a pseudoterminal with a process group.
type terminal struct {
	*process
	id, owner string
	master    *os.File
	limit     int
	// input has the messages that wait for the process to read them.
	input chan []byte

	mu sync.Mutex
	// output has the last bytes of the output, which end at position end.
	output   []byte
	end      uint64
	isDone   bool
	attached int
	// changed is closed and replaced when any of the fields above changes.
	changed chan struct{}
}

// OpenPTY opens a pseudoterminal. The caller closes both files.
func OpenPTY() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return nil, nil, err
	}
	var number int
	err = control(master, func(fd int) (err error) {
		if number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		_ = master.Close()
	}
	return master, slave, err
}

// control runs a system call with the descriptor of a file. File.Fd would make the file block, so that closing it ends no
// write.
func control(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = call(int(fd)) })
	return errors.Join(err, failed)
}

// record reads the output until the terminal ends.
func (t *terminal) record() {
	buffer := make([]byte, 4096)
	for {
		n, err := t.master.Read(buffer)
		t.mu.Lock()
		t.output = append(t.output, buffer[:n]...)
		t.output = t.output[max(0, len(t.output)-t.limit):]
		t.end += uint64(n)
		t.isDone = err != nil
		t.notify()
		t.mu.Unlock()
		if err != nil { // EIO when no process has the terminal open
			_ = t.master.Close() // ends writes
			return
		}
	}
}

// notify wakes the waiting goroutines. The caller holds mu.
func (t *terminal) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *terminal) ID() string { return t.id }

func (t *terminal) Read(ctx context.Context, position uint64, b []byte) (int, uint64, error) {
	for {
		t.mu.Lock()
		if position > t.end {
			t.mu.Unlock()
			return 0, 0, entity.Errorf(entity.InvalidRequest, "position is after the end of the output")
		}
		oldest := t.end - uint64(len(t.output))
		position = max(position, oldest)
		n, isDone, changed := copy(b, t.output[position-oldest:]), t.isDone, t.changed
		t.mu.Unlock()
		if n > 0 {
			return n, position, nil
		}
		if isDone {
			return 0, position, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, position, ctx.Err()
		}
	}
}

func (t *terminal) Write(ctx context.Context, b []byte) {
	select {
	case t.input <- b:
		return
	default:
	}
	select {
	case t.input <- b:
	case <-ctx.Done():
	case <-t.ended:
	}
}

// feed writes the input until the terminal ends.
func (t *terminal) feed() {
	for {
		select {
		case b := <-t.input:
			_, _ = t.master.Write(b)
		case <-t.ended:
			return
		}
	}
}

func (t *terminal) Resize(columns, rows uint16) error {
	return control(t.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

func (t *terminal) Attach() (detach func()) {
	t.attach(1)
	return func() { t.attach(-1) }
}

func (t *terminal) attach(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attached += n
	t.notify()
}

func (t *terminal) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// WaitAttached waits until a terminal has a number of clients.
func (c *Computers) WaitAttached(ctx context.Context, id string, clients int) error {
	c.mu.Lock()
	t := c.terminals[id]
	c.mu.Unlock()
	for {
		t.mu.Lock()
		attached, changed := t.attached, t.changed
		t.mu.Unlock()
		if attached == clients {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the terminal has %d clients: %w", attached, ctx.Err())
		}
	}
}

// WaitEnded waits until a terminal has ended.
func (c *Computers) WaitEnded(ctx context.Context, id string) error {
	c.mu.Lock()
	t := c.terminals[id]
	c.mu.Unlock()
	_, _, err := t.Wait(ctx)
	return err
}
