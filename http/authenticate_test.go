package http_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

func TestUnauthorizedResponsesAreIdentical(t *testing.T) {
	w, clock := newFakeEntities(), newClock()
	s := w.server(t, func(o *http.Options) { o.Clock = clock.Now })
	good, revoked, expired := w.key(alice), w.key(alice), w.key(alice)
	w.change(revoked, func(c *credentialv1.Credential) { c.RevokedAt = 1 })
	w.change(expired, func(c *credentialv1.Credential) { c.ExpiresAt = clock.Now().UnixMilli() })
	unknown, _ := keys.New(server.KeyStart, newID("key_"))
	wrong := good[:len(good)-1] + string("ab"[btoi(good[len(good)-1] == 'a')])
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+good))

	expect(t, request(t, s, "GET", "/v1/whoami", good, ""), 200, "")
	const metadata = `resource_metadata="http://localhost:8080/.well-known/oauth-protected-resource"`
	for challenge, headers := range map[string][]string{
		"Bearer " + metadata: {"", "Bearer", "Bearer ", "Token " + good, good, basic},
		`Bearer error="invalid_token", ` + metadata: {
			"Bearer x", "Bearer " + unknown, "Bearer " + revoked, "Bearer " + expired, "Bearer " + wrong,
			"Bearer " + strings.ToUpper(good), "Bearer " + good + "x", "bearer  x",
		},
	} {
		var first *httptest.ResponseRecorder
		for _, header := range headers {
			for range 2 { // looked up, then cached
				got := request(t, s, "GET", "/v1/whoami", "", "", "Authorization", header, "X-Request-Id", "the-same-1")
				if first == nil {
					first = got
				}
				if got.Code != 401 || got.Body.String() != first.Body.String() || fmt.Sprint(got.Header()) != fmt.Sprint(first.Header()) {
					t.Errorf("%q: %d %v %s", header, got.Code, got.Header(), got.Body)
				}
			}
		}
		if got := first.Header().Values("Www-Authenticate"); len(got) != 1 || got[0] != challenge {
			t.Errorf("challenges %q, want %q", got, challenge)
		}
	}
	twice := httptest.NewRequest("GET", "/v1/whoami", nil)
	twice.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good}
	if statusOf(s, twice) != 401 {
		t.Error("two Authorization headers were accepted")
	}
	expect(t, request(t, s, "GET", "/v1/whoami", "", "", "Authorization", "bearer "+good), 200, "")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestBasicAuthenticationOnDrivesOnly(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+key))
	for _, path := range []string{"/v1/ws/acme/drive", "/v1/ws/acme/drive/", "/v1/ws/acme/drive/a%2Fb/..;/c"} {
		expect(t, request(t, s, "GET", path, "", "", "Authorization", basic), 200, "GET "+acme+" "+strings.TrimPrefix(path, "/v1/ws/acme/drive")+" api-key:key_ "+alice)
	}
	expect(t, request(t, s, "GET", "/v1/ws/acme/file-activity/feed", "", "", "Authorization", basic), 401, "")
	got := request(t, s, "PROPFIND", "/v1/ws/acme/drive/", "", "")
	if challenges := got.Header().Values("Www-Authenticate"); got.Code != 401 || len(challenges) != 2 || !strings.HasPrefix(challenges[1], "Basic realm=") {
		t.Errorf("%d, challenges %q", got.Code, challenges)
	}
}

func TestCredentialsAreCachedForASecond(t *testing.T) {
	w, clock := newFakeEntities(), newClock()
	s, key := w.server(t, func(o *http.Options) { o.Clock = clock.Now }), w.key(alice)
	describe := &credentialv1.DescribeCredential{}
	for range 10 {
		expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	}
	if n := w.count(describe); n != 1 {
		t.Errorf("asked %d times", n)
	}
	w.change(key, func(c *credentialv1.Credential) { c.RevokedAt = 1 })
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	clock.advance(time.Second)
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 401, "")
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 401, "")
	if n := w.count(describe); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestExpiryNeedsNoLookup(t *testing.T) {
	w, clock := newFakeEntities(), newClock()
	s, key := w.server(t, func(o *http.Options) { o.Clock = clock.Now }), w.key(alice)
	w.change(key, func(c *credentialv1.Credential) { c.ExpiresAt = clock.Now().UnixMilli() + 10 })
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	clock.advance(9 * time.Millisecond)
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	clock.advance(time.Millisecond)
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 401, "")
}

func TestUnknownKeysTakeNoMemory(t *testing.T) {
	w := newFakeEntities()
	s := w.server(t)
	for range 5000 {
		unknown, _ := keys.New(server.KeyStart, newID("key_"))
		r := httptest.NewRequest("GET", "/v1/whoami", nil)
		r.Header.Set("Authorization", "Bearer "+unknown)
		if statusOf(s, r) == 200 {
			t.Fatal("an unknown key was accepted")
		}
	}
	if n := s.Stats().Credentials; n != 0 {
		t.Errorf("%d remembered", n)
	}
}

func TestConcurrentRequestsShareALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeEntities()
		s, key := w.server(t), w.key(alice)
		release := make(chan struct{})
		w.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			if _, ok := c.Message.(*credentialv1.DescribeCredential); ok {
				<-release
			}
			return nil, nil
		}
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				r := httptest.NewRequest("GET", "/v1/whoami", nil)
				r.Header.Set("Authorization", "Bearer "+key)
				if status := statusOf(s, r); status != 200 {
					t.Error(status)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		group.Go(func() { // a client that sends no more gets its answer, and does not affect the others
			r := httptest.NewRequest("GET", "/v1/whoami", nil).WithContext(ctx)
			r.Header.Set("Authorization", "Bearer "+key)
			if status := statusOf(s, r); status != 200 {
				t.Error(status)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		group.Wait()
		if n := w.count(&credentialv1.DescribeCredential{}); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestUsesAreReportedOnceAMinute(t *testing.T) {
	w, clock := newFakeEntities(), newClock()
	s, key := w.server(t, func(o *http.Options) { o.Clock = clock.Now }), w.key(alice)
	for i, want := range []int{1, 1, 1, 2} {
		request(t, s, "GET", "/v1/whoami", key, "")
		s.Flush()
		if n := w.count(&credentialv1.UseCredential{}); n != want {
			t.Errorf("step %d: reported %d times, want %d", i, n, want)
		}
		clock.advance(29 * time.Second)
	}
}

func TestLookupFailures(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	for _, err := range []error{entity.Errorf(entity.Unavailable, "busy"), context.DeadlineExceeded} {
		w.before = func(context.Context, entity.Command) (proto.Message, error) { return nil, err }
		expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 503, "unavailable")
	}
	w.before = func(context.Context, entity.Command) (proto.Message, error) { panic("look-up") }
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 500, "internal")
	w.before = func(context.Context, entity.Command) (proto.Message, error) { return &wirev1.Done{}, nil }
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 500, "internal")
	w.before = nil
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
}

func TestScopes(t *testing.T) {
	w := newFakeEntities()
	s := w.server(t)
	for kind, want := range map[wirev1.CredentialKind][2]int{
		wirev1.CredentialKind_CREDENTIAL_KIND_USER:      {200, 201},
		wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM: {403, 403},
		wirev1.CredentialKind_CREDENTIAL_KIND_APP:       {403, 403},
	} {
		key := w.key(alice)
		w.change(key, func(c *credentialv1.Credential) { c.Kind = kind })
		expect(t, request(t, s, "GET", "/v1/whoami", key, ""), map[bool]int{true: 200, false: 401}[want[0] == 200], "")
		key = relabelKey(key, kind)
		expect(t, request(t, s, "GET", "/v1/user/api-keys", key, ""), want[0], "")
		expect(t, request(t, s, "POST", "/v1/workspaces", key, `{"slug":"hello","name":"x"}`), want[1], "")
		if want[1] == 403 { // the refusal of access comes before validation
			expect(t, request(t, s, "POST", "/v1/workspaces", key, "{"), 403, "")
			expect(t, request(t, s, "POST", "/v1/workspaces?x=1", key, "{}", "Content-Type", "text/plain"), 403, "")
		}
		expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	}
}

func TestRateLimit(t *testing.T) {
	w, clock := newFakeEntities(), newClock()
	s := w.server(t, func(o *http.Options) { o.Clock = clock.Now; o.Limits.Rate, o.Limits.Burst = 2, 3 })
	key, other := w.key(alice), w.key(alice)
	for range 3 {
		expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	}
	limited := request(t, s, "GET", "/v1/whoami", key, "")
	expect(t, limited, 429, `{"error":"rate_limited",`)
	if limited.Header().Get("Retry-After") != "1" {
		t.Errorf("%v", limited.Header())
	}
	expect(t, request(t, s, "GET", "/v1/whoami", other, ""), 200, "")
	clock.advance(500 * time.Millisecond)
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 429, "")
	clock.advance(time.Hour) // the credential is looked up again, and the burst is bounded
	for range 3 {
		expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
	}
	expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 429, "")
}

func TestSecretsAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	w := newFakeEntities()
	s := w.server(t, func(o *http.Options) {
		o.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	key := w.key(alice)
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		if _, ok := c.Message.(*activityv1.ReadFeed); ok {
			return nil, errors.New("it broke")
		}
		return nil, nil
	}
	request(t, s, "GET", "/v1/whoami", key, "", "X-Request-Id", "request-1")
	request(t, s, "GET", "/v1/ws/acme/file-activity/feed", key, "")
	request(t, s, "GET", "/v1/whoami", key+"x", "")
	request(t, s, "GET", "/"+key, "", "")
	request(t, s, "GET", "/healthz?key="+key, "", "")
	request(t, s, "GET", "/invitations/01m80chbz1fyn587jw348v6mpk.01m80chbz1fyn587jw348v6mpk.tooshort", "", "")
	id, secret, _ := parseKey(key)
	if strings.Contains(log.String(), secret) || strings.Contains(log.String(), "tooshort") {
		t.Errorf("the log has a secret:\n%s", &log)
	}
	for _, want := range []string{`"request":"request-1"`, `"credential":"` + id, `"route":"/v1/whoami"`, `"status":401`, `"error":"it broke"`,
		`"path":"/v1/ws/acme/file-activity/feed"`, `"workspace":"ws_`, `"user":"` + alice, `"client":"`,
		`"level":"DEBUG","msg":"request","method":"GET","route":"/healthz","path":"/healthz","status":400`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &log)
		}
	}
}

func BenchmarkFeed(b *testing.B) {
	w := newFakeEntities()
	s, key := w.server(b, func(o *http.Options) { o.Limits.Rate = -1 }), w.key(alice)
	page := []byte(strings.Repeat(row+",", 99) + row)
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		if _, ok := c.Message.(*activityv1.ReadFeed); ok {
			return &activityv1.Page{Items: page, Next: 100}, nil
		}
		return nil, nil
	}
	hello := nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.Write(page) })
	for _, v := range []struct {
		name    string
		handler nethttp.Handler
	}{{"bytes", hello}, {"feed", s}} {
		b.Run(v.name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/v1/ws/acme/file-activity/feed?limit=100", nil)
			r.Header.Set("Authorization", "Bearer "+key)
			b.ReportAllocs()
			for b.Loop() {
				v.handler.ServeHTTP(&discard{header: nethttp.Header{}}, r)
			}
		})
	}
}

type discard struct{ header nethttp.Header }

func (d *discard) Header() nethttp.Header      { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
