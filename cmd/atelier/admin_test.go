package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongAnswers has a node whose answers are as long as an operator's command reads, and longer.
func TestLongAnswers(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	items := `{"items":["` + strings.Repeat("x", longestAnswer-len(`{"items":[""]}`)) + `"]}`
	answers := make(chan string, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, <-answers) })}
	go server.Serve(listener)
	defer server.Close()
	for answer, want := range map[string]string{items: "", items + "\n": "the answer of the node to GET /admin/workspaces"} {
		answers <- answer
		var out, errs bytes.Buffer
		code := run([]string{"admin", "workspace", "list", "--data", dir}, console{&out, &errs})
		if want == "" && (code != 0 || out.Len() < longestAnswer/2) || want != "" && (code == 0 || !strings.Contains(errs.String(), want)) {
			t.Errorf("an answer of %d bytes: status %d, %d bytes, %.200s", len(answer), code, out.Len(), errs.String())
		}
	}
}
