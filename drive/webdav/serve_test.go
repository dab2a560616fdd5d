package webdav_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	workspace = "ws_1"
	prefix    = "/v1/ws/acme/drive"
)

// A site is a drive that is served over loopback, with a model of its activity.
type site struct {
	t        *testing.T
	dir      string
	activity *drivetest.Activity
	drives   *drive.Drives
	server   *httptest.Server
	quota    quota.Limit
	reserve  quota.Usage
	room     func(workspaceID string) error
}

// serve starts a site with an empty drive until the end of the test.
func serve(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), activity: newActivity()}
	s.start()
	return s
}

func newActivity() *drivetest.Activity { return &drivetest.Activity{} }

// start opens the site's folder, as a new process does, and serves it.
func (s *site) start() {
	s.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	drives, err := drive.New(drive.Options{Dir: s.dir, Asker: s.activity, Log: quiet, Quota: s.quota, Reserve: s.reserve, Room: s.room})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := drives.Provision(s.t.Context(), workspace); err != nil {
		s.t.Fatal(err)
	}
	handler := webdav.New(drives, quiet)
	s.drives = drives
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeDrive(w, r, prefix, accessOf(r))
	}))
	s.t.Cleanup(s.stop)
}

func (s *site) stop() {
	s.server.Close()
	if err := s.drives.Close(); err != nil {
		s.t.Error(err)
	}
}

// accessOf returns the access for a request. The caller is a person, or with X-Author the named API key, which belongs to no
// person. X-Breaks-Locks sets BreaksLocks.
func accessOf(r *http.Request) entity.DriveAccess {
	p := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, CredentialId: "1", UserId: "usr_1"}
	if key := r.Header.Get("X-Author"); key != "" {
		p.CredentialId, p.UserId = strings.TrimPrefix(key, "api-key:"), ""
	}
	return entity.DriveAccess{WorkspaceID: workspace, Principal: p, BreaksLocks: r.Header.Get("X-Breaks-Locks") != ""}
}

func (s *site) url(path string) string { return s.server.URL + prefix + path }

func (s *site) files(path string) string { return filepath.Join(s.dir, workspace, "files", path) }

// do sends a request. Headers have the form "Name: value".
func (s *site) do(method, path, body string, headers ...string) *answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url(path), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if strings.HasPrefix(value, prefix) && name == "Destination" {
			value = s.server.URL + value
		}
		request.Header.Set(name, value)
	}
	response, err := s.server.Client().Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return &answer{t: s.t, status: response.StatusCode, header: response.Header, body: string(content), request: method + " " + path}
}

type answer struct {
	t       *testing.T
	request string
	status  int
	header  http.Header
	body    string
}

func (a *answer) is(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("%s: status %d, want %d; %s", a.request, a.status, status, a.body)
	}
	return a
}

func (a *answer) says(parts ...string) *answer {
	a.t.Helper()
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			a.t.Errorf("%s: the answer lacks %q: %s", a.request, part, a.body)
		}
	}
	return a
}

// rows compares all rows of the activity, one operation in a string, and fails if an intent is open.
func (s *site) rows(want ...string) {
	s.t.Helper()
	var got []string
	for _, op := range s.activity.Rows() {
		got = append(got, row(op))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		s.t.Errorf("rows:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if open := s.activity.Intents(); len(open) > 0 {
		s.t.Errorf("%d intents are open", len(open))
	}
}

func row(op *activityv1.Operation) string {
	var b strings.Builder
	b.WriteString(strings.ToLower(strings.TrimPrefix(op.GetKind().String(), "KIND_")))
	if op.GetEntryKind() != activityv1.EntryKind_ENTRY_KIND_UNSPECIFIED {
		b.WriteString(" " + strings.ToLower(strings.TrimPrefix(op.GetEntryKind().String(), "ENTRY_KIND_")))
	}
	b.WriteString(" " + op.GetPath())
	if from := op.GetFromPath(); from != "" {
		b.WriteString(" from " + from)
	}
	if count := op.GetCount(); count > 0 {
		fmt.Fprintf(&b, " count %d", count)
	}
	if tree := op.GetTree(); tree != "" {
		b.WriteString(" tree " + tree)
	}
	if tree := op.GetFromTree(); tree != "" {
		b.WriteString(" from-tree " + tree)
	}
	return b.String()
}

// content reads a file of the drive from the disk.
func (s *site) content(path string) string {
	s.t.Helper()
	content, err := os.ReadFile(s.files(path))
	if err != nil {
		s.t.Error(err)
	}
	return string(content)
}

// staged returns the names in the drive's staging folder.
func (s *site) staged() []string {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, workspace, "tmp"))
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// eventually waits until a condition is true.
func (s *site) eventually(condition func() bool) {
	s.t.Helper()
	deadline := time.After(3 * time.Minute) // only a test that fails waits so long
	for !condition() {
		select {
		case <-deadline:
			s.t.Fatal("the condition did not become true")
		case <-time.After(time.Millisecond):
		}
	}
}

func pipe(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// totalAlloc returns the bytes that were ever allocated, freed ones included.
func totalAlloc() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

var errLimit = entity.Errorf(entity.LimitReached, "a limit is reached")
