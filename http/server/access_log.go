package server

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/atelier-run/atelier/answer"
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

// loggedPath returns the path for the log: the route's if it has a token as a variable, and else the request's, which is redacted outside
// drives.
func (w *Response) loggedPath(r *http.Request) string {
	switch {
	case strings.Contains(w.routePath(), "{token}"):
		return w.routePath()
	case w.isDriveRequest():
		return answer.ClipPath(r.URL.EscapedPath())
	}
	return answer.RedactPath(r.URL.EscapedPath())
}
