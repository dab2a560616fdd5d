package http_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestPathsAndMethods(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	for _, path := range []string{
		"/v1", "/v1/", "/v1/nothing", "/v1/whoami/", "//v1/whoami", "/v1//whoami", "/v1/./whoami", "/v1/x/../whoami",
		"/v1%2fwhoami", "/v1/ws/acme", "/v1/ws//drive", "/v1/ws/acme/file-activity/", "/v1/ws/a%2fb/file-activity/feed",
		"/v1/ws/%61cme/file-activity/feed", "/v1/ws/ACME/file-activity/feed", "/v1/ws/acme%00/drive/x", "/admin/users",
	} {
		expect(t, request(t, s, "GET", path, key, ""), 404, `{"error":"not_found","message":"not found"}`)
	}
	for _, m := range []struct{ method, path, allow string }{
		{"POST", "/v1/whoami", "GET, HEAD"},
		{"PUT", "/v1/user/api-keys", "GET, HEAD, POST"},
		{"HEAD", "/v1/user/api-keys/x", "DELETE"},
		{"GET", "/v1/user/api-keys/x", "DELETE"},
		{"POST", "/v1/ws/acme/drive/a", "COPY, DELETE, GET, HEAD, LOCK, MKCOL, MOVE, OPTIONS, PROPFIND, PROPPATCH, PUT, UNLOCK"},
	} {
		got := request(t, s, m.method, m.path, key, "")
		expect(t, got, 405, `{"error":"method_not_allowed",`)
		if got.Header().Get("Allow") != m.allow {
			t.Errorf("%s %s: Allow %q", m.method, m.path, got.Header().Get("Allow"))
		}
	}
}

// TestHead compares HEAD with GET over a real listener, for every path that has GET.
func TestHead(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	live := httptest.NewServer(s)
	defer live.Close()
	names := strings.NewReplacer("{workspaceSlug}", "acme", "{path}", "a.txt", "{token}", "x")
	ask := func(method, path string) *nethttp.Response {
		t.Helper()
		r, err := nethttp.NewRequestWithContext(t.Context(), method, live.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := nethttp.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for _, r := range s.Routes() {
		if r.Method != "GET" {
			continue
		}
		path := names.Replace(r.Path)
		get, head := ask("GET", path), ask("HEAD", path)
		get.Body.Close() // a stream has no end
		if body, err := io.ReadAll(head.Body); len(body) > 0 || err != nil {
			t.Errorf("HEAD %s has a body: %q, %v", path, body, err)
		}
		head.Body.Close()
		if get.StatusCode != head.StatusCode || get.Header.Get("Content-Type") != head.Header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %s, and GET: %d %s", path, head.StatusCode, head.Header.Get("Content-Type"), get.StatusCode, get.Header.Get("Content-Type"))
		}
	}
}

func TestQueries(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	stranger := w.key("usr_01j0000000000000000000000b")
	const prefix = "/v1/ws/acme/file-activity"
	long := strings.Repeat("x", 256)
	for _, test := range []struct {
		target string
		status int
		body   string
	}{
		{"/v1/whoami?x=1", 400, "unknown query parameter"},
		{"/v1/user/api-keys?limit=0", 400, "limit must"},
		{prefix + "/feed", 200, `{"items":[` + row + `],"nextCursor":"`},
		{prefix + "/feed?limit=1", 200, ""},
		{prefix + "/feed?limit=100", 200, ""},
		{prefix + "/feed?limit=101", 400, "limit must"},
		{prefix + "/feed?limit=0", 400, "limit must"},
		{prefix + "/feed?limit=01", 400, "limit must"},
		{prefix + "/feed?limit=%2B5", 400, "limit must"},
		{prefix + "/feed?limit=", 400, "limit must"},
		{prefix + "/feed?limit=1e1", 400, "limit must"},
		{prefix + "/feed?limit=5&limit=5", 400, `query parameter \"limit\" is repeated`},
		{prefix + "/feed?Limit=5", 400, `unknown query parameter \"Limit\"`},
		{prefix + "/feed?" + long + "=5", 400, "unknown query parameter"},
		{prefix + "/feed?a=%ff", 400, "the query is malformed"},
		{prefix + "/feed?a=%zz", 400, "the query is malformed"},
		{prefix + "/feed?reads=2", 400, "reads must be 0 or 1"},
		{prefix + "/feed?reads=true", 400, "reads must be 0 or 1"},
		{prefix + "/feed?order=up", 400, "order must be one of asc, desc"},
		{prefix + "/feed?scope=subtree", 400, "scope needs a path"},
		{prefix + "/feed?scope=all&path=a", 400, "scope must be one of exact, subtree"},
		{prefix + "/feed?scope=subtree&path=a/b", 200, ""},
		{prefix + "/feed?path=", 400, "path is empty"},
		{prefix + "/feed?path=a//b", 400, "path has an empty segment"},
		{prefix + "/feed?path=/a", 400, "path has an empty segment"},
		{prefix + "/feed?path=a/../b", 400, "path has a"},
		{prefix + "/feed?path=a%00b", 400, "path has a control character"},
		{prefix + "/feed?cursor=", 400, "exactly"},
		{prefix + "/feed?cursor=1", 400, "exactly"},
		{prefix + "/feed?cursor=AAAAAAAAAAAAAAAAAAAAAA", 400, "exactly"},
		{prefix, 400, "path is required"},
		{prefix + "?path=a&path=b", 400, "repeated"},
		{prefix + "?path=a&scope=exact", 400, "unknown query parameter"},
		{prefix + "?path=a", 200, ""},
		{prefix + "/seen-by", 400, "path is required"},
		{prefix + "/seen-by?path=a&cursor=AAAAAAAAAAAAAAAAAAAAAA", 400, "exactly"},
		{prefix + "/seen-by?path=a&reads=1", 400, "unknown query parameter"},
		{prefix + "/latest-writers", 400, "dir is required"},
		{prefix + "/latest-writers?dir=", 400, "path must be given 1 to 500 times"},
		{prefix + "/latest-writers?dir=&path=a/b", 400, "path must be the name of one entry"},
		{prefix + "/latest-writers?dir=&path=..", 400, "path has a"},
		{prefix + "/latest-writers?dir=&path=a&path*=b", 400, `unknown query parameter \"path*\"`},
		{prefix + "/latest-writers?dir=a/&path=b", 400, "dir has an empty segment"},
		{prefix + "/latest-writers?dir=x&path=" + long, 400, "path has a segment"},
		{prefix + "/latest-writers?dir=&path=a" + strings.Repeat("&path=b", 499), 200, `{"writers":[]}`},
		{prefix + "/latest-writers?dir=&path=a" + strings.Repeat("&path=b", 500), 400, "path must be given"},
		{prefix + "/events?after=1", 400, "unknown query parameter"},
		{prefix + "/events?cursor=5", 400, "exactly"},
		{prefix + "/events?reads=", 400, "reads must"},
		{"/v1/ws/acme/drive/a?x=1", 400, "unknown query parameter"},
		{"/healthz?x=1", 400, "unknown query parameter"},
	} {
		got := request(t, s, "GET", test.target, key, "")
		if test.body == "exactly" {
			if got.Code != 400 || got.Body.String() != `{"error":"invalid_cursor"}` {
				t.Errorf("%s: %d %s", test.target, got.Code, got.Body)
			}
			continue
		}
		if got.Code != test.status || !strings.Contains(got.Body.String(), test.body) {
			t.Errorf("%s: %d %s, want %d %s", test.target, got.Code, got.Body, test.status, test.body)
		}
		if strings.HasPrefix(test.target, "/v1/ws/") && test.status == 400 {
			expect(t, request(t, s, "GET", test.target, stranger, ""), 404, `{"error":"not_found","message":"not found"}`)
			expect(t, request(t, s, "GET", test.target, "", ""), 401, "")
		}
	}
}

func TestBodies(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	good := `{"slug":"hello","name":"Hello"}`
	for _, test := range []struct {
		body   string
		status int
		want   string
	}{
		{good, 201, `"slug":"hello","status":"provisioning"`},
		{" " + good + "\n", 201, ""},
		{good + "x", 400, "not valid JSON"},
		{good + good, 400, "not valid JSON"},
		{`{"slug":"hello","name":"Hello","x":1}`, 400, `unknown field \"x\"`},
		{`{"slug":"hello","name":"Hello","Name":"x"}`, 400, `unknown field \"Name\"`},
		{`{"slug":"hello","slug":"hello","name":"x"}`, 400, `field \"slug\" occurs twice`},
		{`{"slug":"hello","name":7}`, 400, "name has the wrong type"},
		{`{"slug":"hello","name":null}`, 400, "name has the wrong type"},
		{`{"slug":"hello"}`, 400, "name is required"},
		{`{"name":"hello"}`, 400, "slug is required"},
		{`{"slug":"UPPER","name":"x"}`, 400, "slug may only"},
		{`{"slug":"he--llo","name":"x"}`, 400, "slug must not"},
		{`{"slug":"root","name":"x"}`, 400, "slug is reserved"},
		{"{\"slug\":\"hello\",\"name\":\"\xff\"}", 400, "not valid JSON"},
		{`[]`, 400, "must be a JSON object"},
		{`null`, 400, "must be a JSON object"},
		{`"x"`, 400, "must be a JSON object"},
		{`{`, 400, "not valid JSON"},
		{" ", 400, "not valid JSON"},
		{`{"slug":"hello","name":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "payload_too_large"},
	} {
		got := request(t, s, "POST", "/v1/workspaces", key, test.body)
		if got.Code != test.status || !strings.Contains(got.Body.String(), test.want) {
			t.Errorf("%.60s: %d %s, want %d %s", test.body, got.Code, got.Body, test.status, test.want)
		}
		expect(t, request(t, s, "POST", "/v1/workspaces", "", test.body), 401, "")
	}
	expect(t, request(t, s, "POST", "/v1/workspaces?x=1", key, good), 400, "unknown query parameter")
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/json-seq", ";"} {
		expect(t, request(t, s, "POST", "/v1/workspaces", key, good, "Content-Type", media), 415, "unsupported_media_type")
	}
	for _, media := range []string{"application/json; charset=UTF-8", "Application/JSON"} {
		expect(t, request(t, s, "POST", "/v1/workspaces", key, good, "Content-Type", media), 201, "")
	}
	expect(t, request(t, s, "POST", "/v1/workspaces", key, good, "Content-Encoding", "gzip"), 415, "")
	expect(t, request(t, s, "GET", "/v1/whoami", key, "not JSON", "Content-Type", "text/plain"), 200, "")
	for _, body := range []string{`{"name":"k","expiresAt":0}`, `{"name":"k","expiresAt":-1}`, `{"name":"k","expiresAt":9007199254740992}`} {
		expect(t, request(t, s, "POST", "/v1/user/api-keys", key, body), 400, "expiresAt must be")
	}
	for _, body := range []string{`{"name":"k","expiresAt":1.5}`, `{"name":"k","expiresAt":"1"}`, `{"name":"k","expiresAt":null}`, `{"name":"k","expiresAt":1e30}`} {
		expect(t, request(t, s, "POST", "/v1/user/api-keys", key, body), 400, "expiresAt has the wrong type or is out of range")
	}
}

// TestErrors has a case for each way in which an entity can fail.
func TestErrors(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	request(t, s, "GET", "/v1/whoami", key, "")
	for _, test := range []struct {
		err        error
		status     int
		body       string
		retryAfter string
	}{
		{entity.Errorf(entity.SlugTaken, "slug is taken"), 409, `{"error":"slug_taken","message":"slug is taken"}`, ""},
		{entity.Errorf(entity.InvalidRequest, "name is odd"), 400, `{"error":"invalid_request","message":"name is odd"}`, ""},
		{entity.Errorf(entity.Forbidden, "no"), 403, `{"error":"forbidden","message":"no"}`, ""},
		{&entity.Error{Code: entity.Unavailable, Message: "busy", RetryAfter: 1}, 503, `{"error":"unavailable","message":"busy"}`, "1"},
		{entity.Errorf(entity.Unavailable, "busy"), 503, `{"error":"unavailable","message":"busy"}`, "1"},
		{context.DeadlineExceeded, 503, `{"error":"unavailable",`, "1"},
		{fmt.Errorf("deep: %w", context.Canceled), 503, `{"error":"unavailable",`, "1"},
		{errors.New("the disk /var/x is broken"), 500, `{"error":"internal","message":"the server failed; report the request id req-12345 to its operators"}`, ""},
		{entity.Errorf(entity.Internal, "detail"), 500, `{"error":"internal","message":"the server failed; report the request id req-12345 to its operators"}`, ""},
		{entity.Errorf("brand_new", "detail"), 500, `{"error":"internal",`, ""},
	} {
		w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
			if _, ok := c.Message.(*slugv1.ClaimSlug); ok {
				return nil, test.err
			}
			return nil, nil
		}
		got := request(t, s, "POST", "/v1/workspaces", key, `{"slug":"hello","name":"Hello"}`, "X-Request-Id", "req-12345")
		expect(t, got, test.status, test.body)
		if got.Header().Get("Retry-After") != test.retryAfter || got.Header().Get("X-Request-Id") != "req-12345" {
			t.Errorf("%v: %v", test.err, got.Header())
		}
	}
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		switch c.Message.(type) {
		case *userv1.IssueApiKey:
			return nil, entity.Errorf(entity.LimitReached, "enough")
		case *workspacev1.Authorize:
			return nil, entity.Errorf(entity.Forbidden, "no")
		}
		return nil, nil
	}
	expect(t, request(t, s, "POST", "/v1/user/api-keys", key, `{"name":"k"}`), 409, `{"error":"limit_reached","message":"enough"}`)
	expect(t, request(t, s, "PUT", "/v1/ws/acme/drive/a", key, ""), 403, `{"error":"forbidden","message":"no"}`)
}

func TestRequestIDs(t *testing.T) {
	s := newFakeEntities().server(t)
	for id, kept := range map[string]bool{
		"abc-DEF_0.9": true, "1234567": false, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
		"has space": false, "héllo-world": false, "a\"b\"c\"d\"e": false,
	} {
		got := request(t, s, "GET", "/healthz", "", "", "X-Request-Id", id).Header().Get("X-Request-Id")
		if (got == id) != kept || got == "" {
			t.Errorf("%q became %q", id, got)
		}
	}
}

func TestOptionsOfTheServer(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c, err := b.pipes.dial(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		got := exchange(b, c, "OPTIONS * HTTP/1.1\r\nHost: atelier\r\n\r\n")
		if got.StatusCode != 404 || got.Header.Get("X-Request-Id") == "" {
			b.Errorf("%d %v", got.StatusCode, got.Header)
		}
	})
}

func TestPanics(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	w.drive = func(rw nethttp.ResponseWriter, r *nethttp.Request) {
		switch r.URL.Path {
		case "/v1/ws/acme/drive/late":
			rw.Write([]byte("half"))
			panic("late")
		case "/v1/ws/acme/drive/abort":
			panic(nethttp.ErrAbortHandler)
		}
		panic("early")
	}
	live := httptest.NewServer(s)
	defer live.Close()
	get := func(path string) (*nethttp.Response, error) {
		r, _ := nethttp.NewRequest("GET", live.URL+path, nil)
		r.Header.Set("Authorization", "Bearer "+key)
		return live.Client().Do(r)
	}
	got, err := get("/v1/ws/acme/drive/early")
	if err != nil || got.StatusCode != 500 || got.Header.Get("Connection") == "close" {
		t.Fatalf("early: %v, %v", got, err)
	}
	conforms(t, got.Request, nil, got)
	for _, path := range []string{"abort", "late"} {
		if got, err := get("/v1/ws/acme/drive/" + path); err == nil {
			if _, err := got.Body.Read(make([]byte, 100)); err == nil {
				_, err = got.Body.Read(make([]byte, 100))
				if err == nil || err.Error() == "EOF" {
					t.Errorf("%s: the answer looks whole", path)
				}
			}
		}
	}
	if got, err := get("/v1/whoami"); err != nil || got.StatusCode != 200 {
		t.Fatalf("after: %v, %v", got, err)
	}
}

func TestOptions(t *testing.T) {
	w := newFakeEntities()
	for _, o := range []http.Options{
		{},
		{Options: server.Options{Asker: w}, Streams: w, Drive: w, Skills: w},
		{Options: server.Options{Asker: w, Secret: []byte("short")}, Streams: w, Drive: w, Skills: w},
		{Options: server.Options{Asker: w, Secret: secret}, Streams: w},
	} {
		if _, err := http.New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestForOperators(t *testing.T) {
	w := newFakeEntities()
	ready := errors.New("recovering")
	s := w.server(t, func(o *http.Options) { o.Ready = func() error { return ready } })
	expect(t, request(t, s, "GET", "/healthz", "", ""), 200, `{"status":"ok"}`)
	expect(t, request(t, s, "GET", "/readyz", "", ""), 503, `{"error":"unavailable","message":"the server is not ready"}`)
	ready = nil
	expect(t, request(t, s, "GET", "/readyz", "", ""), 200, `{"status":"ok"}`)
	expect(t, request(t, s, "GET", "/v1/openapi.json", "", ""), 200, `"openapi": "3.1.0"`)
	key := w.key(alice)
	request(t, s, "GET", "/v1/ws/acme/file-activity/feed", key, "")
	exported := request(t, s, "GET", "/metrics", "", "").Body.String()
	for _, want := range []string{
		`atelier_http_requests_total{method="GET",route="/v1/ws/{workspaceSlug}/file-activity/feed",status="2xx"} 1`,
		`atelier_http_lookups_total{kind="credential",result="asked"} 1`,
		`atelier_http_requests_total{method="GET",route="/readyz",status="5xx"} 1`,
	} {
		if !strings.Contains(exported, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(exported, "key_") || strings.Contains(exported, alice) {
		t.Error("/metrics has ids")
	}
}
