package webdav_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	onPath := 0
	for ; s.do("LOCK", "/a", shared).status == 200; onPath++ {
	}
	if onPath < 50 || onPath > 100 {
		t.Errorf("a path has %d locks", onPath)
	}
	s.do("LOCK", "/a", shared).is(409).says("limit_reached")
	s.do("LOCK", "/", shared).is(409).says("limit_reached") // a deep lock covers the path as well
	for i := range 512 - onPath {
		s.lock(fmt.Sprintf("/%d", i), exclusive, 201)
	}
	s.do("LOCK", "/0", shared, stranger).is(423)
	s.do("LOCK", "/new", exclusive).is(409).says("limit_reached")
	s.do("GET", "/new", "").is(404) // a lock that is refused creates no file
	s.do("LOCK", "/b", strings.Replace(exclusive, "me", strings.Repeat("x", 3<<10), 1)).is(400)
}

// TestDiscoveryIsBounded lists a folder that as many locks cover as a path can have, with the longest owners.
func TestDiscoveryIsBounded(t *testing.T) {
	const files = 300
	s := serve(t)
	for i := range files {
		if err := os.WriteFile(s.files(fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	body, locks := strings.Replace(shared, "</lockinfo>", "<owner>"+strings.Repeat("x", 2<<10)+"</owner></lockinfo>", 1), 0
	for ; s.do("LOCK", "/", body).status == 200; locks++ {
	}
	before := totalAlloc()
	listed := s.do("PROPFIND", "/", `<propfind xmlns="DAV:"><prop><lockdiscovery/></prop></propfind>`, "Depth: 1").is(207).body
	if got := strings.Count(listed, "<D:activelock>"); got != (files+1)*locks || locks == 0 {
		t.Errorf("%d entries have %d locks, want %d for each", files+1, got, locks)
	}
	if got := strings.Count(listed, "<D:owner>"); got != locks {
		t.Errorf("%d owners are listed for %d locks", got, locks)
	}
	if got := totalAlloc() - before; got > 64<<20 {
		t.Errorf("the request has allocated %d bytes for an answer of %d", got, len(listed))
	}
}

// TestRefreshWritesItsOwnSize refreshes one of many locks, after which the file has grown by a line for each refresh.
func TestRefreshWritesItsOwnSize(t *testing.T) {
	s := serve(t)
	body := strings.Replace(exclusive, "me", strings.Repeat("x", 2<<10), 1)
	const locks, refreshes = 60, 50
	for i := range locks {
		s.lock(fmt.Sprintf("/%d", i), body, 201)
	}
	token := s.lock("/a", exclusive, 201)
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(filepath.Join(s.dir, workspace, "locks.json"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	for range refreshes {
		s.do("LOCK", "/a", "", "If: ("+token+")", "Timeout: Second-600").is(200)
	}
	if grown := size() - before; grown < refreshes || grown > refreshes*256 {
		t.Errorf("%d refreshes wrote %d bytes", refreshes, grown)
	}
	for size() > before {
		s.do("LOCK", "/a", "", "If: ("+token+")", "Timeout: Second-600").is(200)
		if size() > 2*before+64<<10 {
			t.Fatalf("the file has %d bytes for locks of %d", size(), before)
		}
	}
	s.do("UNLOCK", "/0", "", "Lock-Token: "+s.tokenOf("/0")).is(204)
	s.stop()
	s.start()
	s.do("PUT", "/0", "1", stranger).is(204)
	s.do("PUT", "/1", "1", stranger).is(423)
	s.do("PUT", "/a", "1", stranger).is(423)
	s.do("PUT", "/a", "1", "If: ("+token+")").is(204)
}

// tokenOf returns the token of the lock on a path.
func (s *site) tokenOf(path string) string {
	s.t.Helper()
	listed := s.do("PROPFIND", path, "", "Depth: 0").is(207).body
	return "<" + regexp.MustCompile(`urn:uuid:[0-9a-f-]+`).FindString(listed) + ">"
}

// TestLocksSurviveTornFile cuts the file off at each byte of its last change, as a crash does before the change is acknowledged.
func TestLocksSurviveTornFile(t *testing.T) {
	s := serve(t)
	file := filepath.Join(s.dir, workspace, "locks.json")
	s.lock("/a", exclusive, 201)
	acknowledged, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.lock("/b", exclusive, 201)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for length := len(acknowledged); length < len(whole); length += 16 {
		s.stop()
		if err := os.WriteFile(file, whole[:length], 0o600); err != nil {
			t.Fatal(err)
		}
		s.start()
		s.do("PUT", "/a", "1", stranger).is(423)
		s.do("PUT", "/b", "1", stranger).is(204)
		s.do("UNLOCK", "/b", "", "Lock-Token: "+s.lock("/b", exclusive, 200)).is(204)
		s.lock("/c", shared, map[bool]int{true: 201, false: 200}[length == len(acknowledged)])
		s.stop()
		s.start()
		s.do("PUT", "/a", "1", stranger).is(423)
		s.do("PUT", "/c", "1", stranger).is(423)
	}
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

// TestLockEndsWithItsFile has processes remove locked files. The files can be created again by every author, and unlocked by the author of
// the lock.
func TestLockEndsWithItsFile(t *testing.T) {
	s := serve(t)
	const other = "X-Author: api-key:other"
	lockAndRemove := func(path string) (token string) {
		t.Helper()
		token = s.lock(path, exclusive, 201)
		if err := os.Remove(s.files(path)); err != nil {
			t.Fatal(err)
		}
		return token
	}
	lockAndRemove("/put")
	s.do("PUT", "/put", "1", other).is(201)
	s.do("PUT", "/put", "2").is(204)
	lockAndRemove("/folder")
	s.do("MKCOL", "/folder", "", other).is(201)
	s.do("PUT", "/folder/a", "1").is(201)
	lockAndRemove("/copied")
	s.do("COPY", "/put", "", "Destination: "+prefix+"/copied", other).is(201)
	s.do("DELETE", "/copied", "").is(204)
	lockAndRemove("/locked")
	theirs := s.lock("/locked", exclusive, 201, other)
	s.do("PUT", "/locked", "1").is(423)
	s.do("PUT", "/locked", "1", other, "If: ("+theirs+")").is(204)
	lockAndRemove("/folder/b")
	s.do("DELETE", "/folder", "", other).is(204)

	token := lockAndRemove("/again")
	s.do("LOCK", "/again", "", "If: ("+token+")").is(404)
	s.do("PUT", "/again", "1", "If: ("+token+")").is(201)
	s.do("PUT", "/again", "2", other).is(423)
	s.do("UNLOCK", "/again", "", "Lock-Token: "+token).is(204)
	token = lockAndRemove("/unlocked")
	s.do("UNLOCK", "/unlocked", "", "Lock-Token: "+token).is(204)
	s.do("UNLOCK", "/unlocked", "", "Lock-Token: "+token).is(409)
}
