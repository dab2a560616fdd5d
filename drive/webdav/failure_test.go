package webdav

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/atelier-run/atelier/entity"
)

// TestFailures verifies the answer to an error of each code. A code of package entity that a drive does not show is answered as an
// internal error.
func TestFailures(t *testing.T) {
	shown := map[entity.Code]int{
		"already_exists": 412, "broken_upload": 400, "finite_depth": 403, "forbidden": 403, "insufficient_storage": 507, "invalid_range": 416,
		"invalid_request": 400, "is_folder": 405, "limit_reached": 409, "linked_path": 409, "lock_conflict": 423, "lock_token_mismatch": 403,
		"locked": 423, "method_not_allowed": 405, "no_parent": 409, "no_such_lock": 409, "not_found": 404, "other_server": 502,
		"paths_overlap": 403, "payload_too_large": 413, "precondition_failed": 412, "rate_limited": 429, "unavailable": 503,
		"unsupported_media_type": 415, "workspace_closed": 403, "workspace_suspended": 403,
	}
	hidden := []entity.Code{
		"", "already_member", "anchor_conflict", "billing_user", "cwd_conflict", "device_in_use", "domain_cleanup_pending", "domain_not_configured",
		"domain_occupied", "email_taken", "final_owner", "hostname_in_use", "internal", "invalid_cursor", "invalid_cwd", "invitation_consumed",
		"invitation_expired", "invitation_revoked", "link_invalid", "misdirected_request", "no_default_session", "no_pending_question",
		"path_in_use", "port_in_use", "reconcile_failed", "request_id_reused", "slug_taken", "turn_taken", "unauthorized", "unknown", "upload_ended",
	}
	elements := map[entity.Code]string{
		"locked": "lock-token-submitted", "lock_conflict": "no-conflicting-lock", "finite_depth": "propfind-finite-depth",
		"no_such_lock": "lock-token-matches-request-uri",
	}
	for code, status := range shown {
		body := `{"error":"` + string(code) + `","message":"why"}` + "\n"
		if element := elements[code]; element != "" {
			body = xmlHead + `<D:error xmlns:D="DAV:"><D:` + element + `></D:` + element + `></D:error>`
		}
		checkFailure(t, entity.Errorf(code, "why"), status, body)
	}
	internal := `{"error":"internal","message":"internal error; the request's id is req_12345"}` + "\n"
	for _, code := range hidden {
		checkFailure(t, entity.Errorf(code, "why"), 500, internal)
	}
	checkFailure(t, errors.New("why"), 500, internal)
}

func checkFailure(t *testing.T, err error, status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	w.Header().Set("X-Request-Id", "req_12345")
	c := &call{Handler: &Handler{log: slog.New(slog.DiscardHandler)}, w: w, r: httptest.NewRequest("GET", "/", nil)}
	c.writeError(err)
	if w.Code != status || w.Body.String() != body {
		t.Errorf("%v: %d %s, want %d %s", err, w.Code, w.Body, status, body)
	}
	allow, retry := w.Header().Get("Allow") != "", w.Header().Get("Retry-After")
	if allow != (status == 405) || (retry == "1") != (status == 503) {
		t.Errorf("%v: Allow %v, Retry-After %q", err, allow, retry)
	}
}
