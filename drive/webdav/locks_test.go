package webdav_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/webdav"
)

const (
	exclusive = `<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype><owner>me</owner></lockinfo>`
	shared    = `<lockinfo xmlns="DAV:"><lockscope><shared/></lockscope><locktype><write/></locktype></lockinfo>`
	stranger  = "X-Author: api-key:stranger"
)

// lock sends a LOCK request and returns the token in angle brackets.
func (s *site) lock(path, body string, status int, headers ...string) string {
	s.t.Helper()
	return s.do("LOCK", path, body, headers...).is(status).header.Get("Lock-Token")
}

func TestLocksSurviveRestart(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	token := s.lock("/a", exclusive, 200, "Timeout: Second-600")
	s.stop()
	s.start()
	s.do("PUT", "/a", "2").is(423).says("lock-token-submitted", prefix+"/a")
	s.do("PUT", "/a", "2", "If: ("+token+")").is(204)
	s.do("PROPFIND", "/a", "", "Depth: 0").is(207).says(strings.Trim(token, "<>"), "<D:owner>me</D:owner>", "Second-")
	// The response has the remaining time after the lock was written to disk, which may take a while.
	renewed := s.do("LOCK", "/a", "", "If: ("+token+")", "Timeout: Second-60").is(200).body
	if !regexp.MustCompile(`>Second-([1-9]|[1-5][0-9]|60)<`).MatchString(renewed) {
		t.Errorf("the renewed lock has another timeout than 60 seconds: %s", renewed)
	}
	s.do("UNLOCK", "/a", "", "Lock-Token: "+token).is(204)
	s.stop()
	s.start()
	s.do("PUT", "/a", "3").is(204)
	s.do("UNLOCK", "/a", "", "Lock-Token: "+token).is(409).says("lock-token-matches-request-uri")
}

func TestLockTokenWorksOnlyForItsCreator(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	token := s.lock("/a", exclusive, 200)
	s.do("PUT", "/a", "2", "If: ("+token+")", stranger).is(423)
	s.do("UNLOCK", "/a", "", "Lock-Token: "+token, stranger).is(403)
	s.do("LOCK", "/a", "", "If: ("+token+")", stranger).is(403)
	s.do("GET", "/a", "", stranger).is(200)
	s.do("COPY", "/a", "", "Destination: "+prefix+"/b", stranger).is(201)
	s.do("COPY", "/b", "", "Destination: "+prefix+"/a", stranger).is(423)
	s.do("PROPPATCH", "/a", `<propertyupdate xmlns="DAV:"><set><prop><m xmlns="urn:x"/></prop></set></propertyupdate>`, stranger).is(423)
}

func TestFolderLocks(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	s.do("PUT", "/d/a", "1").is(201)
	flat := s.lock("/d", exclusive, 200, "Depth: 0")
	s.do("PUT", "/d/a", "2", stranger).is(204)
	s.do("PUT", "/d/new", "2", stranger).is(423)
	s.do("DELETE", "/d/a", "", stranger).is(423)
	s.do("UNLOCK", "/d", "", "Lock-Token: "+flat).is(204)

	deep := s.lock("/d", exclusive, 200)
	s.do("PUT", "/d/a", "3", stranger).is(423)
	s.do("LOCK", "/d/a", exclusive, stranger).is(423).says("no-conflicting-lock")
	s.do("LOCK", "/", exclusive, "Depth: infinity").is(207).says("423 Locked", prefix+"/d/<", "424 Failed Dependency", prefix+"/<")
	s.do("PUT", "/d/a", "3", "If: <"+s.url("/d/")+"> ("+deep+")").is(204)
	s.do("UNLOCK", "/d/a", "", "Lock-Token: "+deep).is(204)

	inner := s.lock("/d/a", exclusive, 200)
	s.do("DELETE", "/d", "").is(423).says(prefix + "/d/a")
	s.do("MOVE", "/d", "", "Destination: "+prefix+"/e").is(423)
	s.do("DELETE", "/d", "", "If: <"+s.url("/d/a")+"> ("+inner+")").is(204)
	s.do("MKCOL", "/d", "").is(201)
	s.do("PUT", "/d/a", "4", stranger).is(201)
}

func TestSharedLocks(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	mine := s.lock("/a", shared, 200)
	s.lock("/a", shared, 200, stranger)
	s.do("LOCK", "/a", exclusive).is(423)
	s.do("PUT", "/a", "2").is(423)
	s.do("PUT", "/a", "2", "If: ("+mine+")").is(204)
	s.do("PUT", "/a", "2", "If: ("+mine+" [\"other\"])").is(412)
}

func TestLockOfNewPathCreatesFile(t *testing.T) {
	s := serve(t)
	s.lock("/new", exclusive, 201)
	s.do("LOCK", "/none/new", exclusive).is(409)
	s.do("LOCK", "/folder/", exclusive).is(404)
	s.do("PUT", "/new", "x", stranger).is(423)
	s.rows("create file new")
}

func TestLockLimits(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	for range 512 {
		s.lock("/a", shared, 200)
	}
	s.do("LOCK", "/a", shared).is(409).says("limit_reached")
	s.do("LOCK", "/new", exclusive).is(409).says("limit_reached")
	s.do("GET", "/new", "").is(404) // a lock that is refused creates no file
	s.do("LOCK", "/b", strings.Replace(exclusive, "me", strings.Repeat("x", 3<<10), 1)).is(400)
}

// TestLocksExpire calls the handler without a network, on synctest's clock.
func TestLocksExpire(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		drives, err := drive.New(drive.Options{Dir: dir, Asker: &drivetest.Activity{}, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer drives.Close()
		if err := drives.Provision(t.Context(), workspace); err != nil {
			t.Fatal(err)
		}
		handler := webdav.New(drives, quiet)
		do := func(method, body string, headers ...string) int {
			request := httptest.NewRequest(method, prefix+"/a", strings.NewReader(body))
			for _, header := range headers {
				name, value, _ := strings.Cut(header, ": ")
				request.Header.Set(name, value)
			}
			recorder := httptest.NewRecorder()
			handler.ServeDrive(recorder, request, prefix, accessOf(request))
			return recorder.Code
		}
		for _, step := range []struct {
			pause  time.Duration
			status int
			method string
			body   string
			header string
		}{
			{0, http.StatusCreated, "LOCK", exclusive, "Timeout: Second-30"},
			{29 * time.Second, http.StatusLocked, "PUT", "1", stranger},
			{2 * time.Second, http.StatusNoContent, "PUT", "2", stranger},
			{0, http.StatusOK, "LOCK", exclusive, "Timeout: Infinite, Second-4100000000"},
			{59 * time.Minute, http.StatusLocked, "PUT", "3", stranger},
			{2 * time.Minute, http.StatusNoContent, "PUT", "4", stranger},
		} {
			time.Sleep(step.pause)
			if status := do(step.method, step.body, step.header); status != step.status {
				t.Errorf("%s after %v: %d, want %d", step.method, step.pause, status, step.status)
			}
		}
	})
}

// TestLocksSurviveEviction verifies that locks stay in force after the drive was evicted and opened again.
func TestLocksSurviveEviction(t *testing.T) {
	const workspaces = 12
	quiet := slog.New(slog.DiscardHandler)
	drives, err := drive.New(drive.Options{
		Dir: t.TempDir(), Asker: &drivetest.Activity{}, Log: quiet, Descriptors: drive.MinDescriptors,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer drives.Close()
	handler := webdav.New(drives, quiet)
	do := func(id int, method, body string, headers ...string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(method, prefix+"/a", strings.NewReader(body))
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			request.Header.Set(name, value)
		}
		recorder := httptest.NewRecorder()
		access := accessOf(request)
		access.WorkspaceID = fmt.Sprintf("ws_%d", id)
		if err := handler.ServeDrive(recorder, request, prefix, access); err != nil {
			t.Fatal(err)
		}
		return recorder
	}
	for id := range workspaces {
		if err := drives.Provision(t.Context(), fmt.Sprintf("ws_%d", id)); err != nil {
			t.Fatal(err)
		}
	}
	token := do(0, "LOCK", exclusive).Header().Get("Lock-Token")
	for id := 1; id < workspaces; id++ {
		if status := do(id, "PUT", "1").Code; status != 201 {
			t.Fatalf("PUT in workspace %d: got %d, want 201", id, status)
		}
	}
	if status := do(0, "PUT", "1", stranger).Code; status != 423 {
		t.Errorf("PUT without the token: got %d, want 423", status)
	}
	if status := do(0, "PUT", "1", "If: ("+token+")").Code; status != 204 {
		t.Errorf("PUT with the token: got %d, want 204", status)
	}
}
