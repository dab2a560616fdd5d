package local_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/tests/race"
)

const secret = "the secret of another workspace"

// A lair is a drive that the server serves. Hostile processes run in its computer. Beside it are the drive of another workspace
// and the files of the server.
type lair struct {
	*enemy
	server *httptest.Server
	other  string
	// hidden are the paths on this machine of files with the secret.
	hidden []string
}

func newLair(t *testing.T) *lair {
	t.Helper()
	drives := realDrives(t, quota.Limit{})
	d, _ := openHost(t, func(o *local.Options) { o.Drives = drives })
	l := &lair{enemy: provision(t, d, drives, "ws_1"), other: provision(t, d, drives, "ws_2").files}
	for _, path := range []string{filepath.Join(l.other, "secret"), filepath.Join(drives.Dir(), "journal"), filepath.Join(t.TempDir(), "secret")} {
		if err := os.WriteFile(path, []byte(secret), 0o644); err != nil {
			t.Fatal(err)
		}
		l.hidden = append(l.hidden, path)
	}
	handler := webdav.New(drives, slog.New(slog.DiscardHandler))
	access := entity.DriveAccess{WorkspaceID: "ws_1", Principal: &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, CredentialId: "1", UserId: "usr_1",
	}}
	l.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeDrive(w, r, "/d", access) }))
	t.Cleanup(l.server.Close)
	return l
}

// do sends a request for a path of the drive. It fails the test if the answer has the secret.
func (l *lair) do(t *testing.T, method, path, body string, headers ...string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, l.server.URL+"/d/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := l.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), secret) || strings.Contains(string(content), "root:") {
		t.Fatalf("%s %s returned %q", method, path, content)
	}
	return response.StatusCode
}

// verify fails the test if a file outside of the drive was changed, or one was added to the other drive.
func (l *lair) verify(t *testing.T) {
	t.Helper()
	for _, path := range l.hidden {
		if content, err := os.ReadFile(path); err != nil || string(content) != secret {
			t.Errorf("%s has %q, %v", path, content, err)
		}
	}
	entries, err := os.ReadDir(l.other)
	if err != nil || len(entries) != 2 {
		t.Errorf("the other drive has %v, %v", entries, err)
	}
}

// TestHostileLinks verifies that a process can neither read files outside of the drive through links, nor make the server follow a
// link out of the drive for reading or writing.
func TestHostileLinks(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	l := newLair(t)
	links := map[string]string{
		"passwd": "/etc/passwd", "above": "../../ws_2/files/secret", "folder": "../../ws_2/files", "root": "/", "environment": "/proc/self/environ",
		"journal": "../../journal", "drives": "../..", "deep": "../../../../../../../../etc/passwd", "self": "self",
	}
	for i, path := range l.hidden {
		links["hidden"+string(rune('0'+i))] = path
		l.refuses("ENOENT", "read", path)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(l.files, name)); err != nil {
			t.Fatal(err)
		}
		if name != "passwd" && name != "root" && name != "environment" && name != "deep" && name != "drives" {
			l.refuses("ENOENT|ELOOP", "read", "/drive/"+name)
		}
	}
	l.settle(t)
	if got := l.run(t, "cat passwd; ls root drives"); strings.Contains(got, "ws_2") || strings.Contains(got, secret) {
		t.Errorf("a process reads %q", got)
	}
	for name := range links {
		for _, path := range []string{name, name + "/secret", name + "/files/secret", name + "/etc/passwd"} {
			if status := l.do(t, "GET", path, ""); status != 404 {
				t.Errorf("GET %s: %d", path, status)
			}
			if path == name {
				continue
			}
			for _, method := range []string{"PUT", "MKCOL", "DELETE"} {
				if status := l.do(t, method, path, "changed"); status < 400 {
					t.Errorf("%s %s: %d", method, path, status)
				}
			}
		}
		l.do(t, "PROPFIND", name, "", "Depth", "1")
		l.do(t, "PROPFIND", "", "", "Depth", "1")
		if status := l.do(t, "COPY", name, "", "Destination", l.server.URL+"/d/copy-"+name); status < 400 {
			if status := l.do(t, "GET", "copy-"+name, ""); status != 404 {
				t.Errorf("GET of a copied link %s: %d", name, status)
			}
		}
		l.do(t, "MOVE", name, "", "Destination", l.server.URL+"/d/moved-"+name)
		l.do(t, "PUT", "moved-"+name, "changed")
		l.do(t, "DELETE", "moved-"+name, "")
		l.do(t, "DELETE", "copy-"+name, "")
		l.verify(t)
	}
	// Hard links and renames do not cross the border of the drive. The programs may be on the same file system.
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	l.refuses("EXDEV|EACCES|EPERM", "link", shell, "/drive/shell")
	l.refuses("EXDEV|EACCES|EPERM", "link", "/etc/passwd", "/drive/passwd-hard")
	l.refuses("EXDEV", "rename", "/drive/attack", "/tmp/attack")
	l.refuses("EACCES|EROFS|EXDEV", "rename", "/drive", "/tmp/drive")
	l.settle(t)
	// A pipe blocks no request.
	l.run(t, "mkfifo pipe")
	if status := l.do(t, "GET", "pipe", ""); status != 404 {
		t.Errorf("GET of a pipe: %d", status)
	}
	if err := l.driver.Stop(t.Context(), "ws_1"); err != nil {
		t.Error(err)
	}
}

// TestHostileRaces has a process exchange a folder and a link out of the drive, while the server reads and writes through it.
func TestHostileRaces(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	l := newLair(t)
	for name, target := range map[string]string{"a": "../../ws_2/files", "b": l.other, "c": "/etc"} {
		swap := l.begin(t, l.attackSpec("swap", "/drive/"+name, target))
		swap.expect(t, "ready")
	}
	if err := errors.Join(os.Mkdir(filepath.Join(l.files, "from"), 0o755), os.WriteFile(filepath.Join(l.files, "from", "secret"), []byte("mine"), 0o644)); err != nil {
		t.Fatal(err)
	}
	through := 0
	for range 10 {
		for _, name := range []string{"a", "b", "c"} {
			for _, request := range [][]string{
				{"GET", name + "/secret"}, {"GET", name + "/passwd"}, {"PUT", name + "/secret"}, {"PUT", name + "/new"}, {"MKCOL", name + "/folder"},
				{"DELETE", name + "/secret"}, {"MOVE", "from", name + "/from"}, {"MOVE", name + "/from", "from"}, {"COPY", "from", name + "/copy"},
				{"COPY", name, "copied"}, {"GET", "copied/secret"}, {"DELETE", "copied"}, {"DELETE", name + "/copy"}, {"PROPFIND", name + "/"},
			} {
				headers := []string{"Depth", "1"}
				if len(request) == 3 {
					headers = []string{"Destination", l.server.URL + "/d/" + request[2]}
				}
				if l.do(t, request[0], request[1], "changed", headers...) < 300 && request[0] == "PUT" {
					through++
				}
			}
		}
	}
	l.verify(t)
	if through == 0 {
		t.Error("no upload found the folder: the test shows nothing")
	}
	t.Logf("%d uploads found the folder", through)
}

// TestHostileNames has the server list and delete files with names that a process has chosen to confuse it.
func TestHostileNames(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	l := newLair(t)
	l.run(t, `mkdir d; cd d; touch "$(printf 'new\nline')" "$(printf 'bad\377')" '..x' '-rf' 'a%2fb' "$(printf 'e\033[31m')"; mkdir 'q"<&'; touch 'q"<&/x'`)
	if status := l.do(t, "PROPFIND", "d", "", "Depth", "1"); status != 207 {
		t.Errorf("PROPFIND: %d", status)
	}
	if status := l.do(t, "DELETE", "d", ""); status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	l.verify(t)
}

var _ local.Drives = (*drive.Drives)(nil)
