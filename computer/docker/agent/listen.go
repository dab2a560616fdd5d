package agent

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// listen listens on a port of the loopback interface until the standard input ends, and opens a stream of a Mux for each
// connection.
func listen(s streams, port string) int {
	// The server's connection is this process's alone.
	if err := protect(); err != nil {
		return s.fail(err.Error())
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		s.writeLine(Unreachable, err)
		return failed
	}
	defer l.Close()
	self, err := readProcess(os.Getpid())
	if err != nil {
		return s.fail(err.Error())
	}
	s.writeLine(Started, fmt.Sprintf("%d %v", l.Addr().(*net.TCPAddr).Port, Identity{self.pid, self.started}))
	m := NewMux(s.in, s.out, false)
	go func() {
		<-m.Done()
		_ = l.Close()
	}()
	if err := accept(l, m); err != nil {
		return s.fail(err.Error())
	}
	return 0
}

// accept opens a stream for each connection until the Mux ends. At most MaxStreams are open.
func accept(l net.Listener, m *Mux) error {
	slots := make(chan struct{}, MaxStreams)
	for {
		select {
		case slots <- struct{}{}:
		case <-m.Done():
			return nil
		}
		conn, err := l.Accept()
		if isClosed(m.Done()) {
			return nil
		}
		if err != nil {
			return err
		}
		stream, err := m.Open()
		if err != nil {
			return err
		}
		go func() {
			defer func() { <-slots }()
			relay(conn.(*net.TCPConn), stream)
		}()
	}
}

// linger limits the time in which a connection receives the bytes that the server wrote before it closed the stream.
const linger = 10 * time.Second

// relay copies between a connection and a stream until both directions have ended.
func relay(conn *net.TCPConn, s *Stream) {
	defer s.Close()
	defer conn.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-s.Aborted():
			_ = conn.SetDeadline(time.Now().Add(linger))
		case <-done:
		}
	}()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(s, conn)
		_ = s.CloseWrite()
	}()
	if _, err := io.Copy(conn, s); err != nil {
		_, _ = io.Copy(io.Discard, s) // the server may still write, and learns the end of the connection from its other direction
	}
	if isClosed(s.Aborted()) {
		_ = conn.Close()
	} else {
		_ = conn.CloseWrite()
	}
	<-sent
}
