package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// pair returns both sides of a Mux: the agent's, which opens streams, and the server's, which accepts them.
func pair(t *testing.T) (agent, server *Mux) {
	t.Helper()
	a, b := net.Pipe()
	agent, server = NewMux(a, a, false), NewMux(b, b, true)
	t.Cleanup(func() {
		_, _ = a.Close(), b.Close()
		<-agent.Done()
		<-server.Done()
	})
	return agent, server
}

// open returns both ends of a new stream.
func open(t *testing.T, agent, server *Mux) (far, near *Stream) {
	t.Helper()
	far, err := agent.Open()
	if err != nil {
		t.Fatal(err)
	}
	near, err = server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return far, near
}

// count returns the number of streams that a Mux has.
func (m *Mux) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams)
}

// TestMuxCarriesStreams sends random bytes in both directions of many streams at the same time.
func TestMuxCarriesStreams(t *testing.T) {
	agent, server := pair(t)
	var group sync.WaitGroup
	for seed := range uint64(20) {
		far, near := open(t, agent, server)
		sent := make([]byte, rand.New(rand.NewPCG(seed, 1)).IntN(1<<20))
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(sent)
		for _, s := range []*Stream{far, near} {
			group.Go(func() {
				if _, err := s.Write(sent); err != nil {
					t.Errorf("Write: %v", err)
				}
				if err := s.CloseWrite(); err != nil {
					t.Errorf("CloseWrite: %v", err)
				}
			})
			group.Go(func() {
				if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("received %d bytes of %d, %v", len(got), len(sent), err)
				}
			})
		}
	}
	group.Wait()
	if a, s := agent.count(), server.count(); a != 0 || s != 0 {
		t.Errorf("%d and %d streams are left", a, s)
	}
}

// TestMuxWithSlowReader checks that a stream that is not read buffers its window, and does not delay another.
func TestMuxWithSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, server := pair(t)
		slow, unread := open(t, agent, server)
		written := make(chan int, 1)
		go func() {
			n, _ := slow.Write(make([]byte, 2*window))
			written <- n
		}()
		synctest.Wait()
		server.mu.Lock()
		if len(unread.received) != window {
			t.Errorf("%d bytes are buffered", len(unread.received))
		}
		server.mu.Unlock()
		far, near := open(t, agent, server)
		go func() {
			_, _ = io.WriteString(far, "text")
			_ = far.CloseWrite()
		}()
		if got, err := io.ReadAll(near); string(got) != "text" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := io.ReadFull(unread, make([]byte, 2*window)); err != nil {
			t.Error(err)
		}
		if n := <-written; n != 2*window {
			t.Errorf("wrote %d bytes", n)
		}
	})
}

// TestClosedStream closes one end. The other end may read the bytes that were sent before, and cannot write any more.
func TestClosedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, server := pair(t)
		far, near := open(t, agent, server)
		waiting := make(chan error, 1)
		go func() {
			_, err := far.Write(make([]byte, 4*window))
			waiting <- err
		}()
		if _, err := io.WriteString(near, "last words"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := near.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-waiting; err == nil {
			t.Error("Write to a closed stream succeeded")
		}
		<-far.Aborted()
		if got, err := io.ReadAll(far); string(got) != "last words" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read of the closed end: %v", err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write to the closed end: %v", err)
		}
		if err := errors.Join(far.CloseWrite(), far.Close()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if a, s := agent.count(), server.count(); a != 0 || s != 0 {
			t.Errorf("%d and %d streams are left", a, s)
		}
		far, near = open(t, agent, server) // the Mux goes on
		go func() { _ = far.Close() }()
		if got, err := io.ReadAll(near); len(got) != 0 || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestMuxRefusesTooManyStreams opens as many as there may be, and one more after one has ended.
func TestMuxRefusesTooManyStreams(t *testing.T) {
	agent, server := pair(t)
	var far, near *Stream
	for range MaxStreams {
		far, near = open(t, agent, server)
	}
	if _, err := agent.Open(); !errors.Is(err, ErrTooMany) {
		t.Errorf("Open returned %v", err)
	}
	for range 1000 { // both sides agree on when a stream is gone
		go func() { _ = near.CloseWrite() }()
		if _, err := io.ReadAll(far); err != nil {
			t.Fatal(err)
		}
		if err := far.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		far, near = open(t, agent, server)
	}
}

func TestMuxEndsItsStreams(t *testing.T) {
	agent, server := pair(t)
	_, near := open(t, agent, server)
	server.Close()
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read: %v", err)
	}
	if _, err := near.Write(make([]byte, 2*window)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write: %v", err)
	}
	if _, err := server.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := server.Open(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Open: %v", err)
	}
}

// frame returns the bytes of a frame.
func frame(number uint32, kind byte, payload string) string {
	header := binary.BigEndian.AppendUint32(nil, number)
	header = binary.BigEndian.AppendUint32(append(header, kind), uint32(len(payload)))
	return string(header) + payload
}

// TestMuxRefusesFrames sends frames that no agent sends.
func TestMuxRefusesFrames(t *testing.T) {
	opened := frame(1, frameOpen, "")
	var tooMany strings.Builder
	for i := range uint32(MaxStreams + 1) {
		tooMany.WriteString(frame(i+1, frameOpen, ""))
	}
	for name, sent := range map[string]string{
		"data of no stream":       frame(1, frameData, "x"),
		"data after the end":      opened + frame(1, frameEnd, "") + frame(1, frameData, "x"),
		"end twice":               opened + frame(1, frameEnd, "") + frame(1, frameEnd, ""),
		"more than the window":    opened + strings.Repeat(frame(1, frameData, strings.Repeat("x", maxFrame)), window/maxFrame+1),
		"long frame":              opened + frame(1, frameData, strings.Repeat("x", maxFrame+1)),
		"number that was used":    opened + opened,
		"number that is too high": frame(2, frameOpen, ""),
		"too many streams":        tooMany.String(),
		"credit for nothing":      opened + frame(1, frameCredit, "\x00\x00\x00\x01"),
		"much credit":             opened + frame(1, frameCredit, "\xff\xff\xff\xff"),
		"short credit":            opened + frame(1, frameCredit, "\x01"),
		"unknown kind":            opened + frame(1, 77, ""),
		"half a header":           opened[:5],
		"half a frame":            opened + frame(1, frameData, "text")[:11],
	} {
		m := NewMux(strings.NewReader(sent), io.Discard, true)
		<-m.Done()
		if errors.Is(m.err, io.EOF) {
			t.Errorf("%s: %v", name, m.err)
		}
	}
	for name, sent := range map[string]string{
		"abort after the end": opened + frame(1, frameEnd, "") + frame(1, frameAbort, ""),
		"late credit":         frame(9, frameCredit, "\x00\x00\x00\x01"),
		"late abort":          frame(9, frameAbort, ""),
	} {
		m := NewMux(strings.NewReader(sent), io.Discard, true)
		<-m.Done()
		if !errors.Is(m.err, io.EOF) {
			t.Errorf("%s: %v", name, m.err)
		}
	}
}

// FuzzMux sends any bytes to the server's side while streams are read.
func FuzzMux(f *testing.F) {
	f.Add([]byte(frame(1, frameOpen, "") + frame(1, frameData, "text") + frame(1, frameEnd, "")))
	f.Add([]byte(frame(1, frameOpen, "") + frame(1, frameAbort, "") + frame(2, frameOpen, "")))
	f.Fuzz(func(t *testing.T, sent []byte) {
		m := NewMux(bytes.NewReader(sent), io.Discard, true)
		for {
			s, err := m.Accept()
			if err != nil {
				break
			}
			got, _ := io.ReadAll(s)
			if len(got) > len(sent) {
				t.Errorf("received %d bytes of %d", len(got), len(sent))
			}
			_ = s.Close()
		}
		if m.count() > MaxStreams {
			t.Errorf("%d streams", m.count())
		}
	})
}
