package apps

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

const (
	gateHeaderTime = 10 * time.Second
	gateIdleTime   = 2 * time.Minute
	maxGateHead    = 60 << 10
	// maxGateConns is the maximum number of connections of a process to its gate. A further connection waits until one of these has ended.
	maxGateConns = 256
)

// A gate serves the API at an address inside the computer of an app. The app reaches the address even if the computer has no network. A gate
// gives no rights: its requests are authenticated by their keys, as requests over the network are.
type gate struct {
	url    string
	server *http.Server
	// ended is closed when the gate accepts no further connections: it was closed, or its network has ended.
	ended chan struct{}
}

// The port of a gate in the network of a process: firstGatePort, or secondGatePort if the app uses firstGatePort. Both are outside of the range
// of the ephemeral ports of Linux.
const firstGatePort, secondGatePort = 61001, 61002

// gatePort returns the port of the gate in the network of a process of an app that uses a port.
func gatePort(used int) int {
	if used == firstGatePort {
		return secondGatePort
	}
	return firstGatePort
}

// serveGate serves the API to an app at a listener.
func (l *loop) serveGate(listener net.Listener) *gate {
	g := &gate{url: gateURL(listener.Addr().String()), ended: make(chan struct{}), server: &http.Server{
		Handler: onlyAPI(l.s.o.API), ReadHeaderTimeout: gateHeaderTime, IdleTimeout: gateIdleTime, MaxHeaderBytes: maxGateHead,
		ErrorLog: slog.NewLogLogger(l.s.o.Log.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(g.ended)
		_ = g.server.Serve(netutil.LimitListener(listener, maxGateConns)) // ends when the gate is closed, or the computer stops
	}()
	return g
}

// isOpen reports whether the gate accepts connections. It returns true for a nil gate, which means that the process has no gate.
func (g *gate) isOpen() bool {
	return g == nil || !isClosed(g.ended)
}

func gateURL(address string) string { return "http://" + address }

// close ends the gate with its connections. The gate may be nil.
func (g *gate) close() {
	if g != nil {
		_ = g.server.Close()
	}
}

// onlyAPI passes requests of the API to api, and answers 404 to all other requests, because the other pages of the server are for browsers. It
// removes the headers in which proxies send the address of their client, because an app is no trusted proxy.
func onlyAPI(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") && r.URL.Path != "/mcp" {
			http.NotFound(w, r)
			return
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip" {
				delete(r.Header, name)
			}
		}
		api.ServeHTTP(w, r)
	})
}
