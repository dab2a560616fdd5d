package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSiteHandler(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(dir, "index.html"):         "home",
		filepath.Join(dir, "404.html"):           "missing",
		filepath.Join(dir, "docs", "index.html"): "docs",
		filepath.Join(dir, "docs", "a b.txt"):    "text",
		filepath.Join(dir, "empty", "x.txt"):     "x",
		filepath.Join(dir, ".env"):               "secret",
		filepath.Join(dir, ".git", "config"):     "secret",
		filepath.Join(outside, "secret"):         "secret",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for path, want := range map[string]string{
		"/":                     "200 home",
		"/docs/":                "200 docs",
		"/docs":                 "301",
		"/docs/a%20b.txt":       "200 text",
		"/empty/":               "404 missing",
		"/nothing":              "404 missing",
		"/.env":                 "404 missing",
		"/.git/config":          "404 missing",
		"/link":                 "404 missing",
		"/../secret":            "404 missing",
		"/docs/..%2f..%2fx.txt": "404 missing",
	} {
		w := httptest.NewRecorder()
		siteHandler(root.FS()).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		status, body, _ := strings.Cut(want, " ")
		if got := w.Result().Status[:3]; got != status || body != "" && w.Body.String() != body {
			t.Errorf("%s is answered %s %q, want %s", path, got, w.Body, want)
		}
	}
}
