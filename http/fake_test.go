package http_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/skill"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/oklog/ulid/v2"
)

const (
	alice = "usr_01j0000000000000000000000a"
	acme  = "ws_01j0000000000000000000000w"
)

var secret = bytes.Repeat([]byte{7}, 32)

// fakeEntities answers for all entities. alice is the only member of acme.
type fakeEntities struct {
	mu          sync.Mutex
	credentials map[string]*credentialv1.Credential
	asked       map[string]int
	// before, if it is set, is asked first; with a nil reply the default applies.
	before func(ctx context.Context, c entity.Command) (proto.Message, error)
	// settle is the error of Settle. settled, if it is set, is called before.
	settle  error
	settled func(kind, identity string)
	follow  func(ctx context.Context, s activity.Subscription) error
	drive   func(w nethttp.ResponseWriter, r *nethttp.Request)
	exists  func(id, path string) (bool, error)
}

func newFakeEntities() *fakeEntities {
	return &fakeEntities{credentials: map[string]*credentialv1.Credential{}, asked: map[string]int{}}
}

// key creates an API key of a user.
func (w *fakeEntities) key(userID string) string {
	return w.credential(server.KeyStart, wirev1.CredentialKind_CREDENTIAL_KIND_USER, userID)
}

// session creates the key of a browser session of a user, for the session cookie.
func (w *fakeEntities) session(userID string) string {
	return w.credential(server.SessionStart, wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, userID)
}

func (w *fakeEntities) credential(start string, kind wirev1.CredentialKind, userID string) string {
	id := newID("key_")
	text, hash := keys.New(start, id)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.credentials[id] = &credentialv1.Credential{
		Id: id, Kind: kind, UserId: userID, SecretSha256: hash, CreatedAt: 1,
	}
	return text
}

// change edits the credential of a key.
func (w *fakeEntities) change(key string, edit func(*credentialv1.Credential)) {
	id, _, _ := parseKey(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	c := proto.CloneOf(w.credentials[id])
	edit(c)
	w.credentials[id] = c
	if ulid := strings.TrimPrefix(id, "key_"); c.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_APP {
		c = proto.CloneOf(c)
		c.Id = "app_" + ulid
		w.credentials[c.Id] = c
	}
}

func (w *fakeEntities) count(m proto.Message) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[entity.MessageName(m)]
}

func (w *fakeEntities) Settle(_ context.Context, kind, identity string) error {
	if w.settled != nil {
		w.settled(kind, identity)
	}
	return w.settle
}

func (w *fakeEntities) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	w.mu.Lock()
	w.asked[entity.MessageName(c.Message)]++
	before := w.before
	w.mu.Unlock()
	if before != nil {
		if reply, err := before(ctx, c); reply != nil || err != nil {
			return reply, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	member := c.Principal.GetUserId() == alice
	switch m := c.Message.(type) {
	case *credentialv1.DescribeCredential:
		if found := w.credentials[c.Identity]; found != nil {
			return found, nil
		}
		return &credentialv1.Credential{Id: c.Identity}, nil
	case *slugv1.ResolveSlug:
		if c.Identity == "acme" {
			return &slugv1.Slug{Slug: "acme", WorkspaceId: acme}, nil
		}
		return &slugv1.Slug{Slug: c.Identity}, nil
	case *wirev1.List:
		if m.GetName() == session.SessionList {
			return &wirev1.Page{}, nil
		}
	case *activityv1.Record:
		return &activityv1.Recorded{}, nil
	case *userv1.DescribeStanding:
		return &userv1.Standing{}, nil
	case *userv1.DescribeUser:
		return &userv1.User{Id: c.Identity, Email: "alice@example.com", Workspaces: map[string]int64{acme: 1}}, nil
	case *userv1.ListApiKeys:
		return &userv1.ApiKeyPage{}, nil
	case *workspacev1.DescribeWorkspace:
		return &workspacev1.Description{
			Workspace: &workspacev1.Workspace{Id: acme, Slug: "acme", Name: "Acme", BillingUserId: alice, Status: workspacev1.Status_STATUS_ACTIVE},
			Role:      workspacev1.Role_ROLE_OWNER, Capabilities: []string{"admin", "files:read"},
		}, nil
	case *workspacev1.DescribeInvitation:
		return nil, entity.Errorf(entity.NotFound, "no such invitation")
	case *activityv1.ReadFeed, *activityv1.ReadHistory, *activityv1.ReadSeenBy, *activityv1.ReadLatestWriters, *workspacev1.Authorize:
		if !member {
			return nil, entity.Errorf(entity.NotFound, "no such workspace")
		}
		return activityReply(m), nil
	}
	return &wirev1.Done{}, nil
}

const row = `{"seq":1,"event":{"kind":"write","path":"a.txt","actor":"terminal","at":1}}`

func activityReply(m proto.Message) proto.Message {
	switch m.(type) {
	case *activityv1.ReadSeenBy:
		return &activityv1.SeenBy{}
	case *activityv1.ReadLatestWriters:
		return &activityv1.LatestWriters{}
	case *workspacev1.Authorize:
		return &workspacev1.Authorized{Role: workspacev1.Role_ROLE_OWNER, Capabilities: entity.AllCapabilities()}
	}
	return &activityv1.Page{Items: []byte(row), Next: 1}
}

func (w *fakeEntities) Subscribe(_ context.Context, s activity.Subscription) (func(context.Context) error, error) {
	if s.Principal.GetUserId() != alice {
		return nil, entity.Errorf(entity.NotFound, "no such workspace")
	}
	follow := w.follow
	if follow == nil {
		follow = func(ctx context.Context, s activity.Subscription) error { <-ctx.Done(); return nil }
	}
	return func(ctx context.Context) error { return follow(ctx, s) }, nil
}

func (w *fakeEntities) FollowTimeline(context.Context, entity.TimelineSubscription) (func(context.Context) error, error) {
	return func(ctx context.Context) error { <-ctx.Done(); return nil }, nil
}

func (w *fakeEntities) ResolveFolder(_ context.Context, _, path string) (string, error) {
	return path, nil
}

func (w *fakeEntities) FileSize(context.Context, string, string) (int64, error) { return 0, nil }

func (w *fakeEntities) MakeFolders(context.Context, string, string, entity.DriveAccess) error {
	return nil
}

func (w *fakeEntities) ServeDrive(rw nethttp.ResponseWriter, r *nethttp.Request, prefix string, access entity.DriveAccess) error {
	if w.drive != nil {
		w.drive(rw, r)
		if ended, is := errors.AsType[*entity.Error](context.Cause(r.Context())); is {
			return ended
		}
		return nil
	}
	path, actor := strings.TrimPrefix(r.URL.EscapedPath(), prefix), entity.Actor(access.Principal)
	fmt.Fprintf(rw, "%s %s %s %s %s", r.Method, access.WorkspaceID, path, actor[:12], access.Principal.GetUserId())
	return nil
}

func (w *fakeEntities) ServeUpload(rw nethttp.ResponseWriter, r *nethttp.Request, _, _ string, access entity.DriveAccess) error {
	return w.ServeDrive(rw, r, "", access)
}

func (w *fakeEntities) ServeAbove(rw nethttp.ResponseWriter, r *nethttp.Request, path string, _ func() ([]string, error)) error {
	fmt.Fprintf(rw, "%s above %q", r.Method, path)
	return nil
}

func (w *fakeEntities) Exists(_ context.Context, id, path string) (bool, error) {
	if w.exists != nil {
		return w.exists(id, path)
	}
	return true, nil
}

func (w *fakeEntities) List(context.Context, string, string) ([]skill.Skill, error) { return nil, nil }

func (w *fakeEntities) Agent(context.Context, string, string) (skill.Agent, error) {
	return skill.Agent{Name: "Notes", Description: "Writes notes."}, nil
}

// hosts are the host names in the requests of tests: the name of httptest.NewRequest, and the names in requests that tests write
// themselves.
var hosts = []string{"example.com", "atelier", "x", "a"}

func (w *fakeEntities) server(t testing.TB, edit ...func(*http.Options)) *http.Server {
	t.Helper()
	o := http.Options{Options: server.Options{Asker: w, Secret: secret, Hosts: hosts}, Streams: w, Drive: w, Skills: w, Sessions: fakeSessions()}
	for _, e := range edit {
		e(&o)
	}
	s, err := http.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fakeSessions() api.SessionOptions {
	return api.SessionOptions{Timelines: newFakeEntities(), Folders: newFakeEntities()}
}

// request sends a request to a handler and checks the response against the OpenAPI document. headers are names and values in
// turn.
func request(t testing.TB, h nethttp.Handler, method, target, key, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	r.Host = "localhost" // example.com could be the domain of an app, which the edge would look up
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if s, ok := h.(*http.Server); ok {
		s.Flush()
	}
	conforms(t, r, []byte(body), w.Result())
	return w
}

func expect(t testing.TB, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status || body != "" && !strings.Contains(w.Body.String(), body) {
		t.Errorf("%d %s, want %d %s", w.Code, w.Body, status, body)
	}
}

// clock is a clock that advance sets forward.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.UnixMilli(1_800_000_000_000)} }

// newID returns a new id with a prefix.
func newID(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }

// keyStarts are the starts of keys.
var keyStarts = map[wirev1.CredentialKind]string{
	wirev1.CredentialKind_CREDENTIAL_KIND_USER:            server.KeyStart,
	wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:     server.LimitedKeyStart,
	wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH:           server.AccessTokenStart,
	wirev1.CredentialKind_CREDENTIAL_KIND_APP:             server.AppStart,
	wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM:       "atlvm_",
	wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:   server.ImpersonationStart,
	wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION: server.SessionStart,
}

// newKeyOf returns a new key of a kind, for the id of a credential or grant, and the SHA-256 of its secret.
func newKeyOf(kind wirev1.CredentialKind, id string) (string, []byte) {
	return keys.New(keyStarts[kind], id)
}

// keyPrefix returns the prefix of the ids of the credentials of a kind: the key of an app has the id of the app.
func keyPrefix(kind wirev1.CredentialKind) string {
	if kind == wirev1.CredentialKind_CREDENTIAL_KIND_APP {
		return "app_"
	}
	return "key_"
}

// parseKey splits an API key.
func parseKey(text string) (id, secret string, ok bool) {
	id, secret, ok = strings.Cut(strings.TrimPrefix(text, server.KeyStart), "_")
	return "key_" + id, secret, ok
}

// relabelKey returns an API key with the start of another kind.
func relabelKey(text string, kind wirev1.CredentialKind) string {
	return keyStarts[kind] + strings.TrimPrefix(text, server.KeyStart)
}

// statusOf returns the status of the response to a request.
func statusOf(h nethttp.Handler, r *nethttp.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
