package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	nethttp "net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
)

// site is a whole node behind a real listener, for tests of pages.
type site struct {
	*testing.T
	node  *node.Node
	clock *clock
	live  *httptest.Server
	said  logBuffer
}

// logBuffer collects the log.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *logBuffer) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newSite(t *testing.T, edit ...func(*http.Options)) *site {
	t.Helper()
	s := &site{T: t, clock: newClock()}
	var handler atomic.Pointer[nethttp.Handler]
	s.live = httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		(*handler.Load()).ServeHTTP(w, r)
	}))
	public, err := url.Parse(s.live.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := http.Options{Options: server.Options{PublicURL: public, Hosts: hosts, Limits: server.Limits{Rate: -1, AddressRate: -1}}}
	for _, e := range edit {
		e(&o)
	}
	s.node, err = node.Start(t.Context(), node.Options{
		HoldTurns: true, HoldApps: true,
		Dir: t.TempDir(), Clock: s.clock.Now, Wire: true, HTTP: o, Log: slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &s.said), nil)),
		Journal: persistence.Options{FS: vfs.NewMem(), CacheBytes: 4 << 20, Partitions: 4}, PendingLimit: longest,
	})
	if err != nil {
		t.Fatal(err)
	}
	var served nethttp.Handler = s.node.Server
	handler.Store(&served)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		if err := s.node.Stop(ctx); err != nil {
			t.Error(err)
		}
		s.live.Close()
	})
	return s
}

// person creates an account through the operators' API, and returns its API key.
func (s *site) person(name string) (key string) {
	s.Helper()
	var made struct{ Key string }
	s.operator("/admin/users", `{"email":"`+name+`@example.com","name":"`+name+`"}`, &made)
	return made.Key
}

// link returns a new one-time link for an account.
func (s *site) link(name string) string {
	s.Helper()
	var made struct{ PasswordLink string }
	s.operator("/admin/links", `{"email":"`+name+`@example.com"}`, &made)
	return s.local(made.PasswordLink)
}

func (s *site) operator(path, body string, into any) {
	s.Helper()
	answer := request(s, s.node.Server.Admin(), "POST", path, "", body)
	if err := json.Unmarshal(answer.Body.Bytes(), into); err != nil || answer.Code != 201 {
		s.Fatalf("%s: %d %s", path, answer.Code, answer.Body)
	}
}

// local returns the path of a link to this site.
func (s *site) local(link string) string {
	s.Helper()
	path, ok := strings.CutPrefix(link, s.live.URL)
	if !ok {
		s.Fatalf("%q leads elsewhere than %s", link, s.live.URL)
	}
	return path
}

// invite invites an address to a workspace of the key's owner, and returns the path of the link.
func (s *site) invite(key, slug, address string) string {
	s.Helper()
	answer := request(s, s.node.Server, "POST", "/v1/ws/"+slug+"/invites", key, `{"email":"`+address+`","role":"editor"}`)
	link, _, ok := strings.Cut(strings.TrimPrefix(answer.Header().Get("Link"), "<"), ">")
	if !ok {
		s.Fatalf("no link: %d %s", answer.Code, answer.Body)
	}
	return s.local(link)
}

func (s *site) workspace(key, slug string) {
	s.Helper()
	expect(s, request(s, s.node.Server, "POST", "/v1/workspaces", key, `{"slug":"`+slug+`","name":"The `+slug+` people"}`), 201, "")
}

const goodPassword = "a long way to the sea"

// browser has cookies, and does not follow redirects.
type browser struct {
	*site
	client *nethttp.Client
	// headers are sent with each request.
	headers map[string]string
}

func (s *site) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	return &browser{s, &nethttp.Client{Jar: jar, CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error {
		return nethttp.ErrUseLastResponse
	}}, map[string]string{"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/130.0", "Sec-Fetch-Site": "same-origin"}}
}

// pageResponse is a response to a browser.
type pageResponse struct {
	*nethttp.Response
	t    *testing.T
	text string
	to   string
}

func (b *browser) get(path string) *pageResponse { b.Helper(); return b.send("GET", path, nil) }

func (b *browser) post(path string, fields ...string) *pageResponse {
	b.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return b.send("POST", path, form)
}

func (b *browser) send(method, path string, form url.Values) *pageResponse {
	b.Helper()
	body := form.Encode()
	r, err := nethttp.NewRequest(method, b.live.URL+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range b.headers {
		r.Header.Set(name, value)
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	conforms(b, r, []byte(body), response)
	s := &pageResponse{response, b.T, string(text), response.Header.Get("Location")}
	s.expectSecurityHeaders()
	return s
}

// expectSecurityHeaders checks the headers that every response to a browser must have.
func (s *pageResponse) expectSecurityHeaders() {
	s.t.Helper()
	for name, value := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex",
	} {
		if got := s.Header.Get(name); got != value {
			s.t.Errorf("%s: %s is %q", s.Request.URL, name, got)
		}
	}
	if s.to != "" {
		return
	}
	policy := s.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || !strings.Contains(policy, "frame-ancestors 'none'") {
		s.t.Errorf("%s: the policy is %q", s.Request.URL, policy)
	}
	if strings.Count(s.text, "<h1") != 1 || s.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		s.t.Errorf("%s: is no page: %s", s.Request.URL, s.text)
	}
}

// expectPage expects a page with a status and some text.
func (s *pageResponse) expectPage(status int, parts ...string) *pageResponse {
	s.t.Helper()
	if s.StatusCode != status {
		s.t.Errorf("%s %s: %d to %q, want %d: %s", s.Request.Method, s.Request.URL, s.StatusCode, s.to, status, s.body())
	}
	for _, part := range parts {
		if !strings.Contains(s.text, part) {
			s.t.Errorf("%s %s lacks %q: %s", s.Request.Method, s.Request.URL, part, s.body())
		}
	}
	return s
}

// expectRedirect expects a redirect.
func (s *pageResponse) expectRedirect(to string) *pageResponse {
	s.t.Helper()
	if s.StatusCode != 303 || s.to != to {
		s.t.Errorf("%s %s: %d to %q, want to go on to %q: %s", s.Request.Method, s.Request.URL, s.StatusCode, s.to, to, s.body())
	}
	return s
}

// body returns the page without its head.
func (s *pageResponse) body() string { _, body, _ := strings.Cut(s.text, "<main>"); return body }

// cookie returns a cookie that the response sets.
func (s *pageResponse) cookie(name string) *nethttp.Cookie {
	for _, c := range s.Cookies() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// signUp creates an account with a password, and returns its API key and a browser that is signed in.
func (s *site) signUp(name string) (key string, b *browser) {
	s.Helper()
	key, b = s.person(name), s.browser()
	_, token, _ := strings.Cut(s.link(name), "token=")
	b.post("/set-password", "token", token, "password", goodPassword, "again", goodPassword).expectRedirect("/account?done=password")
	return key, b
}
