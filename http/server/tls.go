package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/atelier-run/atelier/limit"
	"github.com/atelier-run/atelier/retry"
)

// alpnChallenge is the protocol of the handshakes of an authority that validates a name (RFC 8737). They have no requests.
const alpnChallenge = "acme-tls/1"

// http2Protocol is the protocol of the handshakes that lead to HTTP/2 (RFC 9113, section 3.1).
const http2Protocol = "h2"

// maxHandshakes is the greatest number of TLS handshakes in progress. Further connections wait in the kernel.
const maxHandshakes = 1024

// maxClientHandshakes is the greatest number of TLS handshakes in progress with one client. Its further connections are closed, so that
// a client that begins none does not keep the others waiting.
const maxClientHandshakes = maxHandshakes / 8

// ServeTLS serves the public routes and the hosts of apps over HTTPS, with HTTP/1.1 and HTTP/2. The configuration chooses the
// certificate. It returns nil after Shutdown.
func (s *Server) ServeTLS(l net.Listener, config *tls.Config) error {
	config = config.Clone()
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	for _, protocol := range []string{"http/1.1", http2Protocol} {
		if !slices.Contains(config.NextProtos, protocol) {
			config.NextProtos = slices.Insert(config.NextProtos, 0, protocol)
		}
	}
	return untilClosed(s.publicServer.Serve(newTLSListener(l, config, s)))
}

// ServeRedirects serves plain HTTP beside HTTPS: the probes, and for every other request a redirect to the same address over HTTPS.
// Requests for other names of the server are redirected to its public URL, and requests for unknown host names are refused. challenges, if not
// nil, returns a handler that answers the requests of a certificate authority, and passes on all others. It is called once, and returns nil after
// Shutdown.
func (s *Server) ServeRedirects(l net.Listener, challenges func(http.Handler) http.Handler) error {
	redirects := http.Handler(http.HandlerFunc(s.redirect))
	if challenges != nil {
		redirects = challenges(redirects)
	}
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case isProbe(r.URL.Path):
			s.handle(s.router, w, r)
		default:
			if c := connectionOf(r.Context()); c != nil && c.heads != nil {
				c.heads.endHead()
			}
			redirects.ServeHTTP(w, r)
		}
	})
	s.redirectServer.Handler = plain
	return untilClosed(s.redirectServer.Serve(headListener{l, s}))
}

func isProbe(path string) bool { return path == "/healthz" || path == "/readyz" }

// redirect answers a plain request with its address over HTTPS. The status keeps the method and the body of the request.
func (s *Server) redirect(w http.ResponseWriter, r *http.Request) {
	host := s.options.PublicURL.Host
	switch e := s.options.Edge; {
	case e != nil && e.Serves(r):
		host = withPort(hostname(r.Host), s.options.PublicURL.Port())
	case !s.hosts.serve(r.Host):
		s.handle(s.misdirected, w, r)
		return
	}
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") { // OPTIONS *
		path = "/"
	}
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	// The value begins with a scheme and a host that the server knows, so no request can lead anywhere else.
	w.Header().Set("Location", "https://"+host+path)
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusPermanentRedirect)
}

// hostname returns a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// withPort returns a host with a port, or without one if it is empty.
func withPort(host, port string) string {
	if port == "" {
		return host
	}
	return net.JoinHostPort(host, port)
}

// An Edge serves the hosts of apps. Its ServeHTTP finds Strict-Transport-Security among the headers of the response if the connection is
// secure, and sends it unless the app sends its own.
type Edge interface {
	http.Handler
	// Serves reports whether the Host of a request, which may have a port, is the host of an app, or would be if the app existed. It is
	// called for every request before anything else, and reads nothing but the host and the address of the client.
	Serves(r *http.Request) bool
	// Drain ends the streams of events, and streams that begin afterwards. Shutdown calls it before it waits for the requests in flight.
	Drain()
}

// serveEdge passes a request to the edge, within the limits on connections. The edge bounds the time of the request itself, because a
// stream or a connection that was upgraded may last.
func (s *Server) serveEdge(w http.ResponseWriter, r *http.Request) {
	c := connectionOf(r.Context())
	if c != nil && c.heads != nil {
		c.heads.endHead()
	}
	if c != nil && c.isOverLimit {
		s.handle(s.overloaded, w, r)
		return
	}
	if strict := s.strictTransportOf(c); strict != nil {
		w.Header()["Strict-Transport-Security"] = strict
	}
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Time{}) // both fail only for writers that have none
	control.SetReadDeadline(time.Time{})
	upgraded := &upgradable{ResponseWriter: w}
	defer func() {
		if upgraded.hijacked && c != nil {
			s.connections.release(c) // net/http does not report its end
		}
	}()
	s.running.Store(r, nil)
	defer s.running.Delete(r)
	s.options.Edge.ServeHTTP(upgraded, r)
}

// strictTransportOf returns the value of Strict-Transport-Security for the responses on a connection; nil: none, because the server has not
// carried out the handshake, or the operator wants none. It speaks of the host alone, and not of the hosts below it, which may be others'.
func (s *Server) strictTransportOf(c *connection) []string {
	if c == nil || !c.isSecure {
		return nil
	}
	return s.strictTransport
}

// upgradable records that the connection of a response has left net/http.
type upgradable struct {
	http.ResponseWriter
	hijacked bool
}

// Unwrap lets http.ResponseController find the methods of the response.
func (u *upgradable) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Hijack implements http.Hijacker.
func (u *upgradable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffers, err := http.NewResponseController(u.ResponseWriter).Hijack()
	u.hijacked = err == nil
	return c, buffers, err
}

// Flush implements http.Flusher.
func (u *upgradable) Flush() { _ = http.NewResponseController(u.ResponseWriter).Flush() }

// A tlsListener carries out the handshakes of its connections before it returns them, concurrently: net/http would do so too, but
// only for connections that it knows to be TLS, and connections of HTTP/1.1 are wrapped to bound their heads.
type tlsListener struct {
	net.Listener
	config *tls.Config
	s      *Server
	ready  chan net.Conn
	// slots has an element for each handshake in progress.
	slots chan struct{}
	// clients counts the handshakes in progress with each client.
	clients limit.ClientCounters
	// running ends when the listener is closed or fails. failed is set before.
	running context.Context
	end     context.CancelCauseFunc
	closing sync.Once
}

func newTLSListener(l net.Listener, config *tls.Config, s *Server) *tlsListener {
	t := &tlsListener{
		Listener: l, config: config, s: s, ready: make(chan net.Conn), slots: make(chan struct{}, maxHandshakes),
		clients: limit.NewClientCounters(),
	}
	t.running, t.end = context.WithCancelCause(context.Background())
	go t.accept()
	return t
}

// acceptPause is the pause after a temporary failure of accept.
const acceptPause = 50 * time.Millisecond

// accept accepts connections until the listener is closed. A temporary failure, such as the limit of open files, passes.
func (t *tlsListener) accept() {
	for {
		select {
		case t.slots <- struct{}{}:
		case <-t.running.Done():
			return
		}
		c, err := t.Listener.Accept()
		if err != nil {
			<-t.slots
			if temporary, is := err.(interface{ Temporary() bool }); is && temporary.Temporary() && retry.Pause(t.running, acceptPause) {
				continue
			}
			t.end(err)
			return
		}
		counted, ok := t.admit(c)
		if !ok {
			t.s.metrics.handshakes.WithLabelValues("failed").Inc()
			c.Close()
			<-t.slots
			continue
		}
		go t.handshake(c, counted)
	}
}

// admit counts a handshake against the client, until the result is released. It reports false if the client has too many in
// progress. Trusted proxies, which have the connections of many clients, and peers without an address have no limit.
func (t *tlsListener) admit(c net.Conn) (counted limit.Counted, ok bool) {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil || limit.IsWithin(peer.Addr().Unmap(), t.s.options.TrustedProxies) {
		return limit.Counted{}, true
	}
	return t.clients.Acquire(limit.Client{Address: peer.Addr()}, maxClientHandshakes)
}

// handshake carries out the handshake of a connection, and passes the connection to Accept.
func (t *tlsListener) handshake(raw net.Conn, counted limit.Counted) {
	defer func() { <-t.slots }()
	defer counted.Release()
	ctx, cancel := context.WithTimeout(t.running, t.s.options.Limits.HeaderTime)
	defer cancel()
	c := tls.Server(raw, t.config)
	if err := c.HandshakeContext(ctx); err != nil {
		t.s.metrics.handshakes.WithLabelValues("failed").Inc()
		raw.Close()
		return
	}
	var accepted net.Conn = c
	switch c.ConnectionState().NegotiatedProtocol {
	case alpnChallenge:
		t.s.metrics.handshakes.WithLabelValues("challenge").Inc()
		c.Close()
		return
	case http2Protocol:
	default:
		accepted = newHeadConn(c, t.s)
	}
	t.s.metrics.handshakes.WithLabelValues("ok").Inc()
	select {
	case t.ready <- accepted:
	case <-t.running.Done():
		c.Close()
	}
}

// Accept implements net.Listener.
func (t *tlsListener) Accept() (net.Conn, error) {
	select {
	case c := <-t.ready:
		return c, nil
	case <-t.running.Done():
		return nil, context.Cause(t.running)
	}
}

// Close implements net.Listener.
func (t *tlsListener) Close() (err error) {
	t.closing.Do(func() {
		t.end(net.ErrClosed)
		err = t.Listener.Close()
	})
	return err
}
