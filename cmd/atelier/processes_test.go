package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/api/apitest"
)

// startNode starts a node with a workspace, demo, and returns its address and its owner's key. Turns of sessions do not run.
func startNode(dir string, computers api.Computers) (n *node.Node, address, key string, err error) {
	if n, err = node.Start(context.Background(), node.Options{Dir: dir, HoldTurns: true, HTTP: http.Options{Computers: computers}}); err != nil {
		return nil, "", "", err
	}
	live := httptest.NewServer(n.Server)
	r, w := httptest.NewRequest("POST", "/admin/users", strings.NewReader(`{"email":"ada@example.org","name":"Ada"}`)), httptest.NewRecorder()
	r.Header.Set("Content-Type", "application/json")
	n.Server.Admin().ServeHTTP(w, r)
	var owner struct{ Key string }
	if err := json.Unmarshal(w.Body.Bytes(), &owner); err != nil {
		return n, "", "", err
	}
	c, err := client.New(live.URL, owner.Key)
	if err == nil {
		_, err = c.CreateWorkspace(context.Background(), client.NewWorkspace{Slug: "demo", Name: "Demo"})
	}
	return n, live.URL, owner.Key, err
}

func stopNode(n *node.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return n.Stop(ctx)
}

// serveProcesses starts a node with processes of this machine as its computers, and sets ATELIER_URL and ATELIER_KEY.
func serveProcesses(ts *testscript.TestScript, _ bool, _ []string) {
	t, _ := ts.Value(testKey{}).(*testing.T)
	n, address, key, err := startNode(ts.MkAbs("node"), apitest.NewComputers(t))
	if n != nil {
		ts.Defer(func() { ts.Check(stopNode(n)) })
	}
	ts.Check(err)
	ts.Setenv("ATELIER_URL", address)
	ts.Setenv(keyVariable, key)
}

type testKey struct{}

// condition has the condition of scripts that run real computers: root, if the tests run as root. In CI they run in any case, and
// fail if they cannot.
func condition(name string) (bool, error) {
	if name == "root" {
		return os.Geteuid() == 0 || os.Getenv("CI") != "", nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

func TestEscapes(t *testing.T) {
	for _, test := range []struct {
		in          []string
		want        string
		isDetaching bool
	}{
		{[]string{"ls\r"}, "ls\r", false},
		{[]string{"~."}, "", true},
		{[]string{"~", ".", "x"}, "", true},
		{[]string{"ls\r~.x"}, "ls\r", true},
		{[]string{"ls\n", "~", "."}, "ls\n", true},
		{[]string{"ls ~."}, "ls ~.", false},
		{[]string{"~~."}, "~.", false},
		{[]string{"~/bin\r"}, "~/bin\r", false},
		{[]string{"~\r~."}, "~\r", true},
		{[]string{"~~\r~~\r"}, "~\r~\r", false},
	} {
		f, got, isDetaching := escapeFilter{isLineStart: true}, "", false
		for _, part := range test.in {
			var keys []byte
			if keys, isDetaching = f.filter([]byte(part)); isDetaching {
				got += string(keys)
				break
			}
			got += string(keys)
		}
		if got != test.want || isDetaching != test.isDetaching {
			t.Errorf("%q: %q, %v", test.in, got, isDetaching)
		}
	}
}
