package webdav_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/entity"
)

// TestConfirmRefusesEveryChange lets Confirm refuse the access to each method that changes the drive. ServeDrive must return that
// error without a response, and nothing may change.
func TestConfirmRefusesEveryChange(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	s.do("MKCOL", "/d", "").is(201)
	rows := []string{"create file a", "create folder d"}
	handler := webdav.New(s.drives, slog.New(slog.DiscardHandler))
	refusal := entity.Errorf(entity.Unauthorized, "no longer")
	for _, change := range []struct{ method, path, body, headers string }{
		{"PUT", "/a", "2", ""},
		{"PUT", "/b", "2", ""},
		{"DELETE", "/a", "", ""},
		{"DELETE", "/d", "", ""},
		{"MKCOL", "/e", "", ""},
		{"COPY", "/a", "", "Destination: " + prefix + "/b"},
		{"COPY", "/d", "", "Destination: " + prefix + "/e"},
		{"MOVE", "/a", "", "Destination: " + prefix + "/b"},
		{"PROPPATCH", "/a", propertyUpdate(`<m xmlns="urn:x"/>`), ""},
		{"LOCK", "/a", exclusive, ""},
		{"LOCK", "/b", exclusive, ""},
	} {
		confirmed := 0
		request := httptest.NewRequest(change.method, prefix+change.path, strings.NewReader(change.body))
		if name, value, given := strings.Cut(change.headers, ": "); given {
			request.Header.Set(name, value)
		}
		access := accessOf(request)
		access.Confirm = func() error { confirmed++; return refusal }
		recorder := httptest.NewRecorder()
		err := handler.ServeDrive(recorder, request, prefix, access)
		if err != error(refusal) || confirmed != 1 || recorder.Body.Len() > 0 {
			t.Errorf("%s %s: %v, confirmed %d times, answered %s", change.method, change.path, err, confirmed, recorder.Body)
		}
	}
	s.rows(rows...)
	s.do("PROPFIND", "/", "", "Depth: 1").is(207)
	s.do("PUT", "/a", "3").is(204) // no lock was acquired
	for _, name := range s.staged() {
		if !isTrash(name) {
			t.Errorf("%s remains in the staging folder", name)
		}
	}
}
