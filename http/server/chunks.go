package server

import (
	"net"
	"net/http"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// chunkWriter writes chunks of an answer (RFC 9112, section 7.1) to the connection without waiting, which net/http cannot:
// one goroutine can then write to many connections in turn. It writes past net/http's buffers, and so only while they are
// empty: after a flush, and before net/http writes again. net/http writes the head and the last chunk.
//
// A chunk that the socket's buffer takes in part is to be finished before anything else is written.
type chunkWriter struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	// attempt writes parts, sets written, and does not wait. It is made once, since each would be an allocation.
	attempt func(fd uintptr) (done bool)
	parts   [3][]byte
	head    [20]byte
	written int

	// begun is set from a write in part until its caller has been told how it ended.
	begun bool
	// rest is the part of the chunk that is not written yet. Its bytes are the caller's.
	rest net.Buffers
}

var endOfChunk = []byte("\r\n")

// newChunkWriter returns nil where the answer has no chunks, as in HTTP/1.0, or the connection is not known to be TCP.
func newChunkWriter(r *http.Request) *chunkWriter {
	of := connectionOf(r.Context())
	if of == nil || !r.ProtoAtLeast(1, 1) {
		return nil
	}
	conn, ok := of.Conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	c := &chunkWriter{conn: conn, raw: raw}
	c.attempt = func(fd uintptr) bool {
		for {
			n, err := unix.Writev(int(fd), c.parts[:])
			if err == unix.EINTR {
				continue
			}
			c.written = max(n, 0) // after another error finish, or the next write of net/http, meets it again
			return true
		}
	}
	return c
}

// tryWrite writes a chunk without waiting. It returns how many bytes it wrote, and whether they were all.
func (c *chunkWriter) tryWrite(data []byte) (written int, all bool) {
	head := append(strconv.AppendInt(c.head[:0], int64(len(data)), 16), endOfChunk...)
	c.parts, c.written = [3][]byte{head, data, endOfChunk}, 0
	c.raw.Write(c.attempt)
	written = c.written
	all = written == len(head)+len(data)+len(endOfChunk)
	if written > 0 && !all {
		c.begun = true
		skip := written
		for _, part := range c.parts {
			from := min(skip, len(part))
			skip -= from
			if from < len(part) {
				c.rest = append(c.rest, part[from:])
			}
		}
	}
	c.parts = [3][]byte{}
	return written, all
}

// finish writes the rest of a chunk, and waits for the client as the connection's deadline allows.
func (c *chunkWriter) finish() (written int64, err error) {
	return c.rest.WriteTo(c.conn)
}

// close finishes the last chunk, so that net/http can end the answer; where that fails it closes the connection.
func (c *chunkWriter) close() {
	if len(c.rest) == 0 {
		return
	}
	if _, err := c.finish(); err != nil {
		c.rest = nil
		c.conn.Close()
	}
}
