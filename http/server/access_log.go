package server

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// logAccess logs a request that has ended: at ERROR if the server failed, at DEBUG for probes, which supervisors and
// Prometheus send all the time, and else at INFO. Attributes that are unknown are left out. It logs no query, no header, and
// no secret in a path.
func (s *Server) logAccess(w *Response, r *http.Request, elapsed time.Duration) {
	level, detail := slog.LevelInfo, ""
	if w.Err != nil {
		detail = internalDetail(w.Err)
	}
	switch {
	case detail != "" && (w.status >= http.StatusInternalServerError || r.Context().Err() == nil): // otherwise the client may have gone
		level = slog.LevelError
	case w.operation != nil && w.operation.Scope == ScopeProbe:
		level = slog.LevelDebug
	}
	if !s.log.Enabled(r.Context(), level) {
		return
	}
	fields := make([]slog.Attr, 0, 12)
	fields = append(fields, slog.String("method", r.Method), slog.String("route", w.routePath()),
		slog.String("path", w.loggedPath(r)), slog.Int("status", w.status), slog.Duration("duration", elapsed),
		slog.Int64("bytes", w.bytes), slog.String("request", w.ID))
	if address := clientAddress(r, s.options.TrustedProxies); address.IsValid() { // invalid on the operators' Unix socket
		fields = append(fields, slog.String("client", address.String()))
	}
	if w.caller != nil {
		fields = append(fields, slog.String("user", w.caller.Principal.GetUserId()),
			slog.String("credential", w.caller.Principal.GetCredentialId()))
	}
	if w.workspace != nil {
		fields = append(fields, slog.String("workspace", w.workspace.ID))
	}
	if detail != "" {
		fields = append(fields, slog.String("error", detail))
	}
	s.log.LogAttrs(r.Context(), level, "request", fields...)
}

// routePath returns the path of the request's route, or "none" if no route matched.
func (w *Response) routePath() string {
	if w.operation == nil {
		return "none"
	}
	return w.operation.Path
}

// maxLoggedPath bounds the path in a log line, in bytes.
const maxLoggedPath = 1024

// secretLike matches text that may be a secret: secrets have 40 characters, ids 26.
var secretLike = regexp.MustCompile(`[A-Za-z0-9]{32,}`)

// loggedPath returns the path for the log: the route's if it has a token as a variable, and else the request's. Outside
// drives, each text that is long enough to be a secret is replaced by "…".
func (w *Response) loggedPath(r *http.Request) string {
	path := r.URL.EscapedPath()
	switch {
	case strings.Contains(w.routePath(), "{token}"):
		return w.routePath()
	case !w.isDriveRequest():
		path = secretLike.ReplaceAllLiteralString(path, "…")
	}
	if len(path) > maxLoggedPath {
		path = path[:maxLoggedPath] + "…"
	}
	return path
}
