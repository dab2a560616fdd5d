package http_test

import (
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/tests/testmachine"
)

// sendAbove sends a request to a handler. The credential is the whole Authorization header; "": the request has none.
func sendAbove(t *testing.T, h nethttp.Handler, method, path, credential, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host = "localhost"
	if credential != "" {
		r.Header.Set("Authorization", credential)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func basic(key string) string {
	r := nethttp.Request{Header: nethttp.Header{}}
	r.SetBasicAuth("any", key)
	return r.Header.Get("Authorization")
}

// TestOptionsAboveDrives sends the first request of Windows, which has no credential, to each prefix of a drive's address.
func TestOptionsAboveDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	server := sc.stage.node.Server
	for path, allow := range map[string]string{
		"/": "GET, HEAD, OPTIONS, PROPFIND", "/v1": "OPTIONS, PROPFIND", "/v1/": "OPTIONS, PROPFIND", "/v1/ws": "OPTIONS, PROPFIND",
		"/v1/ws/": "OPTIONS, PROPFIND", sc.space(""): "OPTIONS, PROPFIND", sc.space("/"): "OPTIONS, PROPFIND",
		"/v1/ws/none": "OPTIONS, PROPFIND", "/v1/ws/NOT%20a%20slug/": "OPTIONS, PROPFIND",
	} {
		got := sendAbove(t, server, "OPTIONS", path, "", "", "User-Agent", "Microsoft-WebDAV-MiniRedir/10.0.19045", "Translate", "f")
		header := got.Result().Header
		if got.Code != 200 || header.Get("DAV") != "1, 2" || header.Get("MS-Author-Via") != "DAV" || header.Get("Allow") != allow || got.Body.Len() > 0 {
			t.Errorf("OPTIONS %s: %d %v %s", path, got.Code, header, got.Body)
		}
	}
}

// TestPropfindAboveDrives sends PROPFIND to each prefix of a drive's address, with and without the credential of a member.
func TestPropfindAboveDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	server, owner, outsider := sc.stage.node.Server, basic(sc.people["owner"].key), basic(sc.people["outsider"].key)
	folder := func(href, name string) string {
		return "<D:response><D:href>" + href + "</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype><D:displayname>" +
			name + "</D:displayname></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
	}
	for _, test := range []struct{ path, self, child string }{
		{"/", folder("/", "/"), folder("/v1/", "v1")},
		{"/v1", folder("/v1/", "v1"), folder("/v1/ws/", "ws")},
		{"/v1/", folder("/v1/", "v1"), folder("/v1/ws/", "ws")},
		{"/v1/ws", folder("/v1/ws/", "ws"), folder(sc.space("/"), sc.slug)},
		{"/v1/ws/", folder("/v1/ws/", "ws"), folder(sc.space("/"), sc.slug)},
		{sc.space(""), folder(sc.space("/"), sc.slug), folder(sc.space("/drive/"), "drive")},
		{sc.space("/"), folder(sc.space("/"), sc.slug), folder(sc.space("/drive/"), "drive")},
	} {
		got := sendAbove(t, server, "PROPFIND", test.path, owner, "", "Depth", "0")
		if body := got.Body.String(); got.Code != 207 || !strings.Contains(body, test.self) || strings.Count(body, "<D:response>") != 1 {
			t.Errorf("PROPFIND %s with Depth 0: %d %s", test.path, got.Code, body)
		}
		got = sendAbove(t, server, "PROPFIND", test.path, owner, "", "Depth", "1")
		if body := got.Body.String(); got.Code != 207 || !strings.Contains(body, test.self) || !strings.Contains(body, test.child) {
			t.Errorf("PROPFIND %s with Depth 1: %d %s", test.path, got.Code, body)
		}
		got = sendAbove(t, server, "PROPFIND", test.path, "", "", "Depth", "0")
		challenges := got.Result().Header["Www-Authenticate"]
		if got.Code != 401 || !slices.Contains(challenges, `Basic realm="Atelier", charset="UTF-8"`) {
			t.Errorf("PROPFIND %s without a credential: %d %q", test.path, got.Code, challenges)
		}
		for _, depth := range []string{"", "infinity"} {
			got := sendAbove(t, server, "PROPFIND", test.path, owner, "", "Depth", depth)
			if got.Code != 403 || !strings.Contains(got.Body.String(), "propfind-finite-depth") {
				t.Errorf("PROPFIND %s with Depth %q: %d %s", test.path, depth, got.Code, got.Body)
			}
		}
		if got := sendAbove(t, server, "PROPFIND", test.path, owner, "<", "Depth", "0"); got.Code != 400 {
			t.Errorf("PROPFIND %s with a malformed body: %d %s", test.path, got.Code, got.Body)
		}
	}
	if got := sendAbove(t, server, "PROPFIND", "/v1/ws", outsider, "", "Depth", "1"); got.Code != 207 || strings.Contains(got.Body.String(), sc.slug) {
		t.Errorf("an outsider sees %d %s", got.Code, got.Body)
	}
	foreign, none := sendAbove(t, server, "PROPFIND", sc.space(""), outsider, "", "Depth", "0"), sendAbove(t, server, "PROPFIND", "/v1/ws/none", outsider, "", "Depth", "0")
	if foreign.Code != 404 || none.Code != 404 || foreign.Body.String() != none.Body.String() {
		t.Errorf("a workspace of others: %d %s, and none: %d %s", foreign.Code, foreign.Body, none.Code, none.Body)
	}
}

// TestPropertiesAboveDrives asks for properties by name, as Windows and the Finder do.
func TestPropertiesAboveDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	for body, want := range map[string]string{
		`<propfind xmlns="DAV:"><prop><displayname/><quota-available-bytes/></prop></propfind>`: `<D:prop><D:displayname>ws</D:displayname></D:prop>` +
			`<D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop><quota-available-bytes xmlns="DAV:"/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status>`,
		`<propfind xmlns="DAV:"><propname/></propfind>`: `<D:prop><D:resourcetype/><D:displayname/></D:prop>`,
		`<propfind xmlns="DAV:"><allprop/></propfind>`:  `<D:prop><D:resourcetype><D:collection/></D:resourcetype><D:displayname>ws</D:displayname></D:prop>`,
	} {
		got := sendAbove(t, sc.stage.node.Server, "PROPFIND", "/v1/ws", basic(sc.people["owner"].key), body, "Depth", "0")
		if got.Code != 207 || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
}

// TestRefusalsAboveDrives changes the folders above the drives.
func TestRefusalsAboveDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	server, owner := sc.stage.node.Server, basic(sc.people["owner"].key)
	for _, path := range []string{"/v1", "/v1/", "/v1/ws", "/v1/ws/", sc.space(""), sc.space("/"), "/v1/ws/none"} {
		for _, method := range []string{"PUT", "DELETE", "MKCOL", "COPY", "MOVE", "PROPPATCH", "LOCK", "UNLOCK"} {
			got := sendAbove(t, server, method, path, owner, "", "Destination", "/v1/x")
			if got.Code != 405 || got.Result().Header.Get("Allow") != "OPTIONS, PROPFIND" || !strings.Contains(got.Body.String(), "method_not_allowed") {
				t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
			}
		}
		for _, method := range []string{"GET", "HEAD", "POST", "PATCH"} {
			if got := sendAbove(t, server, method, path, owner, ""); got.Code != 404 {
				t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
			}
		}
	}
	if got := sendAbove(t, server, "PUT", "/", owner, ""); got.Code != 405 || got.Result().Header.Get("Allow") != "GET, HEAD, OPTIONS, PROPFIND" {
		t.Errorf("PUT /: %d %v", got.Code, got.Result().Header)
	}
	if got := sendAbove(t, server, "GET", "/", "", ""); got.Code != 303 {
		t.Errorf("GET /: %d %s", got.Code, got.Body)
	}
	// HTTP Basic is accepted for WebDAV alone.
	if got := sendAbove(t, server, "GET", "/account", owner, ""); got.Code != 303 || !strings.HasPrefix(got.Result().Header.Get("Location"), "/sign-in") {
		t.Errorf("GET /account with HTTP Basic: %d %v", got.Code, got.Result().Header)
	}
	for _, path := range []string{"/v1/whoami", sc.space("/members")} {
		if got := sendAbove(t, server, "GET", path, owner, ""); got.Code != 401 {
			t.Errorf("GET %s with HTTP Basic: %d %s", path, got.Code, got.Body)
		}
	}
	for _, path := range []string{"//", "/v1//", "/v1/ws//", "/v1/ws/acme//", "/v1/other", "/v2"} {
		for _, method := range []string{"OPTIONS", "PROPFIND"} {
			if got := sendAbove(t, server, method, path, owner, "", "Depth", "0"); got.Code != 404 {
				t.Errorf("%s %s: %d %s", method, path, got.Code, got.Body)
			}
		}
	}
}

// TestClientFromTheRoot lists the whole server with rclone, from its root to a file of a drive, and writes a file.
func TestClientFromTheRoot(t *testing.T) {
	rclone, err := exec.LookPath("rclone")
	if err != nil {
		testmachine.Lacks(t, "rclone is not installed")
	}
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	live := httptest.NewServer(sc.stage.node.Server)
	defer live.Close()
	local := filepath.Join(t.TempDir(), "up.txt")
	if err := os.WriteFile(local, []byte("up"), 0o600); err != nil {
		t.Fatal(err)
	}
	remote := ":webdav,vendor=other,url='" + live.URL + "/':"
	run := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), rclone, args...)
		command.Env = append(os.Environ(), "HOME="+t.TempDir(), "NO_PROXY=*", "RCLONE_WEBDAV_BEARER_TOKEN="+sc.people["owner"].key)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("rclone %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	at := strings.TrimPrefix(sc.space("/drive/"), "/")
	run("copyto", local, remote+at+"up.txt")
	if got := strings.Fields(run("lsf", "--recursive", "--include", "/"+at+"**", remote)); !slices.Contains(got, at+"up.txt") || !slices.Contains(got, "v1/") {
		t.Errorf("the root lists %q", got)
	}
}
