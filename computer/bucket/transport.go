package bucket

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// connectTime limits the time to connect, and the time of the TLS handshake after it.
	connectTime = 8 * time.Second
	// stallTime limits the wait for the headers of a response after the request was sent, for the next bytes of a body, and
	// for the server to accept written bytes.
	stallTime = time.Minute
	// assemblyTime limits the wait for the response to a request that completes a multipart upload: the server may copy all
	// parts first.
	assemblyTime = 15 * time.Minute
)

// transport is an http.RoundTripper with a time limit for each step of a request.
type transport struct {
	// regular sends all requests but the completion of a multipart upload, which assembling sends.
	regular, assembling *http.Transport
}

func newTransport() *transport {
	dialer := &net.Dialer{Timeout: connectTime, KeepAlive: 30 * time.Second}
	regular := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &deadlineConn{conn}, nil
		},
		TLSHandshakeTimeout: connectTime, ResponseHeaderTimeout: stallTime, ExpectContinueTimeout: time.Second,
		IdleConnTimeout: stallTime, MaxIdleConnsPerHost: concurrentParts + 1, DisableCompression: true,
	}
	assembling := regular.Clone()
	assembling.ResponseHeaderTimeout = assemblyTime
	return &transport{regular, assembling}
}

// RoundTrip implements http.RoundTripper. A POST request with the parameter uploadId completes a multipart upload.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
		return t.assembling.RoundTrip(r)
	}
	return t.regular.RoundTrip(r)
}

// close closes the idle connections.
func (t *transport) close() {
	t.regular.CloseIdleConnections()
	t.assembling.CloseIdleConnections()
}

// deadlineConn is a connection that fails a write after stallTime, so that a server that stops reading cannot block an upload.
type deadlineConn struct{ net.Conn }

// Write writes p. It fails if the server has not accepted all of p within stallTime.
func (c *deadlineConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
