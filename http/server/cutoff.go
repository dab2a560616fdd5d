package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// maxNamed bounds the requests that an error of Shutdown names. The log has all.
const maxNamed = 10

// cutOff returns an error that names the requests that Shutdown cuts off, and logs each of them.
func (s *Server) cutOff() error {
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
	case *http.Request: // for an app, whose paths may have secrets
		return of.Method + " of the app at " + bareName(of.Host), []any{slog.String("method", of.Method), slog.String("host", bareName(of.Host))}
	default:
		return "", nil
	}
}
