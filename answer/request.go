package answer

import (
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"

	"github.com/atelier-run/atelier/entity"
)

// RequestID returns the X-Request-Id of a request if it is safe to log, or else a new id from newID.
func RequestID(r *http.Request, newID func(prefix string) string) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && entity.IsRequestID(given[0]) {
		return given[0]
	}
	return newID("req_")
}

// maxLoggedPath bounds the path in a log line, in bytes.
const maxLoggedPath = 1024

// secretLike matches text that may be a secret: secrets of the platform have 40 characters, ids 26.
var secretLike = regexp.MustCompile(`[A-Za-z0-9]{32,}`)

// RedactPath returns an escaped path for a log: each text that is long enough to be a secret is replaced by "…", and the path is clipped.
func RedactPath(path string) string { return ClipPath(secretLike.ReplaceAllLiteralString(path, "…")) }

// ClipPath returns the start of a path that has no secret, short enough for a log.
func ClipPath(path string) string {
	if len(path) > maxLoggedPath {
		return path[:maxLoggedPath] + "…"
	}
	return path
}

// ReportPanic logs the value that a deferred function has recovered from a panic, with the stack. It returns false, and logs nothing, if
// there was no panic, or if the handler has aborted its response on purpose with http.ErrAbortHandler.
func ReportPanic(log *slog.Logger, message, requestID string, recovered any) bool {
	if recovered == nil || recovered == http.ErrAbortHandler {
		return false
	}
	log.Error(message, "request", requestID, "panic", recovered, "stack", string(debug.Stack()))
	return true
}
