package webdav_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/webdav"
	"github.com/atelier-run/atelier/entity"
)

// limitAllocations fails the test if the process allocates more than a number of bytes during a request.
func (s *site) limitAllocations(bytes uint64, request func()) {
	s.t.Helper()
	before := totalAlloc()
	request()
	if grown := totalAlloc() - before; grown > bytes {
		s.t.Errorf("a request allocated %d bytes, want at most %d", grown, bytes)
	}
}

// propertyUpdate returns the body of a PROPPATCH request that sets a property.
func propertyUpdate(property string) string {
	return `<D:propertyupdate xmlns:D="DAV:"><D:set><D:prop>` + property + `</D:prop></D:set></D:propertyupdate>`
}

func TestRepeatedNamespacesUseBoundedMemory(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	for _, size := range []int{10 << 10, 1 << 10} {
		space := strings.Repeat("<", size)
		declared := ` xmlns:a="` + strings.ReplaceAll(space, "<", "&lt;") + `"`
		many := strings.Repeat("<a:b/>", 1500)
		var attributes strings.Builder
		attributes.WriteString("<a:b ")
		for i := range 1500 {
			fmt.Fprintf(&attributes, `a:c%d="" `, i)
		}
		attributes.WriteString("/>")
		s.limitAllocations(64<<20, func() {
			s.do("LOCK", "/a", strings.Replace(exclusive, "<owner>me", "<owner"+declared+">"+many, 1)).is(400)
		})
		s.limitAllocations(64<<20, func() {
			s.do("LOCK", "/a", strings.Replace(exclusive, "<owner>me", "<owner"+declared+">"+attributes.String(), 1)).is(400)
		})
		want := 207
		if size > 1<<10 {
			want = 400
		}
		for _, inner := range []string{"<a:p" + declared + ">" + many + "</a:p>", strings.Replace(attributes.String(), "<a:b", "<a:b"+declared, 1)} {
			s.limitAllocations(64<<20, func() {
				answer := s.do("PROPPATCH", "/a", propertyUpdate(inner)).is(want)
				if want == 207 {
					answer.says("507 Insufficient Storage")
				}
			})
		}
	}
}

func TestPropfindLimitsPropertyNames(t *testing.T) {
	s := serve(t)
	for i := range 50 {
		s.do("PUT", fmt.Sprintf("/%d", i), "").is(201)
	}
	find := func(names string) string {
		return `<propfind xmlns="DAV:"><prop>` + names + `</prop></propfind>`
	}
	huge := fmt.Sprintf(`<b xmlns="%s"/>`, strings.Repeat("&lt;", 10<<10))
	s.do("PROPFIND", "/", find(huge), "Depth: 1").is(400)
	var names strings.Builder
	for i := range 15 {
		fmt.Fprintf(&names, `<b%d xmlns="%s"/>`, i, strings.Repeat("&lt;", 1000))
	}
	s.do("PROPFIND", "/", find(names.String()), "Depth: 1").is(400)
	// A property that is named several times appears once in the response.
	s.do("PROPPATCH", "/1", propertyUpdate(`<x:v xmlns:x="urn:x">`+strings.Repeat("x", 3000)+`</x:v>`)).is(207)
	got := s.do("PROPFIND", "/1", find(strings.Repeat(`<v xmlns="urn:x"/>`, 200)), "Depth: 0").is(207).says("200 OK")
	if len(got.body) > 8<<10 {
		t.Errorf("the response has %d bytes, want at most %d", len(got.body), 8<<10)
	}
}

func TestPropertyNamesWithColonsAreRefused(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	for _, name := range []string{`<:b xmlns="urn:x"/>`, `<b: xmlns="urn:x"/>`, `<b xmlns="urn:x" :c="1"/>`, `<b xmlns="urn:x"><c:/></b>`} {
		s.do("PROPPATCH", "/a", propertyUpdate(name)).is(400)
		s.do("PROPFIND", "/a", `<propfind xmlns="DAV:"><prop>`+name+`</prop></propfind>`, "Depth: 0").is(400)
	}
}

// TestRefusedPutIsAnsweredAfterReadDeadline sends only part of a body. The server's read deadline must still apply after the
// drive has refused the request, so that the client gets a response.
func TestRefusedPutIsAnsweredAfterReadDeadline(t *testing.T) {
	s := serve(t)
	handler := webdav.New(s.drives, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		handler.ServeDrive(w, r, prefix, accessOf(r))
	}))
	defer server.Close()
	for rest, want := range map[string]string{
		"If-Match: \"x\"\r\n\r\n":      " 412 ",
		"If-Match: \"x\"\r\n\r\nstart": " 412 ",
		"\r\nsome of it, then no more": " 400 ",
		"Content-Range: bytes\r\n\r\n": " 400 ",
	} {
		if got := statusOf(t, server, "PUT "+prefix+"/none HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"+rest); !strings.Contains(got, want) {
			t.Errorf("%q got %q, want %s", rest, got, want)
		}
	}
	s.eventually(func() bool { return len(s.staged()) == 0 })
}

// statusOf sends part of a request, keeps the connection open, and returns the status line of the response.
func statusOf(t *testing.T, server *httptest.Server, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(3 * time.Minute))
	io.WriteString(conn, request)
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return status
}

func TestDeepTrees(t *testing.T) {
	s := serve(t)
	for name, depth := range map[string]int{"fits": 255, "deep": 300} {
		if err := os.MkdirAll(s.files(name+strings.Repeat("/d", depth)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.do("COPY", "/deep", "", "Destination: "+prefix+"/copy").is(409).says("limit_reached", "256")
	s.do("COPY", "/fits", "", "Destination: "+prefix+"/copy").is(201)
	s.do("MKCOL", "/folder", "").is(201)
	s.do("MOVE", "/fits", "", "Destination: "+prefix+"/folder/fits").is(409).says("limit_reached", "256")
	s.do("MOVE", "/fits", "", "Destination: "+prefix+"/moved").is(201)
	deepest := "/moved" + strings.Repeat("/d", 255)
	s.do("MKCOL", deepest+"/d", "").is(409).says("limit_reached", "256")
	s.do("PUT", deepest+"/d", "x").is(409).says("limit_reached", "256")
	s.do("LOCK", deepest+"/d", exclusive).is(409).says("limit_reached", "256")
	s.do("MOVE", "/folder", "", "Destination: "+prefix+deepest+"/d").is(409).says("limit_reached", "256")
	s.do("COPY", "/folder", "", "Destination: "+prefix+deepest+"/d").is(409).says("limit_reached", "256")
	s.do("MOVE", "/folder", "", "Destination: "+prefix+"/deep").is(204) // the replaced tree may have any depth
	for _, path := range []string{"/deep", "/moved", "/copy"} {
		s.do("DELETE", path, "").is(204)
	}
	s.eventually(func() bool { return len(s.staged()) == 0 })
}

func TestConditionsInSeveralHeaderLines(t *testing.T) {
	s := serve(t)
	etag := s.do("PUT", "/a", "1").is(201).header.Get("ETag")
	put := func(want int, name string, values ...string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), "PUT", s.url("/a"), strings.NewReader("1"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header[name] = values
		response, err := s.server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s %q: %d, want %d", name, values, response.StatusCode, want)
		}
	}
	put(412, "If-None-Match", `"other"`, etag)
	put(412, "If-None-Match", "W/"+etag)
	put(412, "If-Match", "W/"+etag)
	put(204, "If-Match", `"other"`, etag)
}

func TestInternalErrorNamesRequestID(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	var log strings.Builder
	handler := webdav.New(s.drives, slog.New(slog.NewTextHandler(&log, nil)))
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		recorder.Header().Set("X-Request-Id", "req-12345")
		request := httptest.NewRequest(method, prefix+path, strings.NewReader(body))
		handler.ServeDrive(recorder, request, prefix, accessOf(request))
		return recorder
	}
	s.activity.Fail(func(proto.Message, bool) error { return entity.Errorf("unknown_code", "internal detail") })
	got := ask("PUT", "/a", "1")
	if body := got.Body.String(); got.Code != 500 || !strings.Contains(body, "req-12345") || strings.Contains(body, "internal detail") {
		t.Errorf("%d %s", got.Code, body)
	}
	if !strings.Contains(log.String(), "request=req-12345") || !strings.Contains(log.String(), "internal detail") {
		t.Errorf("the log lacks the request id or the error: %s", log.String())
	}
}

func TestUnavailableHasRetryAfter(t *testing.T) {
	s := serve(t)
	s.activity.Fail(func(proto.Message, bool) error { return entity.Errorf(entity.Unavailable, "not now") })
	got := s.do("GET", "/", "").is(503)
	if got.header.Get("Retry-After") == "" || strings.Contains(got.body, "not now") {
		t.Errorf("%v %s", got.header, got.body)
	}
	s.activity.Fail(nil)
	s.do("GET", "/", "").is(200)
}
