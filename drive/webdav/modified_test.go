package webdav_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// modified returns the modification time of an entry on the disk.
func (s *site) modified(path string) time.Time {
	s.t.Helper()
	info, err := os.Lstat(s.files(path))
	if err != nil {
		s.t.Fatal(err)
	}
	return info.ModTime()
}

// stores reports whether the file system of the drive has a modification time.
func (s *site) stores(at time.Time) bool {
	s.t.Helper()
	probe := filepath.Join(s.dir, "probe")
	if err := os.WriteFile(probe, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: at.Unix(), Nsec: int64(at.Nanosecond())}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, probe, times, 0); err != nil {
		s.t.Fatal(err)
	}
	info, err := os.Stat(probe)
	return err == nil && info.ModTime().Equal(at)
}

// TestModificationTimes sets times by the header X-OC-Mtime, also of 1930 and of 2300, which some file systems do not have.
func TestModificationTimes(t *testing.T) {
	s := serve(t)
	for value, want := range map[string]time.Time{
		"1136214245": time.Unix(1136214245, 0), "0": time.Unix(0, 0), "-1": time.Unix(-1, 0), "-1262304000": time.Unix(-1262304000, 0),
		"10413792000": time.Unix(10413792000, 0), "1136214245.25": time.Unix(1136214245, 25e7), "-0.5": time.Unix(-1, 5e8),
		"1136214245.123456789": time.Unix(1136214245, 123456789),
	} {
		for method, path := range map[string]string{"PUT": "/put", "COPY": "/copied", "MOVE": "/moved"} {
			s.do("PUT", "/a", "1")
			answer := s.do(method, map[bool]string{true: path, false: "/a"}[method == "PUT"], "1", "X-OC-Mtime: "+value, "Destination: "+prefix+path)
			at, accepted := s.modified(path), answer.header.Get("X-OC-MTime") == "accepted"
			if stored := s.stores(want); answer.status > 204 || at.Equal(want) != stored || accepted != stored {
				t.Errorf("%s with %s: status %d, %v, want %v; accepted: %v", method, value, answer.status, at, want, accepted)
			}
		}
	}
	for _, value := range []string{"tomorrow", "1e9", "0x10", "inf", "NaN", "+1", " ", "1.", ".5", "--1", "9999999999999", "-99999999999", "1,5"} {
		s.do("PUT", "/b", "1", "X-OC-Mtime: "+value+"x").is(400)
		if strings.TrimSpace(value) != "" {
			s.do("PUT", "/b", "1", "X-OC-Mtime: "+value).is(400)
		}
	}
	s.do("GET", "/b", "").is(404)
	s.do("PUT", "/b", "1", "X-OC-Mtime: 1136214245").is(201)
	if got := s.do("HEAD", "/b", "").is(200).header.Get("Last-Modified"); got != "Mon, 02 Jan 2006 15:04:05 GMT" {
		t.Errorf("Last-Modified %q", got)
	}
	s.do("PUT", "/b", "1", "X-OC-Mtime: 0").is(204)
	s.do("PROPFIND", "/b", "", "Depth: 0").is(207).says("Thu, 01 Jan 1970 00:00:00 GMT")
	const last = 253402300799 // the last second of 9999, which some file systems do not have
	answer := s.do("PUT", "/last", "1", fmt.Sprint("X-OC-Mtime: ", last)).is(201)
	if accepted := answer.header.Get("X-OC-MTime") == "accepted"; accepted != (s.modified("last").Unix() == last) {
		t.Errorf("accepted is %v, but the time is %v", accepted, s.modified("last"))
	}
}

// TestCopyKeepsModificationTimes copies a file and a folder with a file. A move keeps the times, too.
func TestCopyKeepsModificationTimes(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	s.do("PUT", "/d/f", "1", "X-OC-Mtime: 1136214245.123456789").is(201)
	at := time.Unix(1136214245, 123456789)
	if err := os.Chtimes(s.files("d"), at, at); err != nil {
		t.Fatal(err)
	}
	s.do("COPY", "/d/f", "", "Destination: "+prefix+"/g").is(201)
	s.do("COPY", "/d", "", "Destination: "+prefix+"/e").is(201)
	s.do("COPY", "/d", "", "Destination: "+prefix+"/bare", "Depth: 0").is(201)
	s.do("MOVE", "/e", "", "Destination: "+prefix+"/h").is(201)
	for _, path := range []string{"g", "h", "h/f", "bare"} {
		if got := s.modified(path); !got.Equal(at) {
			t.Errorf("%s was modified at %v, want %v", path, got, at)
		}
	}
	s.do("COPY", "/d", "", "Destination: "+prefix+"/later", "X-OC-Mtime: 5").is(201)
	if folder, file := s.modified("later"), s.modified("later/f"); folder.Unix() != 5 || !file.Equal(at) {
		t.Errorf("the folder has the time %v, the file %v", folder, file)
	}
}

func setProperties(properties string) string {
	return `<D:propertyupdate xmlns:D="DAV:" xmlns:x="urn:x"><D:set><D:prop>` + properties + `</D:prop></D:set></D:propertyupdate>`
}

// TestPatchLastModified sets the property that clients of ownCloud use to set a time. A time that cannot be set is refused.
func TestPatchLastModified(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "1", "X-OC-Mtime: 7").is(201)
	s.do("MKCOL", "/d", "").is(201)
	for _, path := range []string{"/a", "/d", "/"} {
		s.do("PROPPATCH", path, setProperties(`<lastmodified xmlns="DAV:"> -86400 </lastmodified><x:p>1</x:p>`), "X-OC-Mtime: 9").is(207).says("200 OK", "lastmodified")
		if got := s.modified(path).Unix(); got != -86400 {
			t.Errorf("%s was modified at %d", path, got)
		}
		find := `<D:propfind xmlns:D="DAV:" xmlns:x="urn:x"><D:prop><D:lastmodified/><x:p/></D:prop></D:propfind>`
		s.do("PROPFIND", path, find, "Depth: 0").is(207).says("<D:lastmodified>-86400</D:lastmodified>", "200 OK", ">1</p>")
	}
	for value, status := range map[string]string{"soon": "409 Conflict", "": "409 Conflict", "<x:t>5</x:t>": "409 Conflict", "99999999999999": "409 Conflict"} {
		s.do("PROPPATCH", "/a", setProperties(`<x:p>2</x:p><D:lastmodified>`+value+`</D:lastmodified>`)).is(207).says(status, "424 Failed Dependency")
	}
	s.do("PROPPATCH", "/a", `<D:propertyupdate xmlns:D="DAV:"><D:remove><D:prop><D:lastmodified/></D:prop></D:remove></D:propertyupdate>`).
		is(207).says("403 Forbidden")
	s.do("PROPPATCH", "/a", setProperties(`<D:lastmodified>1</D:lastmodified><D:getetag>1</D:getetag>`)).is(207).says("403 Forbidden", "424 Failed Dependency")
	s.do("PROPPATCH", "/none", setProperties(`<D:lastmodified>1</D:lastmodified>`)).is(404)
	if got := s.modified("a").Unix(); got != -86400 {
		t.Errorf("after refusals, the time is %d", got)
	}
	const last = 253402300799 // the last second of 9999, which some file systems do not have
	answer := s.do("PROPPATCH", "/a", setProperties(fmt.Sprintf(`<D:lastmodified>%d</D:lastmodified><x:p>3</x:p>`, last))).is(207)
	switch s.modified("a").Unix() {
	case last:
		answer.says("200 OK")
	case -86400:
		answer.says("409 Conflict", "424 Failed Dependency")
		s.do("PROPFIND", "/a", "", "Depth: 0").is(207).says(">1</p>")
	default:
		t.Errorf("the time is %v: %s", s.modified("a"), answer.body)
	}
	s.do("LOCK", "/a", exclusive, "X-Author: api-key:other").is(200)
	s.do("PROPPATCH", "/a", setProperties(`<D:lastmodified>1</D:lastmodified>`)).is(423)
	s.rows("create file a", "create folder d")
}
