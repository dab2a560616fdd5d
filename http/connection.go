package http

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// connection is what a request knows of the connection that it came over.
type connection struct {
	net.Conn
	// heads bounds the heads of the connection's requests; nil: nothing does.
	heads *headConn
	// over tells that the connection is one too many.
	over bool
}

type connectionKey struct{}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

func (s *Server) newListening(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: s.options.Limits.HeaderTime,
		IdleTimeout:       s.options.Limits.IdleTime,
		// Renewed for each request; streams and transfers replace it as they go.
		WriteTimeout:   s.options.Limits.RequestTime + s.options.Limits.StallTime,
		MaxHeaderBytes: maxHead,
		// OPTIONS * is answered as all else is.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// enter sees a connection before it is counted. One beyond the limit is kept to be told so; when those become many too,
// they are closed at once.
func (s *Server) enter(ctx context.Context, c net.Conn) context.Context {
	limit, open := int64(s.options.Limits.Connections), s.connections.Load()
	if open >= limit+limit/8+16 {
		c.Close()
	}
	of := &connection{Conn: c, over: open >= limit}
	if heads, ok := c.(*headConn); ok {
		of.Conn, of.heads = heads.Conn, heads
	}
	return context.WithValue(ctx, connectionKey{}, of)
}

func (s *Server) count(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.connections.Add(1)
	case http.StateIdle:
		if heads, ok := c.(*headConn); ok {
			heads.beginHead()
		}
	case http.StateClosed, http.StateHijacked:
		s.connections.Add(-1)
	}
}

// streamBuffer bounds what the kernel holds for a client that has stopped reading, in bytes.
const streamBuffer = 64 << 10

// forStream fits a connection to a stream.
func (c *connection) forStream() {
	if c == nil {
		return
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(streamBuffer)
	}
}

// deadline extends a connection's deadline while bytes move, and seldom: it is asked before each of them. So bytes have
// seven eighths of stall at least.
type deadline struct {
	set   func(time.Time) error
	stall time.Duration
	last  time.Time
}

func (d *deadline) extend() {
	if now := time.Now(); now.Sub(d.last) > d.stall/8 {
		d.last = now
		d.set(now.Add(d.stall))
	}
}
