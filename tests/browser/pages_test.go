package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/cmd/node"
	atelier "github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/browser"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
	"github.com/atelier-run/atelier/tests/place"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// longest limits waits that measure nothing. A test that waits longer has failed.
const longest = 5 * time.Minute

// TestPages runs pages.mjs. It needs Chromium, Node.js and the packages that npm ci installs in this folder.
func TestPages(t *testing.T) {
	chromium := findChromium(t)
	s := newSite(t)
	alice, carol := s.person("alice", "Alice Liddell"), s.person("carol", "Carol")
	s.workspace(alice, "wonderland", "Wonderland")
	s.workspace(carol, "choir", "The Tuesday choir")
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	script := exec.CommandContext(ctx, "node", "pages.mjs", s.scene(map[string]string{
		"url": s.url, "chromium": chromium, "pictures": os.Getenv("PICTURES"), "link": s.link("alice"), "unused": s.link("carol"),
		"newcomer": s.invite(alice, "wonderland", "bob@example.com"),
		"known":    s.invite(carol, "choir", "alice@example.com"), "mail": s.mail.serve(t),
		"spent": s.url + "/set-password?token=01j0000000000000000000000a." + strings.Repeat("a", 40),
	}))
	if out, err := script.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
}

// findChromium returns the path of Chromium. It skips the test if Chromium, Node.js or the packages are missing.
func findChromium(t *testing.T) string {
	t.Helper()
	place.Take(t)
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		testmachine.Lacks(t, "no chromium")
	}
	if _, err := exec.LookPath("node"); err != nil {
		testmachine.Lacks(t, "no node")
	}
	if _, err := os.Stat("node_modules/playwright-core/package.json"); err != nil {
		testmachine.Lacks(t, "npm ci has not run in tests/browser")
	}
	return chromium
}

// A site is a node with an HTTP listener.
type site struct {
	*testing.T
	url  string
	node *node.Node
	mail mailbox
}

// A mailbox holds the links that were mailed to each address until they are read.
type mailbox map[string]chan string

func newMailbox(addresses ...string) mailbox {
	m := mailbox{}
	for _, address := range addresses {
		m[address] = make(chan string, 10)
	}
	return m
}

func (m mailbox) Send(_ context.Context, to, _, text string) error {
	_, link, _ := strings.Cut(text, ":\n\n")
	link, _, _ = strings.Cut(link, "\n")
	m[to] <- link
	return nil
}

// serve starts an HTTP server. A request for an address as the path waits for the next link to that address and returns it.
func (m mailbox) serve(t *testing.T) (url string) {
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case link := <-m[strings.TrimPrefix(r.URL.Path, "/")]:
			fmt.Fprint(w, link)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(live.Close)
	return live.URL + "/"
}

// startUnavailableProvider starts an identity provider that answers every request with 503.
func startUnavailableProvider(t *testing.T) (issuer string) {
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(live.Close)
	return live.URL
}

func newSite(t *testing.T) *site {
	front := nodetest.Listen(t)
	mail := newMailbox("alice@example.com", "bob@example.com")
	n := nodetest.Start(t, node.Start, node.Options{
		Dir: t.TempDir(), HTTP: atelier.Options{
			Options: server.Options{PublicURL: front.PublicURL(), Limits: server.Limits{RequestTime: longest}},
			Mail:    mail,
			OIDC:    &browser.OIDC{Issuer: startUnavailableProvider(t), ClientID: "atelier", Name: "Example"},
		},
		Journal: persistence.Options{FS: vfs.NewMem(), CacheBytes: 4 << 20, Partitions: 4}, PendingLimit: longest,
	})
	front.Serve(n.Server)
	return &site{t, front.URL, n, mail}
}

// scene returns the argument of the script: values as JSON.
func (s *site) scene(of map[string]string) string {
	text, err := json.Marshal(of)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// send sends a POST request to a handler and fails the test unless the response is 201.
func (s *site) send(h http.Handler, key, path string, body map[string]string) *httptest.ResponseRecorder {
	s.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(s.scene(body)))
	r.Host = strings.TrimPrefix(s.url, "http://")
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		s.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w
}

// person creates a person and returns their key.
func (s *site) person(name, displayName string) string {
	s.Helper()
	return nodetest.NewPerson(s, s.node.Server.Admin(), name+"@example.com", displayName).Key
}

// link creates a link that lets a person set a password.
func (s *site) link(name string) string {
	s.Helper()
	var made struct{ PasswordLink string }
	answer := s.send(s.node.Server.Admin(), "", "/admin/links", map[string]string{"email": name + "@example.com"})
	if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil {
		s.Fatal(err)
	}
	return made.PasswordLink
}

func (s *site) workspace(key, slug, name string) {
	s.Helper()
	s.send(s.node.Server, key, "/v1/workspaces", map[string]string{"slug": slug, "name": name})
}

func (s *site) invite(key, slug, address string) string {
	s.Helper()
	s.send(s.node.Server, key, "/v1/ws/"+slug+"/invites", map[string]string{"email": address, "role": "editor"})
	return <-s.mail[address]
}
