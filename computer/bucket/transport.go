package bucket

import (
	"context"
	"net"
	"net/http"
	"time"
)

const (
	// connectTime bounds a connection, and the agreement on TLS after it.
	connectTime = 8 * time.Second
	// stallTime bounds the waiting for an answer once a request is sent, for the next bytes of an answer, and for a server
	// to take bytes.
	stallTime = time.Minute
	// assemblyTime bounds the waiting for a server that puts the parts of an upload together.
	assemblyTime = 15 * time.Minute
)

// transport sends requests with bounds for each step.
type transport struct{ quick, assembling *http.Transport }

func newTransport() *transport {
	dialer := &net.Dialer{Timeout: connectTime, KeepAlive: 30 * time.Second}
	quick := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &connection{conn}, nil
		},
		TLSHandshakeTimeout: connectTime, ResponseHeaderTimeout: stallTime, ExpectContinueTimeout: time.Second,
		IdleConnTimeout: stallTime, MaxIdleConnsPerHost: uploads + 1, DisableCompression: true,
	}
	assembling := quick.Clone()
	assembling.ResponseHeaderTimeout = assemblyTime
	return &transport{quick, assembling}
}

// RoundTrip is of http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
		return t.assembling.RoundTrip(r)
	}
	return t.quick.RoundTrip(r)
}

func (t *transport) close() {
	t.quick.CloseIdleConnections()
	t.assembling.CloseIdleConnections()
}

// connection gives each write a deadline: a server that takes no more bytes does not hold an upload.
type connection struct{ net.Conn }

func (c *connection) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
