package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/edge"
)

// serveRaw makes a process of an app that answers each connection with bytes, once it has read the head of a request.
func (s *stage) serveRaw(appID, answer string) {
	s.Helper()
	s.serveConnections(appID, func(c net.Conn, in *bufio.Reader) {
		_, _ = io.WriteString(c, answer)
		_, _ = io.Copy(c, in) // what else reaches the app comes back
	})
}

// serveConnections makes a process of an app that reads the head of a request from each connection, has serve use the connection, and
// closes it.
func (s *stage) serveConnections(appID string, serve func(c net.Conn, in *bufio.Reader)) {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				if _, err := http.ReadRequest(in); err == nil {
					serve(c, in)
				}
			}()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[appID] = l.Addr().String()
}

// An app that changes the protocol without a request to gets no connection: further requests on it may come from other clients.
func TestUnaskedUpgrade(t *testing.T) {
	for name, answer := range map[string]string{
		"without a protocol":    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"with a protocol":       "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"with HTTP/2":           "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"with another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			id := s.register("notes", nil)
			s.publish(id)
			s.serveRaw(id, answer)
			const second = "GET /second HTTP/1.1\r\nHost: none--acme.apps.test\r\nCookie: secret=1\r\nConnection: close\r\n\r\n"
			for _, head := range []string{"", "Upgrade: websocket\r\n", "Connection: Upgrade\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n"} {
				got := s.raw("GET / HTTP/1.1\r\nHost: notes--acme.apps.test\r\n" + head + "\r\n" + second)
				if strings.Contains(got, " 101 ") || strings.Contains(got, "secret") || !strings.HasPrefix(got, "HTTP/1.1 502") {
					t.Errorf("%q: %s", head, got)
				}
			}
		})
	}
}

// An app that changes to another protocol than the client has asked for gets no connection, and none is counted or left open.
func TestWrongUpgrade(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.Upgrades = 1 })
	id := s.register("notes", nil)
	s.publish(id)
	for _, protocol := range []string{"other", "\x01"} {
		s.serveRaw(id, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
		got := s.raw("GET / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 502") {
			t.Errorf("%q: %s", protocol, got)
		}
	}
	if open := s.metric("atelier_edge_upgrades"); open != 0 {
		t.Errorf("%v upgraded connections are counted", open)
	}
	s.serveBy(id, echo(nil))
	s.echoes(s.dial(""), "one")
}

// Requests that ask for another protocol at the same time get no more connections than the server may have open.
func TestConcurrentUpgrades(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.Upgrades = 1 })
	const requests = 3
	var asked sync.WaitGroup
	asked.Add(requests)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		asked.Done()
		asked.Wait() // all are admitted before one is answered
		echo(nil)(w, r)
	}))
	statuses := make(chan int, requests)
	for range requests {
		go func() {
			c, response, err := websocket.Dial(t.Context(), s.served.URL+"/ws", &websocket.DialOptions{Host: "notes--acme.apps.test"})
			if err == nil {
				t.Cleanup(func() { c.CloseNow() })
			}
			if response == nil {
				t.Error(err)
				response = &http.Response{}
			}
			statuses <- response.StatusCode
		}()
	}
	count := map[int]int{}
	for range requests {
		count[<-statuses]++
	}
	if count[101] != 1 || count[503] != requests-1 || s.metric("atelier_edge_upgrades") != 1 {
		t.Errorf("the statuses %v and %v connections", count, s.metric("atelier_edge_upgrades"))
	}
}

// What a client sends in the new protocol reaches the app also if it arrives before the app has accepted the change.
func TestEarlyUpgradeData(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", nil)
	s.publish(id)
	s.serveRaw(id, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	c, err := net.Dial("tcp", s.served.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(longest)); err != nil {
		t.Fatal(err)
	}
	const early = "early"
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"+early); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	if response, err := http.ReadResponse(in, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", response, err)
	}
	if _, err := io.WriteString(c, " late"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("early late"))
	if n, err := io.ReadFull(in, got); err != nil {
		t.Fatalf("%q, %v", got[:n], err)
	}
	if string(got) != "early late" {
		t.Errorf("the app gets %q", got)
	}
}

// A response without a change of the protocol answers a request for one, and the connection remains one of HTTP.
func TestRefusedUpgrade(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", hello))
	const upgrade = "GET /%d HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	got := s.raw(fmt.Sprintf(upgrade, 1) + "GET /2 HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: close\r\n\r\n")
	if strings.Count(got, "HTTP/1.1 200 OK") != 2 || !strings.Contains(got, "notes--acme.apps.test/2 ") {
		t.Errorf("%s", got)
	}
	if open := s.metric("atelier_edge_upgrades"); open != 0 {
		t.Errorf("%v open upgrades", open)
	}
}

// What an app writes in place of a valid response adds no header and no further response to what the client gets.
func TestResponseSplitting(t *testing.T) {
	for name, answer := range map[string]string{
		"a carriage return":      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: a\rSet-Cookie: split=1\r\n\r\n",
		"a null":                 "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: a\x00\r\n\r\n",
		"a folded line":          "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: a\r\n Set-Cookie: split=1\r\n\r\n",
		"a line without a colon": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie split=1\r\n\r\n",
		"a reason with a line":   "HTTP/1.1 200 OK\rSet-Cookie: split=1\r\nContent-Length: 0\r\n\r\n",
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 50\r\n\r\nHTTP/1.1 200 OK\r\nSet-Cookie: split=1\r\n\r\n",
		"a second response":      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nSet-Cookie: split=1\r\nContent-Length: 0\r\n\r\n",
		"length and chunks":      "HTTP/1.1 200 OK\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nSet-Cookie: split=1\r\n\r\n",
		"no status":              "HTTP/1.1\r\nSet-Cookie: split=1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			id := s.register("notes", nil)
			s.publish(id)
			s.serveRaw(id, answer)
			got := s.raw("GET / HTTP/1.1\r\nHost: notes--acme.apps.test\r\nConnection: close\r\n\r\n")
			head, _, _ := strings.Cut(got, "\r\n\r\n")
			if strings.Count(got, "HTTP/1.1 ") != 1 || strings.Contains(head, "\nSet-Cookie: split") || strings.ContainsAny(strings.ReplaceAll(head, "\r\n", ""), "\r\n\x00") {
				t.Errorf("%q", got)
			}
		})
	}
}

// Trailers of an app that are not the platform's concern arrive; trailers that a program could take for headers of the head do not.
// Trailers of a client do not reach the app, where they could take the place of headers that the edge has removed.
func TestTrailers(t *testing.T) {
	s := newStage(t)
	trailers := make(chan http.Header, 1)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		trailers <- r.Trailer
		w.Header().Set("Trailer", "Set-Cookie, Grpc-Status")
		fmt.Fprint(w, "body")
		w.Header().Set("Set-Cookie", "a=1; Domain=apps.test")
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Clear-Site-Data", `"cookies"`)
		w.Header().Set(http.TrailerPrefix+"Checksum", "x")
	}))
	r := s.request("POST", "/", "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), -1
	r.Trailer = http.Header{"X-Forwarded-For": {"1.2.3.4"}, "Cookie": {"atelier=x"}, "X-Own": {"y"}}
	response, body := s.send(r)
	s.expect(response, body, 200, "body")
	if got := response.Trailer; got.Get("Set-Cookie") != "" || got.Get("Clear-Site-Data") != "" || got.Get("Grpc-Status") != "0" || got.Get("Checksum") != "x" {
		t.Errorf("the trailer is %v", got)
	}
	if got := <-trailers; got.Get("X-Forwarded-For") != "" || got.Get("Cookie") != "" {
		t.Errorf("the app gets the trailer %v", got)
	}
}

// A client cannot have headers removed that the edge adds, nor claim through other names where it comes from.
func TestConnectionHeaders(t *testing.T) {
	s := newStage(t)
	seen := make(chan http.Header, 1)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		w.Header().Set("Connection", "X-Request-Id, X-Robots-Tag, X-Own")
		w.Header().Set("X-Own", "1")
	}))
	claims := []string{
		"Proxy", "True-Client-Ip", "X-Client-Ip", "Client-Ip", "Cf-Connecting-Ip", "X-Cluster-Client-Ip", "Fastly-Client-Ip", "X-Scheme", "X-Host",
		"Front-End-Https", "X-Original-Host", "x_real_ip", "TRUE_CLIENT_IP",
	}
	headers := []string{"Connection", "close, X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, X-Request-Id, Cookie", "Cookie", "own=1"}
	for _, name := range claims {
		headers = append(headers, name, "1.2.3.4")
	}
	response, _ := s.get("/", headers...)
	got := <-seen
	for name, want := range map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "notes--acme.apps.test", "X-Forwarded-Proto": "http"} {
		if got.Get(name) != want {
			t.Errorf("%s is %q", name, got.Get(name))
		}
	}
	for name, values := range got {
		if strings.Contains(strings.Join(values, ","), "1.2.3.4") {
			t.Errorf("%s reaches the app", name)
		}
	}
	if got.Get("X-Request-Id") == "" || response.Header.Get("X-Request-Id") == "" || response.Header.Get("X-Robots-Tag") != "noindex" || response.Header.Get("X-Own") != "" {
		t.Errorf("request %v, response %v", got, response.Header)
	}
}

// A response has the Content-Type of the app, and none if the app sends none: browsers would run what looks like a page.
func TestContentType(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Content-Type"] = r.Header["Own-Type"] // nil: net/http adds none
		if r.URL.Query().Has("nosniff") {
			h.Set("X-Content-Type-Options", "nosniff")
		}
		if r.URL.Query().Has("hints") {
			w.WriteHeader(http.StatusEarlyHints)
		}
		if r.URL.Query().Has("length") {
			h.Set("Content-Length", "34")
		}
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
		for _, part := range []string{"<!doctype html>", "<script>1</script>\n"} {
			io.WriteString(w, part) // refused if the status has no body
			if r.URL.Query().Has("stream") {
				http.NewResponseController(w).Flush()
			}
		}
	}))
	served := httptest.NewUnstartedServer(s.edge)
	served.EnableHTTP2 = true
	served.StartTLS()
	t.Cleanup(served.Close)
	for protocol, of := range map[string]struct {
		address   string
		transport http.RoundTripper
	}{
		"HTTP/1.1": {s.served.URL, http.DefaultTransport},
		"HTTP/2.0": {served.URL, served.Client().Transport},
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			for _, status := range []int{200, 201, 204, 206, 302, 304, 404, 500, 599} {
				for _, query := range []string{"", "&nosniff", "&length", "&stream", "&hints", "&hints&stream&nosniff"} {
					for _, own := range []string{"", "text/plain"} {
						if status == 304 && own != "" {
							continue // net/http removes the type from a response without content
						}
						r := s.request(method, "/", "")
						var err error
						if r.URL, err = url.Parse(fmt.Sprintf("%s/?status=%d%s", of.address, status, query)); err != nil {
							t.Fatal(err)
						}
						var want []string
						if own != "" {
							want = []string{own}
							r.Header["Own-Type"] = want
						}
						response, err := of.transport.RoundTrip(r)
						if err != nil {
							t.Fatalf("%s %s %s: %v", protocol, method, r.URL.RawQuery, err)
						}
						_, _ = io.Copy(io.Discard, response.Body)
						response.Body.Close()
						if got := response.Header["Content-Type"]; response.Proto != protocol || response.StatusCode != status || !slices.Equal(got, want) {
							t.Errorf("%s %s %s: %s %s with the type %q, want %q", protocol, method, r.URL.RawQuery, response.Proto, response.Status, got, want)
						}
					}
				}
			}
		}
	}
}

// The host of a request over HTTP/2 is its authority, whatever else it says.
func TestAuthorityOfHTTP2(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", hello))
	s.register("tasks", hello)
	served := httptest.NewUnstartedServer(s.edge)
	served.EnableHTTP2 = true
	served.StartTLS()
	t.Cleanup(served.Close)
	for authority, want := range map[string]int{"tasks--acme.apps.test": 401, "NOTES--acme.apps.test.:443": 200, "notes--acme.apps.test@tasks--acme.apps.test": 404} {
		r := s.request("GET", "/", "", "Host", authority)
		r.Header["host"] = []string{"notes--acme.apps.test"} // not in canonical form, so that it is sent beside the authority
		r.URL.Scheme, r.URL.Host = "https", served.Listener.Addr().String()
		response, err := served.Client().Do(r)
		if err != nil {
			continue // refused before the edge
		}
		response.Body.Close()
		if response.StatusCode != want && response.StatusCode != 400 {
			t.Errorf("%s: %s", authority, response.Status)
		}
	}
}

// Forms of a host that no app has, and requests in absolute form.
func TestHostForms(t *testing.T) {
	s := newStage(t)
	s.publish(s.register("notes", hello))
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: [::1]:80\r\n":                                                     "404",
		"GET / HTTP/1.1\r\nHost: [notes--acme.apps.test]\r\n":                                      "404",
		"GET / HTTP/1.1\r\nHost: notes--acme.apps.test..\r\n":                                      "404",
		"GET / HTTP/1.1\r\nHost: .notes--acme.apps.test\r\n":                                       "404",
		"GET / HTTP/1.1\r\nHost: notes--acme.apps.test:80:80\r\n":                                  "404",
		"GET / HTTP/1.1\r\nHost: notes--acme.apps.test%00.evil.test\r\n":                           "404",
		"GET / HTTP/1.1\r\nHost:\r\n":                                                              "404",
		"GET http://a:b@notes--acme.apps.test/x HTTP/1.1\r\nHost: elsewhere.test\r\n":              "200",
		"GET https://notes--acme.apps.test:1/x HTTP/1.1\r\nHost: elsewhere.test\r\n":               "200",
		"GET ftp://notes--acme.apps.test/x HTTP/1.1\r\nHost: notes--acme.apps.test\r\n":            "200",
		"GET //notes--acme.apps.test/x HTTP/1.1\r\nHost: none--acme.apps.test\r\n":                 "404",
		"GET http:notes--acme.apps.test HTTP/1.1\r\nHost: notes--acme.apps.test\r\n":               "400",
		"GET / HTTP/1.1\r\nHost: notes--acme.apps.test\r\n : x\r\n":                                "400",
		"GET / HTTP/1.1\r\nhOST: none--acme.apps.test\r\nX: y\r\n Host: notes--acme.apps.test\r\n": "404",
	} {
		got := s.raw(request + "Connection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%q: %.100q, want %s", request, got, want)
		}
		if strings.Contains(got, "a:b") {
			t.Errorf("the user of the target reaches the app: %q", got)
		}
	}
}

// An app that sends informational responses without end gives no response.
func TestManyInformationalResponses(t *testing.T) {
	s := newStage(t)
	id := s.register("notes", nil)
	s.publish(id)
	s.serveRaw(id, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n", 200))
	hints := 0
	r := s.request("GET", "/", "")
	response, body := s.send(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil },
	})))
	s.expect(response, body, 502, "unavailable")
	if hints > 16 {
		t.Errorf("%d informational responses are passed on", hints)
	}
}
