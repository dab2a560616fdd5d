package edge

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// logAccess logs a request that has ended, with the attributes of the API's access log, and with the app and the visit. It logs no query, no
// header, and no secret in a path.
func (e *Edge) logAccess(x *exchange) {
	r, level, detail := x.request, slog.LevelInfo, ""
	if x.failure != nil && shown(x.failure).Code == entity.Internal {
		level, detail = slog.LevelError, fmt.Sprint(x.failure)
	}
	if !e.log.Enabled(r.Context(), level) {
		return
	}
	path := answer.RedactPath(r.URL.EscapedPath())
	name, _ := hostName(r.Host)
	fields := make([]slog.Attr, 0, 14)
	fields = append(fields, slog.String("method", r.Method), slog.String("host", name), slog.String("path", path), slog.Int("status", x.status),
		slog.Duration("duration", time.Since(x.started)), slog.Int64("bytes", x.bytes.Load()), slog.String("request", x.id),
		slog.String("outcome", outcomeNames[x.outcome]))
	if x.address = limit.ClientAddress(r, e.o.TrustedProxies); x.address.IsValid() {
		fields = append(fields, slog.String("client", x.address.String()))
	}
	if x.target != nil {
		fields = append(fields, slog.String("workspace", x.target.workspaceID), slog.String("app", x.target.appID))
	}
	if x.visitor != nil {
		fields = append(fields, slog.String("user", x.visitor.GetUserId()), slog.String("visit", x.visitID))
	}
	if detail != "" {
		fields = append(fields, slog.String("error", detail))
	}
	e.log.LogAttrs(r.Context(), level, "app request", fields...)
}
