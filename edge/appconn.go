package edge

import (
	"net"
	"sync"
	"time"
)

// answerTime bounds the time for which the response of an app is read after the app has stopped to read the request.
const answerTime = 10 * time.Second

// appConn is a connection to an app. closed is called when it is closed.
//
// An app may answer before it has read the whole request, for example that it is too large, and close the connection (RFC 9112, section
// 9.6). A write then fails, and net/http would drop the response, which has arrived and can be read. Therefore Write returns its error only
// when nothing more can be read, or after answerTime.
type appConn struct {
	net.Conn
	closed func()
	// ended is closed when a read has failed or the connection is closed, by end.
	ended chan struct{}
	end   func()
}

func newAppConn(c net.Conn, closed func()) *appConn {
	ended := make(chan struct{})
	return &appConn{Conn: c, closed: sync.OnceFunc(closed), ended: ended, end: sync.OnceFunc(func() { close(ended) })}
}

// Read implements net.Conn.
func (c *appConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.end()
	}
	return n, err
}

// Write implements net.Conn.
func (c *appConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		timer := time.NewTimer(answerTime)
		defer timer.Stop()
		select {
		case <-c.ended:
		case <-timer.C:
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *appConn) Close() error {
	c.closed()
	c.end()
	return c.Conn.Close()
}

// CloseWrite passes on that the client of an upgraded connection sends no more.
func (c *appConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}
