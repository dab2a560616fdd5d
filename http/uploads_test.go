package http_test

import (
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"
)

// TestUploadOnce sends a file again after the first one has left its path.
func TestUploadOnce(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
	for name, leave := range map[string]func(path string) *httptest.ResponseRecorder{
		"deleted": func(path string) *httptest.ResponseRecorder { return sc.drive("DELETE", "/drive/"+path, "editor", "") },
		"renamed": func(path string) *httptest.ResponseRecorder {
			return sc.drive("MOVE", "/drive/"+path, "editor", "", "Destination", sc.space("/drive/moved.txt"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			offered := sc.offered(t, `{"name":"a.txt","size":1}`)
			put := func() *httptest.ResponseRecorder {
				return request(t, b.stage.node.Server, "PUT", offered.target, "", "a")
			}
			expect(t, put(), 201, "")
			if got := leave(offered.path); got.Code >= 300 {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
			expect(t, put(), 409, "upload_ended")
		})
	}
}

// TestUploadAfterTheClockWasAhead uses the URL of an upload exactly until its time, which was given while the clock was ahead or behind.
func TestUploadAfterTheClockWasAhead(t *testing.T) {
	const day = 24 * time.Hour
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
	clock := b.stage.clock
	put := func(of offeredUpload) *httptest.ResponseRecorder {
		return request(t, b.stage.node.Server, "PUT", of.target, "", "a")
	}
	early := sc.offered(t, `{"name":"a.txt","size":1}`)
	clock.advance(day)
	expect(t, put(early), 409, "upload_ended")
	first, second := sc.offered(t, `{"name":"a.txt","size":1}`), sc.offered(t, `{"name":"a.txt","size":1}`)
	clock.advance(-day)
	expect(t, put(early), 201, "") // the clock was ahead when it ended
	expect(t, put(first), 201, "")
	clock.advance(day + time.Hour - time.Millisecond)
	expect(t, put(second), 201, "")
	third := sc.offered(t, `{"name":"a.txt","size":1}`)
	clock.advance(time.Hour)
	expect(t, put(third), 409, "upload_ended")
}

// TestUploadOfLongNames uses the URLs of uploads with the longest names and media types.
func TestUploadOfLongNames(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
	for _, body := range []string{
		`{"name":"` + strings.Repeat(`\"`, 200) + `","size":1,"mediaType":"text/plain; name=\"` + strings.Repeat("x", 230) + `\""}`,
		`{"name":"a","size":1,"mediaType":"text/plain; name=\"` + strings.Repeat("😀", 230) + `\""}`,
	} {
		expect(t, request(t, b.stage.node.Server, "PUT", sc.offered(t, body).target, "", "a"), 201, "")
	}
}

// TestUploadWithoutFolder offers uploads of a drive that has files in the places of the folders for them.
func TestUploadWithoutFolder(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
	day := path.Dir(sc.offered(t, `{"name":"a.txt","size":1}`).path)
	for _, folder := range []string{day, path.Dir(day)} {
		expect(t, sc.drive("DELETE", "/drive/"+folder, "editor", ""), 204, "")
		expect(t, sc.drive("PUT", "/drive/"+folder, "editor", "a file"), 201, "")
		expect(t, sc.drive("POST", sessionsIn+"/uploads", "editor", `{"name":"a.txt","size":1}`), 409, "path_in_use")
	}
}

type offeredUpload struct{ target, path string }

// offered offers an upload to the editor.
func (sc *scene) offered(t *testing.T, body string) offeredUpload {
	t.Helper()
	var offered struct{ UploadURL, Path string }
	sc.stage.decode(sc.drive("POST", sessionsIn+"/uploads", "editor", body), 201, &offered)
	target, err := url.Parse(offered.UploadURL)
	if err != nil {
		t.Fatal(err)
	}
	return offeredUpload{target.Path, offered.Path}
}
