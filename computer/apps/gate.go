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
	// maxGateConns is the number of connections of a process to its gate. Further ones wait until one of them ends.
	maxGateConns = 256
)

// A gate serves the API at an address inside the computer of an app, which the app reaches even if the computer has no network. It
// gives no rights: its requests are authenticated by their keys, as all others.
type gate struct {
	url    string
	server *http.Server
	// ended is closed when the gate accepts no further connections: it was closed, or its network has ended.
	ended chan struct{}
}

// The ports of gates in networks of processes: the first one, or the second if the app uses the first. They are outside of the range
// from which Linux chooses ports.
const firstGatePort, secondGatePort = 61001, 61002

// gatePort returns the port of the gate in the own network of a process that uses a port.
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

// isOpen reports whether the gate accepts connections. A nil gate, that of a process without one, counts as open.
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

// onlyAPI passes the requests of the API on. Other pages of the server are for browsers, and the headers by which proxies name their
// client are not believed.
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
