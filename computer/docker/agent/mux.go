package agent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// A Mux carries connections over one stream of bytes in each direction. The agent's "listen" opens a Stream for each connection that it
// accepts, and the server accepts the Streams. For "dial" the server opens them. A Stream has a window of its own in each direction, so
// that a Stream without a reader does not delay the others. The server does not trust its peer: after a frame that an agent does not send,
// the Mux fails, with all Streams.
//
// A frame is the number of the Stream (4 bytes), the kind of the frame (1 byte), the length of its payload (4 bytes, all numbers
// big endian), and the payload:
//
//	open    a new Stream; numbers begin at 1 and are not repeated
//	data    bytes of the connection
//	credit  the number of bytes (4 bytes) that the receiver of data has read since its last credit
//	end     no data follows
//	abort   as end, and the sender discards the bytes that it receives
//
// A Stream is gone when each side has sent end or abort.
type Mux struct {
	sending sync.Mutex // held while a frame is written
	w       io.Writer

	mu      sync.Mutex
	last    uint32
	streams map[uint32]*Stream
	// err is set when the Mux has failed.
	err error
	// changed is broadcast when a stream or err has changed.
	changed *sync.Cond
	// accepted has the streams that Accept has not returned.
	accepted []*Stream
	accepts  bool
	done     chan struct{}
}

// MaxStreams is the greatest number of Streams at the same time.
const MaxStreams = 256

const (
	// window is the number of bytes that one side of a Stream may send before the other has read them.
	window   = 256 << 10
	maxFrame = 32 << 10

	headerSize = 9
)

// The kinds of frames.
const (
	frameOpen byte = iota + 1
	frameData
	frameCredit
	frameEnd
	frameAbort
)

var (
	errPeerEnded = errors.New("the other side of the stream has ended it")
	// ErrTooMany is returned by Open while there are MaxStreams.
	ErrTooMany = errors.New("too many streams")
)

// NewMux returns a Mux that reads from r until r ends, and writes to w. accepts is true on the side that accepts streams. The
// caller closes r and w after Done.
func NewMux(r io.Reader, w io.Writer, accepts bool) *Mux {
	m := &Mux{w: w, streams: map[uint32]*Stream{}, accepts: accepts, done: make(chan struct{})}
	m.changed = sync.NewCond(&m.mu)
	go func() { m.fail(m.receive(bufio.NewReaderSize(r, maxFrame))) }()
	return m
}

// Done returns a channel that is closed when the Mux has failed or was closed.
func (m *Mux) Done() <-chan struct{} { return m.done }

// Close ends all streams.
func (m *Mux) Close() { m.fail(net.ErrClosed) }

// fail ends the Mux. The first error counts.
func (m *Mux) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	m.err = err
	close(m.done)
	m.changed.Broadcast()
}

// Open opens a stream. Errors: ErrTooMany, or the error of a Mux that has ended.
func (m *Mux) Open() (*Stream, error) {
	m.mu.Lock()
	if m.err != nil || len(m.streams) >= MaxStreams {
		defer m.mu.Unlock()
		if m.err != nil {
			return nil, m.err
		}
		return nil, ErrTooMany
	}
	m.last++
	s := m.add(m.last)
	m.mu.Unlock()
	return s, m.send(s.number, frameOpen, nil)
}

// add adds a stream. The caller holds mu.
func (m *Mux) add(number uint32) *Stream {
	s := &Stream{mux: m, number: number, credit: window, aborted: make(chan struct{})}
	m.streams[number] = s
	return s
}

// Accept returns the next stream that the other side has opened. It returns an error when the Mux has ended.
func (m *Mux) Accept() (*Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.err == nil && len(m.accepted) == 0 {
		m.changed.Wait()
	}
	if m.err != nil {
		return nil, m.err
	}
	s := m.accepted[0]
	m.accepted = m.accepted[1:]
	return s, nil
}

// send writes a frame.
func (m *Mux) send(number uint32, kind byte, payload []byte) error {
	frame := make([]byte, headerSize, headerSize+len(payload))
	binary.BigEndian.PutUint32(frame, number)
	frame[4] = kind
	binary.BigEndian.PutUint32(frame[5:], uint32(len(payload)))
	m.sending.Lock()
	defer m.sending.Unlock()
	if _, err := m.w.Write(append(frame, payload...)); err != nil {
		m.fail(err)
		return err
	}
	return nil
}

// receive handles frames until there are no more. It never waits for the reader of a stream, and never writes.
func (m *Mux) receive(r io.Reader) error {
	var header [headerSize]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(header[5:])
		if length > maxFrame {
			return fmt.Errorf("a frame of %d bytes", length)
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		if err := m.handle(binary.BigEndian.Uint32(header[:]), header[4], payload); err != nil {
			return err
		}
	}
}

func (m *Mux) handle(number uint32, kind byte, payload []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.changed.Broadcast()
	s := m.streams[number]
	switch {
	case kind == frameOpen:
		if !m.accepts || number != m.last+1 || len(m.streams) >= MaxStreams || len(m.accepted) >= MaxStreams {
			return fmt.Errorf("stream %d cannot be opened", number)
		}
		m.last = number
		m.accepted = append(m.accepted, m.add(number))
		return nil
	case kind == frameCredit && len(payload) == 4:
		if s != nil && !s.addCredit(binary.BigEndian.Uint32(payload)) {
			return fmt.Errorf("too much credit for stream %d", number)
		}
		return nil // or the credit was sent before the end of this side was known
	case kind == frameAbort && s == nil:
		return nil // likewise
	case s == nil || s.hasPeerEnded && kind != frameAbort:
		return fmt.Errorf("a frame of kind %d for stream %d, which has ended", kind, number)
	case kind == frameData:
		return s.receive(payload)
	case kind == frameEnd:
		s.hasPeerEnded = true
	case kind == frameAbort:
		if !isClosed(s.aborted) {
			close(s.aborted)
		}
		s.hasPeerEnded = true
	default:
		return fmt.Errorf("a frame of the unknown kind %d", kind)
	}
	s.removeEnded()
	return nil
}

// A Stream is a connection of a Mux. One goroutine may read and one may write at the same time, and any may close it.
type Stream struct {
	mux    *Mux
	number uint32
	// aborted is closed when the other side discards the bytes that it receives.
	aborted chan struct{}
	// writing is held from the decision to send a frame until it is sent, and locked before Mux.mu, so that no data follow the end.
	writing sync.Mutex

	// The fields below are guarded by Mux.mu.

	received []byte
	// unread is the number of bytes without a credit for the other side: the bytes in received, and the bytes that were read since the
	// last credit.
	unread int
	read   int
	// credit is the number of bytes that may be sent.
	credit int
	// isEnding is set when this side sends no more data; hasEnded, when the other side was notified; hasAborted, if with abort.
	isEnding, hasEnded, hasAborted bool
	// isClosed is set when received bytes are discarded.
	isClosed     bool
	hasPeerEnded bool
}

// Aborted returns a channel that is closed when the other side has closed the stream.
func (s *Stream) Aborted() <-chan struct{} { return s.aborted }

// receive takes bytes of the other side. The caller holds Mux.mu.
func (s *Stream) receive(b []byte) error {
	if s.unread += len(b); s.unread > window {
		return fmt.Errorf("stream %d has sent more than its window", s.number)
	}
	if !s.isClosed {
		s.received = append(s.received, b...)
	}
	return nil
}

// addCredit reports whether the credit is possible. The caller holds Mux.mu.
func (s *Stream) addCredit(n uint32) bool {
	if n > window || s.credit+int(n) > window {
		return false
	}
	s.credit += int(n)
	return true
}

// removeEnded removes the stream if both sides have ended it. The side that opens streams counts it until it has sent its end,
// and the other side no longer than that, so that both agree on when there are too many. The caller holds Mux.mu.
func (s *Stream) removeEnded() {
	hasEnded := s.hasEnded
	if s.mux.accepts {
		hasEnded = s.isEnding
	}
	if hasEnded && s.hasPeerEnded {
		delete(s.mux.streams, s.number)
	}
}

// Read implements io.Reader. After the last byte it returns io.EOF, or the error of the Mux if that has ended first.
func (s *Stream) Read(b []byte) (int, error) {
	m := s.mux
	m.mu.Lock()
	for len(s.received) == 0 && !s.hasPeerEnded && !s.isClosed && m.err == nil {
		m.changed.Wait()
	}
	n := copy(b, s.received)
	if s.received = s.received[n:]; len(s.received) == 0 {
		s.received = nil
	}
	s.read += n
	var credit int
	if s.read >= window/2 && !s.hasPeerEnded {
		credit, s.read = s.read, 0
		s.unread -= credit
	}
	err := m.err
	switch {
	case n > 0:
		err = nil
	case s.isClosed:
		err = net.ErrClosed
	case s.hasPeerEnded:
		err = io.EOF
	}
	m.mu.Unlock()
	if credit > 0 {
		_ = m.send(s.number, frameCredit, binary.BigEndian.AppendUint32(nil, uint32(credit))) // fails with the Mux
	}
	return n, err
}

// Write implements io.Writer. It waits until the other side has read enough.
func (s *Stream) Write(b []byte) (sent int, err error) {
	m := s.mux
	s.writing.Lock()
	defer s.writing.Unlock()
	for len(b) > 0 {
		m.mu.Lock()
		for s.credit == 0 && m.err == nil && !s.isEnding && !isClosed(s.aborted) {
			m.changed.Wait()
		}
		switch {
		case m.err != nil:
			err = m.err
		case s.isEnding:
			err = net.ErrClosed
		case isClosed(s.aborted):
			err = errPeerEnded
		}
		n := min(len(b), s.credit, maxFrame)
		s.credit -= n
		m.mu.Unlock()
		if err == nil {
			err = m.send(s.number, frameData, b[:n])
		}
		if err != nil {
			return sent, err
		}
		sent, b = sent+n, b[n:]
	}
	return sent, nil
}

// CloseWrite notifies the other side that no more bytes follow.
func (s *Stream) CloseWrite() error { return s.finish(frameEnd) }

// Close discards the unread bytes, and lets neither side send more.
func (s *Stream) Close() error { return s.finish(frameAbort) }

func (s *Stream) finish(kind byte) error {
	m := s.mux
	m.mu.Lock()
	s.isEnding = true // ends a Write that waits
	if kind == frameAbort {
		s.isClosed, s.received = true, nil
	}
	m.changed.Broadcast()
	m.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	m.mu.Lock()
	isNeeded := m.err == nil && !s.hasAborted && !(s.hasEnded && (kind == frameEnd || s.hasPeerEnded))
	m.mu.Unlock()
	var err error
	if isNeeded {
		err = m.send(s.number, kind, nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.hasEnded, s.hasAborted = true, s.hasAborted || kind == frameAbort
	s.removeEnded()
	return err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
