package http_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestQueriesOnDrives reads a drive with the parameter that Git adds. Nothing else takes a query.
func TestQueriesOnDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	for method, want := range map[string]int{
		"GET": 200, "HEAD": 200, "OPTIONS": 400, "PROPFIND": 400, "PUT": 400, "PROPPATCH": 400, "DELETE": 400, "MKCOL": 400, "COPY": 400, "MOVE": 400, "LOCK": 400,
		"UNLOCK": 400,
	} {
		for query, refusal := range map[string]string{
			"service=git-upload-pack": "", "service=a&service=b": "is repeated", "x=1": "unknown query parameter", "%zz": "malformed",
		} {
			expected := want
			if refusal != "" {
				expected = 400
			}
			got := sc.drive(method, "/drive/a.txt?"+query, "owner", "", "Depth", "0")
			if got.Code != expected || method == "GET" && !strings.Contains(got.Body.String(), refusal) {
				t.Errorf("%s with %s: %d %s, want %d %s", method, query, got.Code, got.Body, expected, refusal)
			}
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
		environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
		command.Env = append(environment, "HOME="+dir, "NO_PROXY=*", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
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
