package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Shutdown ends open streams, also streams of apps, and terminals at once, refuses new ones, and waits for all other requests. When ctx
// ends it closes the connections of the requests that are still in flight and returns an error that names them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.watcher.close()
	if s.options.Edge != nil {
		s.options.Edge.Drain()
	}
	var failed error
	servers := []*http.Server{s.redirectServer, s.publicServer, s.operatorServer, s.metricsServer}
	for _, server := range servers {
		failed = errors.Join(failed, server.Shutdown(ctx))
	}
	hasRequests := failed != nil
	failed = errors.Join(failed, s.watcher.wait(ctx))
	if failed != nil && ctx.Err() != nil {
		failed = s.cutOff(hasRequests)
		for _, server := range servers {
			server.Close()
		}
		s.running.Range(func(_, end any) bool {
			if end, is := end.(func()); is {
				end() // an operation may outlast its connection; see attend
			}
			return true
		})
	}
	s.Flush()
	return failed
}

// maxNamed bounds the requests that an error of Shutdown names. The log has all.
const maxNamed = 10

// cutOff returns an error that names the requests that Shutdown cuts off, and logs each of them. It returns nil if only terminals without
// a client are left: the node names their processes. hasRequests: some connections have an unfinished request.
func (s *Server) cutOff(hasRequests bool) error {
	var names []string
	more := 0
	s.running.Range(func(key, _ any) bool {
		name, fields := describeRunning(key)
		s.log.Warn("cutting off a request at the drain deadline", fields...)
		if len(names) < maxNamed {
			names = append(names, name)
		} else {
			more++
		}
		return true
	})
	switch {
	case len(names) == 0 && !hasRequests:
		return nil
	case len(names) == 0:
		return errors.New("connections with an unfinished request were cut off at the drain deadline")
	case more > 0:
		names = append(names, fmt.Sprintf("and %d others", more))
	}
	return fmt.Errorf("requests in flight were cut off at the drain deadline: %s", strings.Join(names, ", "))
}

// describeRunning returns the name of a key of Server.running, and its attributes in the log.
func describeRunning(key any) (name string, fields []any) {
	switch of := key.(type) {
	case *Response:
		return of.Request.Method + " " + of.routePath(), []any{
			slog.String("method", of.Request.Method), slog.String("route", of.routePath()), slog.String("path", of.loggedPath(of.Request)),
			slog.String("request", of.ID), slog.Duration("duration", time.Since(of.started)),
		}
	case *http.Request: // for an app: its paths may have secrets
		return of.Method + " of the app at " + bareName(of.Host), []any{slog.String("method", of.Method), slog.String("host", bareName(of.Host))}
	default:
		return "", nil
	}
}
