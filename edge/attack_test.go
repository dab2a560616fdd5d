package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// A cookie opens one app at one host, and no other secret does.
func TestCookiesOfOtherAppsAreRefused(t *testing.T) {
	s := newStage(t)
	notes, tasks := s.register("notes", hello), s.register("tasks", hello)
	cookie := s.visit(s.alice, notes)
	other := s.visit(s.alice, tasks)
	response, body := s.get("/", "Cookie", cookie, "Host", "tasks--acme.apps.test")
	s.expect(response, body, 401, "unauthorized")
	name, token, _ := strings.Cut(cookie, "=")
	_, otherToken, _ := strings.Cut(other, "=")
	target, _ := s.launch(s.alice, notes, "", "")
	_, grant, _ := strings.Cut(target, "service_access=")
	for what, value := range map[string]string{
		"another secret":         token[:len(token)-40] + otherToken[len(otherToken)-40:],
		"the grant":              grant,
		"the grant as a cookie":  strings.Replace(grant, "atlgrant_", "atlvisit_", 1),
		"an empty one":           "",
		"one that is cut off":    token[:len(token)-1],
		"one of an unknown one":  "atlvisit_01j00000000000000000000000_" + token[len(token)-40:],
		"one in capital letters": strings.ToUpper(token),
	} {
		response, body := s.get("/", "Cookie", name+"="+value)
		if response.StatusCode != 401 {
			t.Errorf("%s: %s %s", what, response.Status, body)
		}
	}
	response, body = s.get("/", "Cookie", cookie)
	s.expect(response, body, 200, "GET")
}

func TestGrantServesOnce(t *testing.T) {
	s := newStage(t)
	notes, tasks := s.register("notes", hello), s.register("tasks", hello)
	target, _ := s.launch(s.alice, notes, "", "/a")
	response, body := s.get(target, "Host", "tasks--acme.apps.test") // a grant for another host is not used up
	s.expect(response, body, 401, "unauthorized")
	first, _ := s.get(target)
	if first.StatusCode != 303 || len(first.Cookies()) != 1 {
		t.Fatalf("the first use: %s", first.Status)
	}
	again, body := s.get(target)
	if again.StatusCode != 401 || len(again.Cookies()) != 0 {
		t.Errorf("a replay: %s %s", again.Status, body)
	}
	again, _ = s.get(target, document...)
	if to := again.Header.Get("Location"); again.StatusCode != 302 || !strings.HasPrefix(to, "http://atelier.test/v1/ws/acme/apps/notes/launch?") || strings.Contains(to, "service_access") {
		t.Errorf("a replay by a browser: %s %q", again.Status, to)
	}
	again, _ = s.get(target, "Cookie", first.Cookies()[0].Name+"="+first.Cookies()[0].Value)
	if to := again.Header.Get("Location"); again.StatusCode != 303 || to != "http://notes--acme.apps.test/a" || len(again.Cookies()) != 0 {
		t.Errorf("a replay by the visitor: %s %q", again.Status, to)
	}
	late, _ := s.launch(s.alice, tasks, "", "")
	s.advance(time.Minute)
	response, body = s.get(late, "Host", "tasks--acme.apps.test")
	s.expect(response, body, 401, "unauthorized")
	headed, _ := s.launch(s.alice, notes, "", "")
	response, body = s.send(s.request("HEAD", headed, ""))
	s.expect(response, body, 401, "")
	if response, body = s.get(headed); response.StatusCode != 303 {
		t.Errorf("a HEAD, as of a preview of the link, has used up the grant: %s %s", response.Status, body)
	}
}

// The redirect after redeeming stays at the host, whatever the path.
func TestRedeemingRedirectsToTheSameHost(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	for path, want := range map[string]string{
		"//elsewhere.test/":            "http://notes--acme.apps.test//elsewhere.test/",
		"/%0d%0aSet-Cookie:%20a=b":     "http://notes--acme.apps.test/%0d%0aSet-Cookie:%20a=b",
		"/%2F%2Felsewhere.test":        "http://notes--acme.apps.test/%2F%2Felsewhere.test",
		"/..//elsewhere.test/%5c@evil": "http://notes--acme.apps.test/..//elsewhere.test/%5c@evil",
	} {
		target, _ := s.launch(s.alice, id, "", "")
		_, grant, _ := strings.Cut(target, "?")
		got := s.raw("GET " + path + "?" + grant + " HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 303") || !strings.Contains(got, "\r\nLocation: "+want+"\r\n") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestHostHeaderTricks(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", hello))
	s.register("tasks", hello)
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: NOTES--ACME.APPS.TEST.:80\r\n":                                        "200 OK",
		"GET http://notes--acme.apps.test/ HTTP/1.1\r\nHost: tasks--acme.apps.test\r\n":                "200 OK", // RFC 9112, section 3.2.2
		"GET http://tasks--acme.apps.test/ HTTP/1.1\r\nHost: notes--acme.apps.test\r\n":                "401 Unauthorized",
		"GET / HTTP/1.1\r\nHost: tasks--acme.apps.test\r\nX-Forwarded-Host: notes--acme.apps.test\r\n": "401 Unauthorized",
		"GET / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nHost: tasks--acme.apps.test\r\n":             "400 Bad Request",
		"GET / HTTP/1.1\r\nHost: notes--acme.apps.test tasks--acme.apps.test\r\n":                      "400 Bad Request",
		"GET / HTTP/1.1\r\nHost: a@notes--acme.apps.test\r\n":                                          "400 Bad Request",
		"GET / HTTP/1.1\r\nHost: notes--acme.apps.test/x\r\n":                                          "400 Bad Request",
		"GET / HTTP/1.1\r\n": "400 Bad Request",
		"GET / HTTP/1.0\r\n": "404 Not Found",
		"OPTIONS * HTTP/1.1\r\nHost: notes--acme.apps.test\r\n":                        "200 OK", // answered by net/http
		"CONNECT notes--acme.apps.test:80 HTTP/1.1\r\nHost: notes--acme.apps.test\r\n": "405 Method Not Allowed",
		"TRACE / HTTP/1.1\r\nHost: notes--acme.apps.test\r\n":                          "405 Method Not Allowed",
		"GET notes HTTP/1.1\r\nHost: notes--acme.apps.test\r\n":                        "400 Bad Request",
	} {
		got := s.raw(request + "Connection: close\r\n\r\n")
		if status, _, _ := strings.Cut(got, "\r\n"); !strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(status, "HTTP/1.1 "), "HTTP/1.0 "), want) {
			t.Errorf("%q: %q, want %s", request, status, want)
		}
	}
}

// What a client claims about itself does not reach the app, nor do the platform's credentials.
func TestHeadersOfRequests(t *testing.T) {
	s := newStage(t)
	seen := make(chan http.Header, 1)
	s.publish(s.register("notes", func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	secret := "01j00000000000000000000000_" + strings.Repeat("a", 40)
	key := "atlapp_" + secret
	response, _ := s.get("/?service_access=x",
		"X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "evil.test", "X-Forwarded-Proto", "https", "Forwarded", "for=1.2.3.4", "X-Forwarded-Port", "1",
		"X-Forwarded-Prefix", "/x", "X_Forwarded_For", "1.2.3.4", "X-Real-Ip", "1.2.3.4", "X-Original-Url", "/admin", "X-Rewrite-Url", "/admin",
		"Connection", "X-Secret", "X-Secret", "1", "Proxy-Authorization", "Basic x", "Keep-Alive", "5", "Te", "gzip",
		"Authorization", "Bearer "+key, "Cookie", "atelier=a; keep=1; __Host-atelier=b; atelier-visit=c; ATELIER-oidc-x=d; atelier_session=e", "X-Own", "kept", "X-Request-Id", "request-0001")
	if response.StatusCode != 303 { // the grant is not valid, but the address is cleaned
		t.Errorf("a grant that is not one: %s", response.Status)
	}
	response, _ = s.get("/",
		"X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "evil.test", "X-Forwarded-Proto", "https", "Forwarded", "for=1.2.3.4", "X-Forwarded-Port", "1",
		"X-Forwarded-Prefix", "/x", "X_Forwarded_For", "1.2.3.4", "X-Real-Ip", "1.2.3.4", "X-Original-Url", "/admin", "X-Rewrite-Url", "/admin",
		"Connection", "X-Secret", "X-Secret", "1", "Proxy-Authorization", "Basic x", "Keep-Alive", "5", "Te", "gzip",
		"Authorization", "Bearer "+key, "Cookie", "atelier=a; keep=1; __Host-atelier=b; atelier-visit=c; ATELIER-oidc-x=d; atelier_session=e", "X-Own", "kept", "X-Request-Id", "request-0001", "X-Original-Filename", "a.txt")
	got := <-seen
	want := map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "notes--acme.apps.test", "X-Forwarded-Proto": "http", "Forwarded": "", "X-Forwarded-Port": "",
		"X-Forwarded-Prefix": "", "X_forwarded_for": "", "X-Real-Ip": "", "X-Original-Url": "", "X-Rewrite-Url": "", "X-Secret": "", "Proxy-Authorization": "",
		"Keep-Alive": "", "Te": "", "Authorization": "", "Cookie": "keep=1; atelier_session=e", "X-Original-Filename": "a.txt", "X-Own": "kept", "X-Request-Id": "request-0001",
	}
	for name, value := range want {
		if strings.Join(got[name], ",") != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if response.Header.Get("X-Request-Id") != "request-0001" {
		t.Errorf("the response has the request id %q", response.Header.Get("X-Request-Id"))
	}
	for _, start := range []string{user.KeyStart, server.SessionStart, server.ImpersonationStart, server.AccessTokenStart, server.AppStart, "atlvm_"} {
		s.get("/", "Authorization", "Bearer "+start+secret)
		if got := <-seen; got.Get("Authorization") != "" {
			t.Errorf("a key that begins with %s reaches the app", start)
		}
		basic := httptest.NewRequest("GET", "/", nil)
		basic.SetBasicAuth("alice", start+secret)
		s.get("/", "Authorization", basic.Header.Get("Authorization"))
		if got := <-seen; got.Get("Authorization") != "" {
			t.Errorf("a key that begins with %s reaches the app as a password", start)
		}
	}
	s.get("/", "Authorization", "Bearer of-the-app")
	if got := <-seen; got.Get("Authorization") != "Bearer of-the-app" {
		t.Errorf("a token of the app: %q", got.Get("Authorization"))
	}
}

// What an app sends reaches no other host.
func TestHeadersOfResponses(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", func(w http.ResponseWriter, _ *http.Request) {
		for _, cookie := range []string{
			"a=1; Path=/; Domain=apps.test", "b=2; domain = .TEST ; Secure", "c=3; Domain=notes--acme.apps.test", "d=4",
			"__Host-atelier=x; Path=/; Secure", "__host-ATELIER-visit=x; Path=/", "atelier=x", "atelier-visit=x", " atelier =x", "__Secure-atelier-known=x", "atelier-oidc-abcdefgha=x",
			"atelier_session=f", "atelier-session=g",
			"e=domain; Domain=tasks--acme.apps.test; HttpOnly",
			"=atelier=x; Path=/", " = __Host-atelier-visit=x; Path=/", "=; Path=/",
		} {
			w.Header().Add("Set-Cookie", cookie)
		}
		w.Header().Set("Alt-Svc", `h3=":444"`)
		w.Header().Set("X-Robots-Tag", "all")
		w.Header().Set("X-Request-Id", "of-the-app")
	}))
	response, _ := s.get("/")
	got := strings.Join(response.Header["Set-Cookie"], "\n")
	if want := "a=1; Path=/\nb=2; Secure\nc=3; Domain=notes--acme.apps.test\nd=4\natelier_session=f\natelier-session=g\ne=domain; HttpOnly\n=; Path=/"; got != want {
		t.Errorf("cookies %q, want %q", got, want)
	}
	if response.Header.Get("Alt-Svc") != "" {
		t.Error("Alt-Svc is passed on")
	}
	if response.Header.Get("X-Robots-Tag") != "noindex" || response.Header.Get("X-Request-Id") == "of-the-app" {
		t.Errorf("%v", response.Header)
	}
}

// Responses over the server's own HTTPS say that browsers must use it, also responses of the edge itself, unless the app says
// something else.
func TestStrictTransport(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		switch r.URL.Path {
		case "/own":
			w.Header().Set("Strict-Transport-Security", "max-age=0")
		case "/fails":
			panic(http.ErrAbortHandler)
		}
	}))
	private := s.register("tasks", hello)
	s.bind(private, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, appv1.DomainStatus_DOMAIN_STATUS_ACTIVE)
	grant, _ := s.launch(s.alice, private, "", "/")
	secure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Strict-Transport-Security"] = []string{"max-age=3600"} // as http/server does
		s.edge.ServeHTTP(w, r)
	}))
	t.Cleanup(secure.Close)
	for _, of := range []struct {
		host, target string
		headers      []string
		status       int
		want         string
	}{
		{"notes--acme.apps.test", "/", nil, 200, "max-age=3600"},
		{"notes--acme.apps.test", "/own", nil, 200, "max-age=0"},
		{"notes--acme.apps.test", "/fails", nil, 502, "max-age=3600"},
		{"tasks--acme.apps.test", "/", nil, 401, "max-age=3600"},
		{"tasks--acme.apps.test", "/", document, 302, "max-age=3600"},
		{"tasks--acme.apps.test", grant, nil, 303, "max-age=3600"},
		{"none--acme.apps.test", "/", document, 404, "max-age=3600"},
		{domain, "/", nil, 401, "max-age=3600"},
	} {
		r := s.request("GET", of.target, "", append(of.headers, "Host", of.host)...)
		r.URL.Host = secure.Listener.Addr().String()
		response, body := s.send(r)
		s.expect(response, body, of.status, "")
		if got := response.Header["Strict-Transport-Security"]; len(got) != 1 || got[0] != of.want {
			t.Errorf("%s%s: %q, want %q", of.host, of.target, got, of.want)
		}
	}
	response, _ := s.get("/")
	if got := response.Header["Strict-Transport-Security"]; got != nil {
		t.Errorf("%q without HTTPS", got)
	}
}

// Pages of a private app are shown in frames of the app and the platform only, and its own policies remain as they are. A frame without
// access is refused, and not led to the launch.
func TestFrames(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Security-Policy"] = r.Header["X-Policy"]
	})
	public := s.register("tasks", hello)
	cookie := s.visit(s.alice, id)
	s.publish(public)
	const own = "frame-ancestors 'self' http://atelier.test"
	for policies, want := range map[string]string{
		"": own, "default-src 'self'": "default-src 'self'\n" + own,
		"frame-ancestors *\nscript-src 'none'": "frame-ancestors *\nscript-src 'none'\n" + own,
	} {
		headers := []string{"Cookie", cookie}
		for policy := range strings.SplitSeq(policies, "\n") {
			if policy != "" {
				headers = append(headers, "X-Policy", policy)
			}
		}
		response, body := s.get("/", headers...)
		s.expect(response, body, 200, "")
		if got := strings.Join(response.Header["Content-Security-Policy"], "\n"); got != want {
			t.Errorf("the policies are %q, want %q", got, want)
		}
	}
	response, body := s.get("/", "Host", "tasks--acme.apps.test")
	s.expect(response, body, 200, "")
	if got := response.Header["Content-Security-Policy"]; got != nil {
		t.Errorf("the policies of a public app are %q", got)
	}
	for _, kind := range []string{"iframe", "frame", "embed", "object", "fencedframe"} {
		for _, site := range []string{"cross-site", "same-site", "same-origin"} {
			response, body := s.get("/", "Sec-Fetch-Dest", kind, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Site", site, "Accept", "text/html")
			s.expect(response, body, 401, `{"error":"unauthorized"`)
		}
	}
}

// Each request that is not framed clearly is refused, or the app sees exactly one request.
func TestSmuggling(t *testing.T) {
	s := newStage(t)
	var requests sync.Map // path → *atomic.Int64
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		counter, _ := requests.LoadOrStore(r.URL.Path, new(atomic.Int64))
		counter.(*atomic.Int64).Add(1)
		if r.URL.Path == "/smuggled" {
			t.Errorf("a second request reached the app: %s %s", r.Method, r.RequestURI)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d bytes, te %q, length %d", len(body), r.TransferEncoding, r.ContentLength)
	}))
	const inner = "GET /smuggled HTTP/1.1\r\nHost: notes--acme.apps.test\r\n\r\n"
	for name, head := range map[string]string{
		"length and chunks":      fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", len("0\r\n\r\n"+inner)) + inner,
		"two lengths":            "Content-Length: 0\r\nContent-Length: 60\r\n\r\n" + inner,
		"a list of lengths":      "Content-Length: 0, 60\r\n\r\n" + inner,
		"a signed length":        "Content-Length: +0\r\n\r\n" + inner,
		"an unknown coding":      "Transfer-Encoding: xchunked\r\n\r\n" + inner,
		"two codings":            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"a space before a colon": "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
		"a folded coding":        "Transfer-Encoding:\r\n chunked\r\nContent-Length: 0\r\n\r\n" + inner,
		"a bare line feed":       fmt.Sprintf("X: y\nContent-Length: %d\r\n\r\n", len(inner)) + inner,
		"a bad chunk":            "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + inner,
		"a header with a null":   "X: a\x00b\r\n\r\n" + inner,
	} {
		path := "/" + strings.ReplaceAll(name, " ", "-")
		got := s.raw("POST " + path + " HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: close\r\n" + head)
		seen, ok := requests.Load(path)
		if ok && seen.(*atomic.Int64).Load() > 1 || strings.Count(got, "HTTP/1.1 ") != 1 {
			t.Errorf("%s: %v requests, %q", name, seen, got)
		}
	}
}

// A path cannot add lines to the request that the app gets.
func TestPathsCannotInjectHeaders(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "path=%q injected=%q", r.RequestURI, r.Header.Get("Injected"))
	}))
	for target, want := range map[string]string{
		"/a%0d%0aInjected:%20x":   `path="/a%0d%0aInjected:%20x" injected=""`,
		"/?a=%0d%0aInjected:%20x": `path="/?a=%0d%0aInjected:%20x" injected=""`,
		"/a\rInjected:x":          "HTTP/1.1 400",
	} {
		if got := s.raw("GET " + target + " HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: close\r\n\r\n"); !strings.Contains(got, want) {
			t.Errorf("%q: %q", target, got)
		}
	}
}

// The cookie of a visit gives no access to requests that a page of another app makes the browser send, although all apps are one site.
func TestRequestsOfOtherSites(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", hello)
	cookie := s.visit(s.alice, id)
	for name, of := range map[string]struct {
		method  string
		headers []string
		status  int
	}{
		"its own script":              {"POST", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://notes--acme.apps.test"}, 200},
		"its own form, older browser": {"POST", []string{"Origin", "http://notes--acme.apps.test"}, 200},
		"a program":                   {"POST", nil, 200},
		"the address bar":             {"GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200},
		"a link of another app":       {"GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		"a script of another app":     {"GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}, 403},
		"a form of another app":       {"POST", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		// Under "Referrer-Policy: no-referrer", browsers send "Origin: null" also to the origin of the page.
		"its own form, no referrer":     {"POST", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Origin", "null"}, 200},
		"its own script, no referrer":   {"DELETE", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "same-origin", "Origin", "null"}, 200},
		"a form that is sent again":     {"POST", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Origin", "null"}, 200},
		"another app's, no referrer":    {"POST", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Origin", "null"}, 403},
		"a sandboxed page":              {"POST", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Origin", "null"}, 403},
		"another site, its own origin":  {"POST", []string{"Sec-Fetch-Site", "cross-site", "Origin", "http://notes--acme.apps.test"}, 403},
		"an unknown relation":           {"POST", []string{"Sec-Fetch-Site", "nearby"}, 403},
		"an unknown relation navigates": {"GET", []string{"Sec-Fetch-Site", "nearby", "Sec-Fetch-Mode", "navigate"}, 200},
		"a form, older browser":         {"POST", []string{"Origin", "http://tasks--acme.apps.test"}, 403},
		"a form without an origin":      {"POST", []string{"Origin", "null"}, 403},
		"another site":                  {"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, 403},
	} {
		response, body := s.send(s.request(of.method, "/", "", append(of.headers, "Cookie", cookie)...))
		if response.StatusCode != of.status {
			t.Errorf("%s: %s %s", name, response.Status, body)
		}
	}
	for origin, want := range map[string]int{"http://tasks--acme.apps.test": 403, "http://elsewhere.test": 403, "null": 403} {
		_, response, err := websocket.Dial(t.Context(), s.served.URL, &websocket.DialOptions{
			Host: "notes--acme.apps.test", HTTPHeader: http.Header{"Cookie": {cookie}, "Origin": {origin}},
		})
		if err == nil || response.StatusCode != want {
			t.Errorf("a WebSocket of %s: %v", origin, response)
		}
	}
}

// Early hints are not the response: what follows them is, also if it is a refusal. Their headers reach no other host either.
func TestInformationalResponses(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.Header().Set("Set-Cookie", "a=1; Domain=apps.test")
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		w.WriteHeader(http.StatusEarlyHints)
		if r.URL.Path == "/fails" {
			panic(http.ErrAbortHandler)
		}
	}))
	var hints http.Header
	traced := func(target string) *http.Request {
		r := s.request("GET", target, "")
		return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { hints = http.Header(h); return nil },
		}))
	}
	response, body := s.send(traced("/"))
	s.expect(response, body, 200, "")
	if hints.Get("Link") == "" || len(hints) != 1 {
		t.Errorf("the hints have %v", hints)
	}
	response, body = s.send(traced("/fails"))
	s.expect(response, body, 502, "unavailable")
}

// An app cannot take a connection over with HTTP/2: further requests on the connection would not pass the edge.
func TestUpgradeToHTTP2IsNotPassedOn(t *testing.T) {
	s := newStage(t)
	seen := make(chan http.Header, 1)
	s.publish(s.register("notes", func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c"} {
		s.get("/", "Connection", "Upgrade", "Upgrade", protocol, "Http2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
		if got := <-seen; got.Get("Upgrade") != "" || got.Get("Http2-Settings") != "" || got.Get("Connection") != "" {
			t.Errorf("Upgrade: %s reaches the app: %v", protocol, got)
		}
	}
}
