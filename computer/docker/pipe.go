package docker

import (
	"io"
	"sync"
)

// A pipe has the bytes that the engine has sent and that the caller has not yet read. It is bounded, like a pipe of the kernel:
// if it is full, the engine waits, and then the process.
type pipe struct {
	mu      sync.Mutex
	changed *sync.Cond
	bytes   []byte
	// isEnded is set when nothing more is written, isClosed when nothing more is read.
	isEnded, isClosed bool
}

const pipeSize = 64 << 10

func newPipe() *pipe {
	p := &pipe{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// Write appends bytes, and waits while the pipe is full. It discards them if the reader has closed the pipe.
func (p *pipe) Write(b []byte) (written int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for written < len(b) && !p.isClosed {
		if p.isEnded {
			return written, io.ErrClosedPipe
		}
		room := min(pipeSize-len(p.bytes), len(b)-written)
		if room == 0 {
			p.changed.Wait()
			continue
		}
		p.bytes = append(p.bytes, b[written:written+room]...)
		written += room
		p.changed.Broadcast()
	}
	return len(b), nil
}

// Read returns bytes as soon as there are any, and io.EOF when no more follow.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.bytes) == 0 {
		if p.isClosed {
			return 0, io.ErrClosedPipe
		}
		if p.isEnded {
			return 0, io.EOF
		}
		p.changed.Wait()
	}
	n := copy(b, p.bytes)
	p.bytes = p.bytes[n:]
	if len(p.bytes) == 0 {
		p.bytes = nil
	}
	p.changed.Broadcast()
	return n, nil
}

// isFull reports whether more can be written only when the caller has read.
func (p *pipe) isFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.bytes) == pipeSize
}

// end says that nothing more is written.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isEnded = true
	p.changed.Broadcast()
}

// Close discards the unread bytes, and everything that follows.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isClosed, p.bytes = true, nil
	p.changed.Broadcast()
	return nil
}
