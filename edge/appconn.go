package edge

import (
	"net"
	"sync"
	"time"
)

// answerTime bounds how long the edge reads the response of an app after the app has stopped reading the request.
const answerTime = 10 * time.Second

// appConn is a connection to an app. Close calls closed once.
//
// An app may respond before it has read the whole request, for example that the request is too large, and close the connection (RFC 9112,
// section 9.6). A write to the app then fails, and after a failed write net/http would drop the response, which has arrived and can be read.
// Therefore a failed Write returns only when nothing more can be read, or after answerTime.
type appConn struct {
	net.Conn
	closed func()
	// ended is closed by end: when a read has failed, or when the connection is closed.
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

// CloseWrite closes the sending side towards the app, after the client of an upgraded connection has closed its sending side.
func (c *appConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}
