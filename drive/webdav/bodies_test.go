package webdav_test

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/drive/webdav"
)

// find returns the body of a PROPFIND request for properties.
func find(property string) string {
	return `<D:propfind xmlns:D="DAV:"><D:prop>` + property + `</D:prop></D:propfind>`
}

func TestRequestBodyLimits(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	long := strings.Repeat(" ", 65<<10)
	for _, test := range []struct {
		name, inner string
		status      int
	}{
		{"just below the size limit", long[:60<<10] + "<D:getetag/>", 207},
		{"too long", long + "<D:getetag/>", 413},
		{"too many elements", "<D:getetag>" + strings.Repeat("<x/>", 2048) + "</D:getetag>", 400},
		{"too many attributes", "<D:getetag " + strings.Repeat(`x="" `, 2048) + "/>", 400},
		{"too many texts", "<D:getetag>" + strings.Repeat("x<!---->", 2048) + "</D:getetag>", 400},
		{"too deep", strings.Repeat("<x>", 40) + strings.Repeat("</x>", 40), 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.do("PROPFIND", "/a", find(test.inner), "Depth: 0").is(test.status)
		})
	}
	s.do("PROPPATCH", "/a", propertyUpdate(`<m xmlns="urn:x">`+long+`</m>`)).is(413)
	s.do("LOCK", "/a", strings.Replace(exclusive, "me", long, 1)).is(413)
	s.do("PROPFIND", "/a", "", "Depth: 0").is(207)
}

// lateBody is a body that misses the read deadline before its end.
type lateBody struct{ io.Reader }

func (l lateBody) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if err == io.EOF {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func TestRequestBodyAfterReadDeadline(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	handler := webdav.New(s.drives, slog.New(slog.DiscardHandler))
	r := httptest.NewRequest("PROPFIND", prefix+"/a", lateBody{strings.NewReader("<propfind>")})
	r.Header.Set("Depth", "0")
	w := httptest.NewRecorder()
	if err := handler.ServeDrive(w, r, prefix, accessOf(r)); err != nil || w.Code != 400 || !strings.Contains(w.Body.String(), "in time") {
		t.Errorf("got %v, %d %s, want status 400 with the reason", err, w.Code, w.Body)
	}
}

// stalledBody is a body that blocks after its first part until release is closed.
type stalledBody struct {
	io.Reader
	arrived *sync.WaitGroup
	once    sync.Once
	release chan struct{}
}

func (b *stalledBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.once.Do(b.arrived.Done)
		<-b.release
	}
	return n, err
}

// TestMemoryOfStalledBodies stalls 200 requests with bodies that need as much memory as the limits allow.
func TestMemoryOfStalledBodies(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	handler := webdav.New(s.drives, slog.New(slog.DiscardHandler))
	for name, inner := range map[string]string{
		"elements":   strings.Repeat(`<D:x y="1"><z>  </z></D:x>`, 500),
		"attributes": "<D:x " + strings.Repeat(`D:attribute="some text or other" `, 1900),
		"text":       strings.Repeat("x", 63<<10),
	} {
		t.Run(name, func(t *testing.T) {
			const bodies = 200
			var arrived, answered sync.WaitGroup
			release := make(chan struct{})
			before := heapInUse()
			arrived.Add(bodies)
			for range bodies {
				answered.Go(func() {
					body := &stalledBody{Reader: strings.NewReader(strings.TrimSuffix(find(inner), "</D:prop></D:propfind>")), arrived: &arrived, release: release}
					r := httptest.NewRequest("PROPFIND", prefix+"/a", body)
					r.Header.Set("Depth", "0")
					w := httptest.NewRecorder()
					handler.ServeDrive(w, r, prefix, accessOf(r))
					body.once.Do(func() {
						t.Errorf("the body was refused early: %d %s", w.Code, w.Body)
						arrived.Done()
					})
				})
			}
			arrived.Wait()
			used := heapInUse() - before
			t.Logf("%d KiB for each body", used/bodies>>10)
			if used > bodies<<20 {
				t.Errorf("%d bodies use %d bytes of memory, want at most 1 MiB each", bodies, used)
			}
			close(release)
			answered.Wait()
		})
	}
}

// heapInUse returns the bytes of reachable objects on the heap.
func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
