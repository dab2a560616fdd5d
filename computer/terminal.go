package computer

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	// scrollBack is the number of last bytes of a terminal's output that can be read again.
	scrollBack = 256 << 10
	// maxWaiting is the number of bytes of input that wait for the process to read them, beyond which Write blocks.
	maxWaiting = 256 << 10
	// endedTerminalTime is the time in which a terminal that has ended can be resumed, to read the rest of its output.
	endedTerminalTime = time.Minute
	// DefaultDetachedLimit is the default of Options.DetachedLimit.
	DefaultDetachedLimit = 10 * time.Minute
)

// A Terminal is a process with a terminal that outlives the connections of its clients. It keeps the last bytes of its
// output, so that a client can read the output that it has missed. All methods may be called concurrently.
type Terminal struct {
	*Running
	// userID identifies the user who opened the terminal. Only that user may resume it.
	userID        string
	detachedLimit time.Duration
	log           *slog.Logger

	mu sync.Mutex
	// last has the last bytes of the output; the byte at position p is last[p%scrollBack]. It grows up to scrollBack.
	last []byte
	// position is the number of bytes of the whole output.
	position uint64
	isEOF    bool
	// changed is closed and replaced when the output grows or ends.
	changed chan struct{}
	// waiting is the input that the process has not read yet. inputChanged is closed and replaced when it grows or shrinks.
	waiting      []byte
	inputChanged chan struct{}
	clients      int
	// expiry ends the terminal; nil while there are clients.
	expiry *time.Timer
}

// shell is the process of a terminal that names none: Bash as a login shell, if the computer has it.
var shell = []string{"sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l"}

// OpenTerminal starts a process with a terminal, without Argv a shell. Errors: the errors of Launch.
func (f *Fleet) OpenTerminal(ctx context.Context, l Launch) (*Terminal, error) {
	l.Kind = computerv1.ProcessKind_PROCESS_KIND_TERMINAL
	if len(l.Argv) == 0 {
		l.Argv = shell
	}
	if l.Terminal == nil {
		l.Terminal = &TerminalSize{Columns: 80, Rows: 24}
	}
	running, err := f.Launch(ctx, l)
	if err != nil {
		return nil, err
	}
	t := &Terminal{
		Running: running, userID: l.Principal.GetUserId(), changed: make(chan struct{}), inputChanged: make(chan struct{}),
		detachedLimit: cmp.Or(f.o.DetachedLimit, DefaultDetachedLimit), log: f.o.Log,
	}
	f.terminals.Store(t.ID, t)
	t.mu.Lock()
	t.expire()
	t.mu.Unlock()
	go t.feed()
	go func() {
		t.follow(t.Streams().Stdout)
		<-t.Ended()
		t.Attach() // stops the timer for good
		forgotten := time.NewTimer(endedTerminalTime)
		defer forgotten.Stop()
		select {
		case <-forgotten.C:
		case <-f.running.Done():
		}
		f.terminals.Delete(t.ID)
	}()
	return t, nil
}

var errNoTerminal = entity.Errorf(entity.NotFound, "there is no such terminal; it may have ended")

// Terminal returns a terminal of a workspace that the same person has opened. It is open, or ended at most a minute ago. Errors: not_found.
func (f *Fleet) Terminal(workspaceID string, p *wirev1.Principal, id string) (*Terminal, error) {
	found, ok := f.terminals.Load(id)
	if !ok {
		return nil, errNoTerminal
	}
	t := found.(*Terminal)
	if t.WorkspaceID != workspaceID || t.userID == "" || t.userID != p.GetUserId() {
		return nil, errNoTerminal
	}
	return t, nil
}

// Read copies output that begins at a position, and blocks until there is some. It returns the number of bytes and the position
// of the first one, which is later than the given one if the scroll-back no longer has that byte. Errors: io.EOF after the last
// byte, invalid_request for a position after the end of the output, and the error of ctx.
func (t *Terminal) Read(ctx context.Context, position uint64, b []byte) (n int, at uint64, err error) {
	for {
		t.mu.Lock()
		if position > t.position {
			t.mu.Unlock()
			return 0, 0, entity.Errorf(entity.InvalidRequest, "position is after the end of the terminal's output")
		}
		at = max(position, t.position-uint64(len(t.last)))
		n = t.copyFrom(at, b)
		isEOF, changed := t.isEOF, t.changed
		t.mu.Unlock()
		switch {
		case n > 0:
			return n, at, nil
		case isEOF:
			return 0, at, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, at, ctx.Err()
		}
	}
}

// copyFrom copies output from a position that is in last. The caller holds mu.
func (t *Terminal) copyFrom(at uint64, b []byte) int {
	b = b[:min(uint64(len(b)), t.position-at)]
	n := 0
	for n < len(b) {
		from := (at + uint64(n)) % scrollBack
		n += copy(b[n:], t.last[from:])
	}
	return n
}

// Write sends input to the process. Input waits in memory for the process to read it, up to maxWaiting; beyond that Write
// blocks until there is room. It drops b when ctx or the process ends before.
func (t *Terminal) Write(ctx context.Context, b []byte) {
	for {
		t.mu.Lock()
		if len(t.waiting) == 0 || len(t.waiting)+len(b) <= maxWaiting {
			t.waiting = append(t.waiting, b...)
			t.notifyInput()
			t.mu.Unlock()
			return
		}
		changed := t.inputChanged
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-t.Ended():
			return
		}
	}
}

// feed writes the input to the process until the process ends. Input that cannot be written is dropped.
func (t *Terminal) feed() {
	for {
		t.mu.Lock()
		next, changed := t.waiting[:min(len(t.waiting), 32<<10)], t.inputChanged
		t.mu.Unlock()
		if len(next) > 0 {
			_, _ = t.Streams().Stdin.Write(next)
			t.mu.Lock()
			if t.waiting = t.waiting[len(next):]; len(t.waiting) == 0 {
				t.waiting = nil // releases its memory
			}
			t.notifyInput()
			t.mu.Unlock()
			continue
		}
		select {
		case <-changed:
		case <-t.Ended():
			return
		}
	}
}

// notifyInput wakes the goroutines that wait for a change of the input. The caller holds mu.
func (t *Terminal) notifyInput() {
	close(t.inputChanged)
	t.inputChanged = make(chan struct{})
}

// follow reads the output until it ends.
func (t *Terminal) follow(output io.Reader) {
	b := make([]byte, 32<<10)
	for {
		n, err := output.Read(b)
		t.mu.Lock()
		t.append(b[:n])
		t.isEOF = err != nil
		close(t.changed)
		t.changed = make(chan struct{})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// append adds output. The caller holds mu.
func (t *Terminal) append(b []byte) {
	for len(b) > 0 {
		var n int
		if len(t.last) < scrollBack {
			n = min(len(b), scrollBack-len(t.last))
			t.last = append(t.last, b[:n]...)
		} else {
			n = copy(t.last[t.position%scrollBack:], b)
		}
		t.position += uint64(n)
		b = b[n:]
	}
}

// Attach marks a client as connected until detach is called. A terminal without clients ends after Options.DetachedLimit.
func (t *Terminal) Attach() (detach func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients++
	if t.expiry != nil {
		t.expiry.Stop()
		t.expiry = nil
	}
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.clients--; t.clients == 0 {
			t.expire()
		}
	})
}

// expire begins the time after which a terminal without clients ends, and begins it again if the terminal cannot be ended. The
// caller holds mu.
func (t *Terminal) expire() {
	t.expiry = time.AfterFunc(t.detachedLimit, func() {
		t.mu.Lock()
		isUsed := t.clients > 0
		t.mu.Unlock()
		if isUsed {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if err := t.End(ctx); err != nil {
			t.log.Error("cannot end a terminal without clients; trying again later", slog.String("workspace", t.WorkspaceID),
				slog.String("process", t.ID), slog.Any("error", err))
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.clients == 0 {
				t.expire()
			}
		}
	})
}
