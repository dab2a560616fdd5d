package agent

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

// PortSize is the number of bytes of the port, big endian, at the beginning of each Stream to "dial". The server sends it.
const PortSize = 2

// MaxAnswer is the maximum length of the first line that "dial" sends over a Stream. The line is empty if the connection is made.
// Otherwise it has the reason of the failure, and the Stream ends after it.
const MaxAnswer = 1 << 10

// connectTime limits the attempt to connect to a port: a program with a full queue of connections refuses no further connection.
const connectTime = 10 * time.Second

// dial connects each Stream of a Mux that the server opens with a port of the loopback interface, until the standard input ends.
func dial(s streams) int {
	// The server's connection is this process's alone.
	if err := protect(); err != nil {
		return s.fail(err.Error())
	}
	self, err := readProcess(os.Getpid())
	if err != nil {
		return s.fail(err.Error())
	}
	s.writeLine(Started, Identity{self.pid, self.started})
	m := NewMux(s.in, s.out, true)
	for {
		stream, err := m.Accept()
		if err != nil {
			return 0
		}
		go connect(stream)
	}
}

// connect connects a stream with the port that the server names.
func connect(stream *Stream) {
	var port [PortSize]byte
	if _, err := io.ReadFull(stream, port[:]); err != nil {
		_ = stream.Close()
		return
	}
	conn, err := dialLoopback(strconv.Itoa(int(binary.BigEndian.Uint16(port[:]))))
	if err != nil {
		_, _ = fmt.Fprintln(stream, reason(err))
		_ = stream.Close()
		return
	}
	_, _ = fmt.Fprintln(stream) // fails if the server has closed the stream, which relay notices
	relay(conn.(*net.TCPConn), stream)
}

// dialLoopback connects to a port. Servers for development often listen on localhost, which may be ::1 only.
func dialLoopback(port string) (net.Conn, error) {
	d := net.Dialer{Timeout: connectTime}
	conn, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if conn6, err6 := d.Dial("tcp", net.JoinHostPort("::1", port)); err6 == nil {
			return conn6, nil
		}
	}
	return conn, err
}
