package http_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestQueriesOnDrives reads a drive with parameters that generic clients add. Changes refuse them.
func TestQueriesOnDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	for method, want := range map[string]int{
		"GET": 200, "HEAD": 200, "OPTIONS": 200, "PROPFIND": 207, "PUT": 400, "PROPPATCH": 400, "DELETE": 400, "MKCOL": 400, "COPY": 400, "MOVE": 400, "LOCK": 400,
		"UNLOCK": 400,
	} {
		got := sc.drive(method, "/drive/a.txt?service=git-upload-pack&service=again&%zz", "owner", "", "Depth", "0")
		if got.Code != want || want == 400 && !strings.Contains(got.Body.String(), "unknown query parameter") {
			t.Errorf("%s: %d %s, want %d", method, got.Code, got.Body, want)
		}
	}
	if got := sc.drive("GET", "/drive/a.txt", "owner", ""); got.Body.String() != "a" {
		t.Errorf("the file is %d %q", got.Code, got.Body)
	}
}

// TestCloneFromDrive clones a bare repository that lies on a drive. Git adds a parameter to the URL of the list of references.
func TestCloneFromDrive(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "--quiet", "work")
	git("-C", "work", "commit", "--quiet", "--allow-empty", "--message", "first")
	git("clone", "--quiet", "--bare", "work", "bare.git")
	git("-C", "bare.git", "update-server-info")
	root := filepath.Join(dir, "bare.git")
	if err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		name := "/drive/bare.git" + strings.TrimPrefix(path, root)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if got := sc.drive("MKCOL", name, "owner", ""); got.Code != 201 {
				t.Errorf("%s: %d %s", name, got.Code, got.Body)
			}
		default:
			content, err := os.ReadFile(path)
			if got := sc.drive("PUT", name, "owner", string(content)); err != nil || got.Code != 201 {
				t.Errorf("%s: %v, %d %s", name, err, got.Code, got.Body)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "127.0.0.1"
		sc.stage.node.Server.ServeHTTP(w, r)
	}))
	defer server.Close()
	git("-c", "http.extraHeader=Authorization: Bearer "+sc.people["owner"].key, "clone", "--quiet", server.URL+"/v1/ws/"+sc.slug+"/drive/bare.git", "cloned")
	git("-C", "cloned", "rev-parse", "--verify", "HEAD^{commit}")
}
