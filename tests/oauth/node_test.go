package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/getkin/kin-openapi/openapi3"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	atelier "github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/browser"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/persistence"
)

// longest limits waits that measure nothing. A test that waits longer has failed.
const longest = 5 * time.Minute

// A world is a node with a fixed address, which stays the same after a crash, and a clock that advance moves.
type world struct {
	*testing.T
	url   string
	dir   string
	disk  *vfs.MemFS
	node  atomic.Pointer[node.Node]
	ids   atomic.Int64
	mu    sync.Mutex
	now   time.Time
	agent *http.Client
	// provider signs people in beside their passwords; nil: none.
	provider *browser.OIDC
	// limits are the limits of the node.
	limits server.Limits
	// described is the OpenAPI document that the node serves.
	described *openapi3.T
}

// newWorld starts a node. edit changes the world before that, when the node's URL is known.
func newWorld(t *testing.T, edit ...func(*world)) *world {
	w := &world{T: t, dir: t.TempDir(), disk: vfs.NewCrashableMem(), now: time.UnixMilli(1_800_000_000_000), limits: server.Limits{RequestTime: longest}}
	for at := w.dir; ; at = w.disk.PathDir(at) { // the folders of a machine exist before the node starts
		w.durable(at)
		if at == "/" {
			break
		}
	}
	live := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.node.Load().Server.ServeHTTP(rw, r)
	}))
	w.url = live.URL
	w.agent = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, e := range edit {
		e(w)
	}
	w.start()
	w.described = w.document()
	t.Cleanup(func() {
		live.Close()
		w.stop()
	})
	return w
}

func (w *world) durable(dir string) {
	made := w.disk.MkdirAll(dir, 0o750)
	folder, err := w.disk.OpenDir(dir)
	if err := errors.Join(made, err); err != nil {
		w.Fatal(err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) start() {
	w.Helper()
	public, _ := url.Parse(w.url)
	n, err := node.Start(w.Context(), node.Options{
		Dir: w.dir, Clock: w.clock, Wire: true, PendingLimit: longest,
		Journal: persistence.Options{FS: w.disk, CacheBytes: 4 << 20, Partitions: 4},
		HTTP: atelier.Options{
			Options: server.Options{PublicURL: public, Hosts: []string{"example.com"}, NewID: w.newID, Limits: w.limits},
			OIDC:    w.provider,
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.node.Store(n)
}

func (w *world) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := w.node.Load().Stop(ctx); err != nil {
		w.Error(err)
	}
}

// crash stops the node, discards all data that was not synced, and starts another node.
func (w *world) crash() {
	survivor := w.disk.CrashClone(vfs.CrashCloneCfg{})
	w.stop()
	w.disk = survivor
	w.start()
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) newID(prefix string) string { return fmt.Sprintf("%s01j%023d", prefix, w.ids.Add(1)) }

// ask sends a command as the platform and waits for its reactions.
func (w *world) ask(kind, identity string, m proto.Message) proto.Message {
	w.Helper()
	router := w.node.Load().Router
	reply, err := router.Ask(w.Context(), entity.Command{Kind: kind, Identity: identity, Principal: entity.Platform(), Message: m})
	if err == nil {
		err = router.Settle(w.Context(), kind, identity)
	}
	if err != nil {
		w.Fatalf("%T: %v", m, err)
	}
	return reply
}

// A person has a key and a signed-in browser.
type person struct{ id, email, key, cookie string }

func (w *world) person(name string) person {
	w.Helper()
	r := httptest.NewRequest("POST", "/admin/users", strings.NewReader(fmt.Sprintf(`{"email":"%s@example.com","name":"%s"}`, name, name)))
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.node.Load().Server.Admin().ServeHTTP(answer, r)
	var made struct{ UserID, Email, Key string }
	if err := json.Unmarshal(answer.Body.Bytes(), &made); err != nil || made.Key == "" {
		w.Fatalf("%v: %s", err, answer.Body)
	}
	p := person{id: made.UserID, email: made.Email, key: made.Key}
	p.cookie = w.session(p.id)
	return p
}

// session starts a browser session and returns its cookie.
func (w *world) session(userID string) string {
	w.Helper()
	id := w.newID("key_")
	secret := fmt.Sprintf("%s%s", strings.Repeat("a", 30), strings.Repeat(string('a'+rune(w.ids.Load()%26)), 10))
	sum := sha256.Sum256([]byte(secret))
	w.ask(entity.KindUser, userID, &userv1.StartBrowserSession{Session: &userv1.BrowserSession{
		Id: id, SecretSha256: sum[:], CreatedAt: w.clock().UnixMilli(), ExpiresAt: w.clock().Add(100 * 24 * time.Hour).UnixMilli(),
	}})
	return "atelier=atlses_" + strings.TrimPrefix(id, "key_") + "_" + secret
}

func (w *world) workspace(owner person, slug string) string {
	w.Helper()
	status, body := w.api("POST", "/v1/workspaces", owner.key, fmt.Sprintf(`{"slug":%q,"name":%q}`, slug, strings.ToUpper(slug)))
	var made struct{ WorkspaceID string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != 201 {
		w.Fatalf("%d %s", status, body)
	}
	return made.WorkspaceID
}
