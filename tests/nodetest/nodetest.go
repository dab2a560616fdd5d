// Package nodetest runs nodes in the process of a test: it starts and stops a node, serves the node at an address that the node knows before
// it starts, and creates people.
//
// The package does not import package node, so that the tests inside package node can import it.
package nodetest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// Timeout is longer than any step of a test takes on a busy machine. A test that waits longer has failed.
const Timeout = 5 * time.Minute

// A Node is a *node.Node.
type Node interface {
	Stop(ctx context.Context) error
}

// Start starts a node by start, which is node.Start. It stops the node when the test ends.
func Start[N Node, O any](t testing.TB, start func(context.Context, O) (N, error), o O) N {
	t.Helper()
	n, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Stop(t, n) })
	return n
}

// Stop stops a node. It fails the test, without ending it, if a part of the node fails.
func Stop(t testing.TB, n Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// A Front is an HTTP server that has its address before its node starts, and keeps the address when the test starts another node.
type Front struct {
	*httptest.Server
	handler atomic.Pointer[http.Handler]
}

// Listen starts a Front, which closes when the test ends. A node that the test starts after Listen stops before the Front closes.
func Listen(t testing.TB) *Front {
	f := &Front{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*f.handler.Load()).ServeHTTP(w, r) }))
	t.Cleanup(f.Close)
	return f
}

// Serve makes a handler answer the requests, usually the server of a node.
func (f *Front) Serve(h http.Handler) { f.handler.Store(&h) }

// PublicURL returns the address of the Front.
func (f *Front) PublicURL() *url.URL {
	return &url.URL{Scheme: "http", Host: f.Listener.Addr().String()}
}

// A Person is an account. Key is an API key of the account.
type Person struct{ UserID, Email, Key string }

// NewPerson creates an account by the operators' API of a node.
func NewPerson(t testing.TB, operators http.Handler, email, name string) (p Person) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"email": email, "name": name})
	if err != nil {
		t.Fatal(err)
	}
	r, w := httptest.NewRequest("POST", "/admin/users", strings.NewReader(string(body))), httptest.NewRecorder()
	r.Header.Set("Content-Type", "application/json")
	operators.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusCreated || p.Key == "" {
		t.Fatalf("POST /admin/users: %d %s", w.Code, w.Body)
	}
	return p
}

// Principal returns the principal of the person's key.
func (p Person) Principal() *wirev1.Principal {
	_, id, _ := strings.Cut(p.Key, "_")
	return &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, CredentialId: "key_" + id[:entity.ULIDLength], UserId: p.UserID,
	}
}

// RequireIsolation skips the test if the computer of a workspace cannot isolate processes on this machine.
func RequireIsolation(t testing.TB, computers *computer.Fleet, workspaceID string) {
	t.Helper()
	running, err := computers.Launch(t.Context(), computer.Launch{
		WorkspaceID: workspaceID, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_EXEC, Argv: []string{"true"},
	})
	if entity.HasCode(err, entity.Forbidden) {
		testmachine.Lacks(t, "this machine cannot isolate processes: "+err.Error())
	}
	if err == nil {
		_, err = running.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A Log is a writer for several goroutines that keeps the text.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// String returns the text written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
