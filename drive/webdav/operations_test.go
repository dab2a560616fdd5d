package webdav_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/entity"
)

func TestFiles(t *testing.T) {
	s := serve(t)
	etag := s.do("PUT", "/a.txt", "one").is(201).header.Get("ETag")
	s.do("HEAD", "/a.txt", "").is(200)
	got := s.do("GET", "/a.txt", "").is(200).says("one")
	if got.header.Get("ETag") != etag || etag == "" {
		t.Errorf("GET has the ETag %q, but PUT returned %q", got.header.Get("ETag"), etag)
	}
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Content-Type": "text/plain; charset=utf-8",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q", name, got.header.Get(name))
		}
	}
	s.do("GET", "/a.txt", "", "If-None-Match: "+etag).is(304)
	s.do("GET", "/a.txt", "", "Range: bytes=1-").is(206).says("ne")
	for name, refused := range map[string]*answer{
		"invalid_range":       s.do("GET", "/a.txt", "", "Range: bytes=9-").is(416),
		"precondition_failed": s.do("GET", "/a.txt", "", "If-Match: \"another\"").is(412),
	} {
		if refused.says(`"error":"` + name + `"`); refused.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", name, refused.header)
		}
	}
	if size := s.do("GET", "/a.txt", "", "Range: bytes=9-").is(416).header.Get("Content-Range"); size != "bytes */3" {
		t.Errorf("Content-Range is %q", size)
	}
	for _, of := range []string{"1-", "9-"} { // RFC 9110, section 14.2
		if head := s.do("HEAD", "/a.txt", "", "Range: bytes="+of).is(200); head.header.Get("Content-Length") != "3" || head.header.Get("Content-Range") != "" {
			t.Errorf("HEAD with a range: %v", head.header)
		}
	}
	s.do("HEAD", "/a.txt", "", "If-Match: \"another\"").is(412)
	s.do("PUT", "/a.txt", "two").is(204)
	s.do("PUT", "/empty", "").is(201)
	s.do("GET", "/empty", "").is(200)
	s.do("DELETE", "/a.txt", "").is(204)
	s.do("GET", "/a.txt", "").is(404).says(`"error":"not_found"`)
	s.rows("create file a.txt", "read a.txt", "read a.txt", "write a.txt", "create file empty", "delete file a.txt")
}

func TestFolders(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	s.do("MKCOL", "/d/", "").is(405)
	s.do("MKCOL", "/", "").is(405)
	s.do("MKCOL", "/x/y", "").is(409)
	s.do("MKCOL", "/e", "body").is(415)
	for _, path := range []string{"/d", "/"} { // RFC 9110, section 15.5.6
		if allow := s.do("PUT", path, "x").is(405).header.Get("Allow"); allow != webdav.Allow {
			t.Errorf("PUT %s: Allow is %q", path, allow)
		}
	}
	s.do("PUT", "/x/y", "x").is(409)
	s.do("PUT", "/d/f", "x").is(201)
	s.do("PUT", "/d/f/g", "x").is(409)
	s.do("MKCOL", "/d/sub", "").is(201)
	s.do("GET", "/d", "").is(200).says("f\n", "sub/\n")
	s.do("DELETE", "/d/f/", "").is(404)
	s.do("DELETE", "/", "").is(403)
	s.do("DELETE", "/d/", "").is(204)
	s.do("DELETE", "/d/", "").is(404)
	s.rows("create folder d", "create file d/f", "create folder d/sub", "delete folder d count 3")
}

func TestCopyAndMove(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/src", "").is(201)
	s.do("PUT", "/src/a", "a").is(201)
	s.do("PUT", "/b", "b").is(201)
	to := func(path string) string { return "Destination: " + prefix + path }
	s.do("COPY", "/src", "", to("/copy")).is(201)
	s.do("COPY", "/src", "", to("/copy"), "Overwrite: F").is(412)
	s.do("COPY", "/src", "", to("/copy")).is(204)
	s.do("COPY", "/src", "", to("/bare"), "Depth: 0").is(201)
	s.do("COPY", "/src", "", to("/src/inside")).is(403)
	s.do("COPY", "/b", "", to("/nowhere/b")).is(409)
	s.do("COPY", "/b", "", "Destination: http://elsewhere.test"+prefix+"/c").is(502)
	s.do("COPY", "/b", "", "Destination: "+s.server.URL+"/v1/ws/other/drive/c").is(502)
	s.do("MOVE", "/src", "", to("/b")).is(204)
	s.do("MOVE", "/b/a", "", to("/copy/a")).is(204)
	s.do("MOVE", "/b", "", to("/")).is(403)
	s.do("MOVE", "/none", "", to("/c")).is(404)
	if s.content("copy/a") != "a" {
		t.Error("the moved file's content differs")
	}
	s.rows("create folder src", "create file src/a", "create file b",
		"create folder copy count 2", "create folder copy count 2", "create folder bare count 1",
		"rename folder b from src", "rename file copy/a from b/a")
	s.eventually(func() bool { return len(s.staged()) == 0 })
}

// TestDepthOfFiles sends every depth for a file, which has no members, and for a folder.
func TestDepthOfFiles(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	for _, depth := range []string{"", "0", "1", "infinity", "Infinity"} {
		s.do("PUT", "/a", "1").is(201)
		s.do("PROPFIND", "/a", "", "Depth: "+depth).is(207).says("<D:href>" + prefix + "/a</D:href>")
		s.do("MOVE", "/a", "", "Destination: "+prefix+"/b", "Depth: "+depth).is(201)
		s.do("DELETE", "/b", "", "Depth: "+depth).is(204)
		s.do("DELETE", "/b", "", "Depth: "+depth).is(404)
		s.do("PROPFIND", "/b", "", "Depth: "+depth).is(404)
	}
	for _, depth := range []string{"0", "1"} {
		s.do("MOVE", "/d", "", "Destination: "+prefix+"/e", "Depth: "+depth).is(400)
		s.do("DELETE", "/d", "", "Depth: "+depth).is(400)
	}
	s.do("PUT", "/a", "1").is(201)
	for _, method := range []string{"PROPFIND", "MOVE", "DELETE", "COPY", "LOCK"} {
		s.do(method, "/a", "<propfind xmlns=\"DAV:\"><prop/></propfind>", "Destination: "+prefix+"/b", "Depth: 2").is(400)
	}
	s.do("PROPFIND", "/d", "").is(403).says("propfind-finite-depth")
}

// TestDestinationForms sends destinations that a URL parser accepts, and that name something else than a path of the drive.
func TestDestinationForms(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	host := strings.TrimPrefix(s.server.URL, "http://")
	for destination, want := range map[string]int{
		"ftp://" + host + prefix + "/b": 502, "file://" + prefix + "/b": 502, "javascript:" + prefix + "/b": 502, "urn:" + prefix + "/b": 502,
		"http://" + host + prefix + "/b?x": 400, "http://" + host + prefix + "/b?": 400, "http://" + host + prefix + "/b#x": 400,
		"http://" + host + prefix + "/b#": 400, "http://ada@" + host + prefix + "/b": 400, "http://ada:secret@" + host + prefix + "/b": 400,
		"http://@" + host + prefix + "/b": 400, "//" + host + prefix + "/b": 400, "http:" + prefix + "/b": 400, "http://" + prefix + "/b": 400,
		"http:" + host + prefix + "/b": 400, "http://elsewhere.test" + prefix + "/b": 502, "b": 502, "/b": 502, "*": 502, "http://[::1": 400,
		"HTTPS://" + host + prefix + "/b": 201, "http://" + strings.ToUpper(host) + prefix + "/c%3Fd%23e@f": 201,
	} {
		for _, method := range []string{"COPY", "MOVE"} {
			if method == "MOVE" && want == 201 {
				continue
			}
			request, err := http.NewRequestWithContext(t.Context(), method, s.url("/a"), nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Destination", destination)
			response, err := s.server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s to %q: %d, want %d", method, destination, response.StatusCode, want)
			}
		}
	}
	if got := len(s.activity.Rows()); got != 3 {
		t.Errorf("%d rows, want 3", got)
	}
	if s.content("b") != "1" || s.content("c?d#e@f") != "1" {
		t.Error("a copy has another content")
	}
	// The tag of an If header is such a URL, too: a list of another resource is false.
	etag := s.do("GET", "/a", "").header.Get("ETag")
	s.do("PUT", "/a", "2", "If: <"+s.url("/a")+"?x> (["+etag+"])").is(412)
	s.do("PUT", "/a", "2", "If: <ftp://"+host+prefix+"/a> (["+etag+"])").is(412)
	s.do("PUT", "/a", "2", "If: <"+s.url("/a")+"> (["+etag+"])").is(204)
}

func TestGeneratedTrees(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/p", "").is(201)
	s.do("MKCOL", "/p/node_modules", "").is(201)
	s.do("MKCOL", "/p/node_modules/.git", "").is(201)
	s.do("PUT", "/p/node_modules/.git/x", "x").is(201)
	s.do("MOVE", "/p/node_modules/.git/x", "", "Destination: "+prefix+"/p/x").is(201)
	s.rows("create folder p", "create folder p/node_modules",
		"create folder p/node_modules/.git tree p/node_modules",
		"create file p/node_modules/.git/x tree p/node_modules",
		"rename file p/x from p/node_modules/.git/x from-tree p/node_modules")
}

func TestPreconditions(t *testing.T) {
	s := serve(t)
	etag := s.do("PUT", "/a", "1", "If-None-Match: *").is(201).header.Get("ETag")
	s.do("PUT", "/a", "2", "If-None-Match: *").is(412)
	s.do("PUT", "/a", "2", `If-Match: "other"`).is(412)
	s.do("PUT", "/a", "2", "If-Match: "+etag).is(204)
	s.do("DELETE", "/a", "", "If-Match: "+etag).is(412)
	s.do("PUT", "/a", "3", `If: (["other"])`).is(412)
	s.do("PUT", "/a", "3", `If: (Not ["other"])`).is(204)
	s.do("PUT", "/a", "4", `If: (["other"]) (Not <DAV:no-lock>)`).is(204)
	s.do("PUT", "/a", "5", `If: (garbage`).is(400)
	s.do("PUT", "/a", "5", "If-Unmodified-Since: Mon, 02 Jan 2006 15:04:05 GMT").is(412)
	if got := s.content("a"); got != "4" {
		t.Errorf("content %q", got)
	}
}

func TestPropertiesAreKeptByPutCopyAndMove(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	patch := `<propertyupdate xmlns="DAV:" xml:lang="de"><set><prop><x:mood xmlns:x="urn:x" x:deep="1">so <x:b>so</x:b></x:mood></prop></set></propertyupdate>`
	s.do("PROPPATCH", "/a", patch).is(207).says("200 OK")
	s.do("PUT", "/a", "2").is(204)
	s.do("COPY", "/a", "", "Destination: "+prefix+"/b").is(201)
	s.do("MOVE", "/b", "", "Destination: "+prefix+"/c").is(201)
	find := `<propfind xmlns="DAV:"><prop><mood xmlns="urn:x"/><none xmlns="urn:x"/><getetag/></prop></propfind>`
	for _, path := range []string{"/a", "/c"} {
		s.do("PROPFIND", path, find, "Depth: 0").is(207).says(`xml:lang="de"`, `so <b xmlns="urn:x">so</b>`, "404 Not Found", `<D:getetag>"`)
	}
	s.do("PROPFIND", "/", "", "Depth: 1").is(207).says("<D:href>"+prefix+"/</D:href>", "urn:x")
	s.do("PROPPATCH", "/a", `<propertyupdate xmlns="DAV:"><remove><prop><mood xmlns="urn:x"/></prop></remove></propertyupdate>`).is(207)
	if got := s.do("PROPFIND", "/a", "", "Depth: 0").is(207); strings.Contains(got.body, "urn:x") {
		t.Error("PROPFIND still returns the removed property")
	}
	s.do("PROPPATCH", "/a", `<propertyupdate xmlns="DAV:"><set><prop><getetag>x</getetag><m xmlns="urn:x"/></prop></set></propertyupdate>`).
		is(207).says("403 Forbidden", "424 Failed Dependency")
	// A quotation mark is stored as five bytes.
	big := `<propertyupdate xmlns="DAV:"><set><prop><m xmlns="urn:x">` + strings.Repeat(`"`, 20<<10) + `</m></prop></set></propertyupdate>`
	s.do("PROPPATCH", "/a", big).is(207).says("507 Insufficient Storage")
	s.rows("create file a", "write a", "create file b", "rename file c from b")
}

func TestPropfindRefusals(t *testing.T) {
	s := serve(t)
	s.do("PROPFIND", "/", "", "Depth: infinity").is(403).says("propfind-finite-depth")
	s.do("PROPFIND", "/", "").is(403)
	s.do("PROPFIND", "/none", "", "Depth: 0").is(404)
	s.do("PROPFIND", "/", "<propfind", "Depth: 0").is(400)
	s.do("PROPFIND", "/", `<D:propfind xmlns:D="DAV:"><D:prop><x:a xmlns:x=""/></D:prop></D:propfind>`, "Depth: 0").is(400)
	s.do("PROPFIND", "/", `<propfind xmlns="DAV:"><!-- `+strings.Repeat("x", 2<<20)+" --></propfind>", "Depth: 0").is(413)
	s.do("PROPFIND", "/", strings.Repeat("<a>", 200), "Depth: 0").is(400)
	s.do("BREW", "/", "").is(405)
	if allow := s.do("OPTIONS", "/", "").is(200).header.Get("Dav"); allow != "1, 2" {
		t.Errorf("DAV: %q", allow)
	}
}

func TestPutKeepsMode(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/run.sh", "1").is(201)
	if err := os.Chmod(s.files("run.sh"), 0o751); err != nil {
		t.Fatal(err)
	}
	s.do("PUT", "/run.sh", "2").is(204)
	if info, err := os.Stat(s.files("run.sh")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestLinksOutOfTheDriveAreNotFollowed(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/in", "").is(201)
	s.do("PUT", "/in/a", "inside").is(201)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"abs": secret, "dir": filepath.Dir(secret), "tmp": "../tmp", "up": "../..", "good": "in", "loop": "loop", "in/up": "../../tmp",
	} {
		if err := os.Symlink(target, s.files(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/abs", "/dir/secret", "/tmp", "/up", "/loop", "/in/up", "/tmp/x"} {
		s.do("GET", path, "").is(404)
		s.do("PROPFIND", path, "", "Depth: 1").is(404)
	}
	s.do("GET", "/good/a", "").is(200).says("inside")
	for _, path := range []string{"/dir/new", "/tmp/new", "/up/new", "/good/new", "/in/up/new"} {
		s.do("PUT", path, "x").is(409)
		s.do("MKCOL", path, "").is(409)
		s.do("MOVE", "/in/a", "", "Destination: "+prefix+path).is(409)
		s.do("COPY", "/in/a", "", "Destination: "+prefix+path).is(409)
		s.do("DELETE", path, "").is(409)
	}
	s.do("DELETE", "/dir/secret", "").is(409)
	s.do("PUT", "/abs", "replaced").is(204)
	s.do("COPY", "/in", "", "Destination: "+prefix+"/copied").is(201)
	s.do("GET", "/copied/up", "").is(404)
	s.do("DELETE", "/dir", "").is(204)
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
		t.Errorf("the file outside the drive was changed: %q %v", got, err)
	}
	listing := s.do("GET", "/", "").is(200).body
	if names := strings.Fields(listing); !slices.Contains(names, "good/") || slices.Contains(names, "tmp") || slices.Contains(names, "tmp/") {
		t.Errorf("listing %q", names)
	}
}

func TestSpecialFilesAreNotOpened(t *testing.T) {
	s := serve(t)
	pipe(t, s.files("pipe"))
	if err := os.WriteFile(s.files("line\nbreak"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/pipe", "").is(404)
	if got := s.do("GET", "/", "").is(200).body; got != "" {
		t.Errorf("listing %q", got)
	}
	s.do("COPY", "/pipe", "", "Destination: "+prefix+"/p").is(404)
	s.do("PROPFIND", "/", "", "Depth: 1").is(207)
	s.do("DELETE", "/pipe", "").is(204)
}

func TestPaths(t *testing.T) {
	s := serve(t)
	for path, status := range map[string]int{
		"/a%2Fb": 400, "/%2e%2e/x": 400, "/%2e": 400, "/a//b": 400, "/%00": 400, "/%ff": 400, "/a%0Ab": 400,
		"/" + strings.Repeat("x", 256): 400, "/" + strings.Repeat("x", 255): 201, "/%C3%BC%20%23%3F%25": 201, "/a/": 400,
	} {
		s.do("PUT", path, "x").is(status)
	}
	// Some clients do not encode all characters that they should. That must not turn an encoded slash into a separator.
	s.do("MKCOL", "/ü", "").is(201)
	for _, path := range []string{"/ü%2Fx", "/%C3%BC%2F^", "/x|y%2Fz"} {
		if status := statusOf(t, s.server, "PUT "+prefix+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"); !strings.Contains(status, " 400 ") {
			t.Errorf("PUT %s: got %q, want 400", path, status)
		}
		s.do("COPY", "/ü", "", "Destination: "+prefix+path).is(400)
	}
	s.do("GET", "/%c3%bc %23%3f%25", "").is(200)
	s.do("PROPFIND", "/", "", "Depth: 1").is(207).says(prefix + "/%C3%BC%20%23%3F%25<")
	response, err := s.server.Client().Get(s.server.URL + "/v1/ws/acme/drives/x")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("GET below another prefix: got %d, want 404", response.StatusCode)
	}
}

// TestAuthenticateRefusesEveryChange lets Authenticate refuse the access to each method that changes the drive. ServeDrive must
// return that error without a response, and nothing may change.
func TestAuthenticateRefusesEveryChange(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	s.do("MKCOL", "/d", "").is(201)
	rows := []string{"create file a", "create folder d"}
	handler := webdav.New(s.drives, slog.New(slog.DiscardHandler))
	refusal := entity.Errorf(entity.Unauthorized, "no longer")
	for _, change := range []struct{ method, path, body, headers string }{
		{"PUT", "/a", "2", ""},
		{"PUT", "/b", "2", ""},
		{"DELETE", "/a", "", ""},
		{"DELETE", "/d", "", ""},
		{"MKCOL", "/e", "", ""},
		{"COPY", "/a", "", "Destination: " + prefix + "/b"},
		{"COPY", "/d", "", "Destination: " + prefix + "/e"},
		{"MOVE", "/a", "", "Destination: " + prefix + "/b"},
		{"PROPPATCH", "/a", propertyUpdate(`<m xmlns="urn:x"/>`), ""},
		{"LOCK", "/a", exclusive, ""},
		{"LOCK", "/b", exclusive, ""},
	} {
		confirmed := 0
		request := httptest.NewRequest(change.method, prefix+change.path, strings.NewReader(change.body))
		if name, value, given := strings.Cut(change.headers, ": "); given {
			request.Header.Set(name, value)
		}
		access := accessOf(request)
		access.Authenticate = func() error { confirmed++; return refusal }
		recorder := httptest.NewRecorder()
		err := handler.ServeDrive(recorder, request, prefix, access)
		if err != error(refusal) || confirmed != 1 || recorder.Body.Len() > 0 {
			t.Errorf("%s %s: %v, confirmed %d times, answered %s", change.method, change.path, err, confirmed, recorder.Body)
		}
	}
	// No command decides these, so the access is verified as well.
	token := s.lock("/d", exclusive, 200)
	for _, change := range []struct{ method, path, body string }{
		{"PROPPATCH", "/a", propertyUpdate(`<m xmlns="urn:x"/>`)}, {"LOCK", "/a", exclusive}, {"UNLOCK", "/d", ""},
	} {
		request := httptest.NewRequest(change.method, prefix+change.path, strings.NewReader(change.body))
		request.Header.Set("Lock-Token", token)
		access := accessOf(request)
		access.Authorize = func() error { return refusal }
		if err := handler.ServeDrive(httptest.NewRecorder(), request, prefix, access); err != error(refusal) {
			t.Errorf("%s without access: %v", change.method, err)
		}
	}
	s.rows(rows...)
	s.do("PROPFIND", "/", "", "Depth: 1").is(207)
	s.do("PUT", "/a", "3").is(204)   // no lock was acquired
	s.do("PUT", "/d/x", "3").is(423) // and none released
	for _, name := range s.staged() {
		if !isTrash(name) {
			t.Errorf("%s remains in the staging folder", name)
		}
	}
}
