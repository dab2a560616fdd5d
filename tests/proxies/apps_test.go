package proxies

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// edgeHost is the edge host in the example configurations, and appHost the host of the app of these tests.
const (
	edgeHost = "apps.example.com"
	appHost  = "site--acme." + edgeHost
)

// testApp visits a private app through the proxy, with HTTP/1.1 and with HTTP/2.
func (s *site) testApp() {
	if os.Getuid() != 0 {
		testmachine.Lacks(s, "isolated computers need root")
	}
	s.send("MKCOL", "/v1/ws/acme/drive/site", s.key, nil)
	if _, err := s.api().RegisterApp(s.Context(), "acme", client.NewApp{
		Path: "site", Slug: "site", Command: "exec " + computer.ProgramPath + " " + appCommand, APIScopes: []string{},
	}); err != nil {
		if client.HasCode(err, "forbidden") {
			testmachine.Lacks(s, "this machine cannot isolate processes: "+err.Error())
		}
		s.Fatal(err)
	}
	for version, transport := range map[string]*http.Transport{"HTTP/1.1": s.transport(false), "HTTP/2.0": s.transport(true)} {
		v := &visitor{site: s, version: version, client: &http.Client{
			Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
		v.testLaunch()
		v.testForwarding()
		v.testBodies()
		v.testStream()
		v.testWebSocket()
		transport.CloseIdleConnections()
	}
	s.testDirectVisitor()
}

// A visitor is a browser that visits the app with one version of HTTP.
type visitor struct {
	*site
	version string
	client  *http.Client
	cookie  string
}

// get requests a path of the app, and returns the response with its body.
func (v *visitor) get(path string, headers ...string) (*http.Response, string) {
	v.Helper()
	return v.do("GET", path, nil, append([]string{"Cookie", v.cookie}, headers...)...)
}

func (v *visitor) do(method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "https://"+appHost+path, body)
	if err != nil {
		v.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	answer, err := v.client.Do(r)
	if err != nil {
		v.Fatalf("%s %s %s: %v", v.version, method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		v.Errorf("%s %s %s: %v", v.version, method, path, err)
	}
	if answer.Proto != v.version {
		v.Errorf("%s %s: the response is %s", v.version, path, answer.Proto)
	}
	return answer, string(text)
}

// expectRedirect fails the test unless a response redirects to an address that begins with a text.
func (v *visitor) expectRedirect(r *http.Response, status int, to string) {
	v.Helper()
	if at := r.Header.Get("Location"); r.StatusCode != status || !strings.HasPrefix(at, to) {
		v.Errorf("%s %s: %d, Location %q, want %d %q", v.version, r.Request.URL.Path, r.StatusCode, at, status, to)
	}
}

// testLaunch follows the redirects of a browser from the app to the platform and back.
func (v *visitor) testLaunch() {
	const path = "/deep/page?x=1"
	refused, _ := v.get(path, "Accept", "text/html")
	at := "https://" + host + "/v1/ws/acme/apps/site/launch?" + url.Values{"host": {appHost}, "path": {path}}.Encode()
	v.expectRedirect(refused, http.StatusFound, at)
	launch := v.request("GET", strings.TrimPrefix(at, "https://"+host), v.key, nil)
	launched, err := v.client.Do(launch)
	if err != nil {
		v.Fatal(err)
	}
	launched.Body.Close()
	v.expectRedirect(launched, http.StatusSeeOther, "https://"+appHost+path+"&service_access=")
	granted, _ := v.get(strings.TrimPrefix(launched.Header.Get("Location"), "https://"+appHost), "Accept", "text/html")
	v.expectRedirect(granted, http.StatusSeeOther, "https://"+appHost+path)
	cookies := granted.Cookies()
	if len(cookies) != 1 || cookies[0].Name != "__Host-atelier-visit" || !cookies[0].Secure || !cookies[0].HttpOnly || cookies[0].Domain != "" {
		v.Fatalf("%s: the cookies are %v", v.version, cookies)
	}
	v.cookie = cookies[0].Name + "=" + cookies[0].Value
}

// testForwarding sends a request with headers that claim another client, host and scheme, and follows redirects of the app.
func (v *visitor) testForwarding() {
	got, body := v.get("/deep/page?x=1", "Cookie", "own=1", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", "evil.example",
		"X-Forwarded-Proto", "http", "Forwarded", "for=192.0.2.1;proto=http;host=evil.example", "X-Real-Ip", "192.0.2.1")
	var s seen
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		v.Fatalf("%s: %s %s", v.version, got.Status, body)
	}
	if want := (seen{Host: appHost, URI: "/deep/page?x=1", Client: visitorAddress, Proto: "https", ForwardedHost: appHost, Cookie: "own=1"}); s != want {
		v.Errorf("%s: the app sees %+v, want %+v", v.version, s, want)
	}
	if robots := got.Header.Get("X-Robots-Tag"); robots != "noindex" {
		v.Errorf("%s: X-Robots-Tag is %q", v.version, robots)
	}
	moved, _ := v.get("/redirect")
	v.expectRedirect(moved, http.StatusFound, "/elsewhere")
	moved, _ = v.get("/absolute")
	v.expectRedirect(moved, http.StatusFound, "https://"+appHost+"/elsewhere")
}

// testBodies sends and receives large bodies, and sends one that is refused.
func (v *visitor) testBodies() {
	for name, body := range map[string]io.Reader{"with a length": bytes.NewReader(upload), "without a length": io.MultiReader(bytes.NewReader(upload))} {
		_, text := v.do("POST", "/upload", body, "Cookie", v.cookie, "Origin", "https://"+appHost)
		var s seen
		if err := json.Unmarshal([]byte(text), &s); err != nil || s.Bytes != int64(len(upload)) {
			v.Errorf("%s: the upload %s: %s", v.version, name, text)
		}
	}
	for _, path := range []string{"/download", "/chunks"} {
		if got, text := v.get(path); got.StatusCode != http.StatusOK || text != string(upload) {
			v.Errorf("%s %s: %s, %d bytes instead of %d", v.version, path, got.Status, len(text), len(upload))
		}
	}
	// The edge refuses it before it has read the body.
	if got, text := v.do("POST", "/upload", bytes.NewReader(upload)); got.StatusCode != http.StatusUnauthorized {
		v.Errorf("%s: an upload without access: %s %s", v.version, got.Status, text)
	}
}

// testStream reads the first event of a stream before the app sends the second: the proxy must not buffer it.
func (v *visitor) testStream() {
	ctx, cancel := context.WithTimeout(v.Context(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "https://"+appHost+"/events", nil)
	if err != nil {
		v.Fatal(err)
	}
	r.Header.Set("Cookie", v.cookie)
	answer, err := v.client.Do(r)
	if err != nil {
		v.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	if !lines.Scan() || lines.Text() != "data: first" {
		v.Fatalf("%s: the stream begins with %q, %v", v.version, lines.Text(), lines.Err())
	}
	v.do("POST", "/proceed", nil, "Cookie", v.cookie)
	lines.Scan() // the empty line that ends the first event
	if !lines.Scan() || lines.Text() != "data: second" {
		v.Errorf("%s: the stream goes on with %q, %v", v.version, lines.Text(), lines.Err())
	}
}

// testWebSocket sends messages over a WebSocket, which is a connection with HTTP/1.1.
func (v *visitor) testWebSocket() {
	ctx, cancel := context.WithTimeout(v.Context(), timeout)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://"+appHost+"/echo", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: v.transport(false)}, HTTPHeader: http.Header{"Cookie": {v.cookie}, "Origin": {"https://" + appHost}},
	})
	if err != nil {
		v.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for _, message := range []string{"hello", strings.Repeat("x", 1<<20)} {
		err := c.Write(ctx, websocket.MessageText, []byte(message))
		_, answer, read := c.Read(ctx)
		if err != nil || read != nil || string(answer) != strings.ToUpper(message) {
			v.Errorf("the echo of %d bytes has %d, %v, %v", len(message), len(answer), err, read)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		v.Errorf("close: %v", err)
	}
}

// visitorAddress is the address of visitors. It is no address of a trusted proxy.
const visitorAddress = "127.0.0.2"

// transport returns a transport to the proxy from the address of a visitor, which verifies the proxy's certificate.
func (s *site) transport(http2 bool) *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.roots}, ForceAttemptHTTP2: http2, MaxIdleConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialFrom(ctx, s.proxy) },
	}
}

func dialFrom(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(visitorAddress + ":0"))}).DialContext(ctx, "tcp", address)
}

// testDirectVisitor connects to the node without the proxy, from an address that is not trusted: no header changes the client address,
// and addresses keep the scheme and the host of the settings.
func (s *site) testDirectVisitor() {
	if _, err := s.api().SetAppVisibility(s.Context(), "acme", "site", client.AppVisibility{Visibility: "public"}); err != nil {
		s.Fatal(err)
	}
	r := s.request("GET", "/seen", "", nil, "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "http", "X-Forwarded-Host", "evil.example")
	r.URL.Scheme, r.URL.Host, r.Host = "http", s.node, appHost
	direct := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return dialFrom(ctx, address) }}
	answer, err := direct.RoundTrip(r)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	var got seen
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		s.Fatal(answer.Status, err)
	}
	if want := (seen{Host: appHost, URI: "/seen", Client: visitorAddress, Proto: "https", ForwardedHost: appHost}); got != want {
		s.Errorf("the app sees %+v, want %+v", got, want)
	}
}
