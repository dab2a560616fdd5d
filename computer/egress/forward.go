package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// acceptPause is the pause after a connection could not be accepted, for example because the node has no free file descriptor.
const acceptPause = 100 * time.Millisecond

// serveProxy forwards the connections to a listener of the computer to the proxy, and only there. The computer sends the proxy's
// protocol itself, so the proxy decides on the destinations.
func (c *computer) serveProxy(file *os.File) error {
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("the file is not a listener: %w", err)
	}
	listener, isTCP := l.(*net.TCPListener)
	if !isTCP {
		l.Close()
		return fmt.Errorf("the file is a listener of the network %s, not of TCP", l.Addr().Network())
	}
	if !c.link(func() { listener.Close() }) {
		return context.Cause(c.running)
	}
	c.start(func() {
		for {
			conn, err := listener.AcceptTCP()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				c.egress.warnings.Do(func() {
					c.log.Warn("a connection of a computer to the proxy could not be accepted", "error", err)
				})
				retry.Pause(c.running, acceptPause)
			default:
				c.forward(socket{conn})
			}
		}
	})
	return nil
}

// forward starts to copy between a connection of the computer and the proxy. It resets the connection if the computer has too many, or
// if the proxy cannot be reached.
func (c *computer) forward(inner socket) {
	release, reason := c.admit("proxy", netip.AddrPort{})
	if reason != allowed {
		inner.abort()
		return
	}
	go func() {
		defer release()
		conn, err := c.egress.dialer.DialContext(c.running, "tcp", c.egress.mode.proxy)
		if err != nil {
			if c.running.Err() == nil {
				c.egress.metrics.failed.WithLabelValues("proxy").Inc()
				c.egress.warnings.Do(func() {
					c.log.Warn("the proxy of computers cannot be reached", "proxy", c.egress.mode.proxy, "error", err)
				})
			}
			inner.abort()
			return
		}
		c.relay(inner, socket{conn.(*net.TCPConn)})
	}()
}
