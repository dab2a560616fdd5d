package webdav_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/drive/webdav"
)

// TestServeUpload writes uploads to paths that are new, taken, locked, without a parent, and beyond the quota. The headers of the request have
// no effect.
func TestServeUpload(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), activity: newActivity(), quota: quota.Limit{Bytes: 1 << 20}}
	s.start()
	s.do("PUT", "/taken", "before").is(201)
	s.do("MKCOL", "/locked", "").is(201)
	s.lock("/locked", exclusive, 200, "X-Author: api-key:other")
	handler := webdav.New(s.drives, slog.New(slog.DiscardHandler))
	for _, test := range []struct {
		path, body string
		status     int
	}{
		{"new ?%.txt", "content", 201}, {"new ?%.txt", "again", 412}, {"taken", "after", 412}, {"none/file", "x", 409}, {"locked/file", "x", 423},
		{"big", strings.Repeat("x", 2<<20), 507},
	} {
		request := httptest.NewRequest(http.MethodPut, "/upload/token", strings.NewReader(test.body))
		request.Header.Set("If-Match", `"other"`)
		request.Header.Set("Content-Range", "bytes 5-6/7")
		recorder := httptest.NewRecorder()
		if err := handler.ServeUpload(recorder, request, "/upload", test.path, accessOf(request)); err != nil || recorder.Code != test.status {
			t.Errorf("%s: %d %s, %v, want %d", test.path, recorder.Code, recorder.Body, err, test.status)
		}
	}
	for path, want := range map[string]string{"new ?%.txt": "content", "taken": "before"} {
		if got, err := os.ReadFile(s.files(path)); string(got) != want {
			t.Errorf("%s has %q, %v, want %q", path, got, err, want)
		}
	}
}
