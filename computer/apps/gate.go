package apps

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

const (
	gateHeaderTime = 10 * time.Second
	gateIdleTime   = 2 * time.Minute
	maxGateHead    = 60 << 10
)

// A gate serves the API at an address inside the computer of an app, which the app reaches even if the computer has no network. It
// gives no rights: its requests are authenticated by their keys, as all others.
type gate struct {
	url    string
	server *http.Server
}

// openGate opens a gate in the computer of the app.
func (l *loop) openGate(ctx context.Context) (*gate, error) {
	listener, err := l.s.o.Computers.Listen(ctx, l.workspaceID, 0)
	if err != nil {
		return nil, err
	}
	g := &gate{url: "http://" + listener.Addr().String(), server: &http.Server{
		Handler: onlyAPI(l.s.o.API), ReadHeaderTimeout: gateHeaderTime, IdleTimeout: gateIdleTime, MaxHeaderBytes: maxGateHead,
		ErrorLog: slog.NewLogLogger(l.s.o.Log.Handler(), slog.LevelDebug),
	}}
	go func() { _ = g.server.Serve(listener) }() // ends when the gate is closed, or the computer stops
	return g, nil
}

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
