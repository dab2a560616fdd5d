package webdav_test

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/tests/await"
)

// TestSpecialFiles asks for the special files that processes can create. They are not on the drive.
func TestSpecialFiles(t *testing.T) {
	s := serve(t)
	t.Chdir(s.files("")) // the path of a socket has at most 107 bytes
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "socket", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	pipe(t, s.files("pipe"))
	paths := []string{"/socket", "/pipe"}
	if unix.Mknod(s.files("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(251, 251))) == nil { // as root; no driver has the number
		paths = append(paths, "/device")
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "PROPPATCH", "COPY"} {
			s.do(method, path, setProperties("<x:p>1</x:p>"), "Destination: "+prefix+"/copy").is(404)
		}
		s.do("PROPFIND", path, "", "Depth: 0").is(404)
	}
	s.rows()
}

// TestLease reads and changes a file on which a process holds a lease. Reading succeeds once the process has given it up.
func TestLease(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/d.", "").is(201)
	s.do("PUT", "/d./a", "1").is(201)
	s.do("PROPPATCH", "/d./a", setProperties("<x:p>kept</x:p>")).is(207)
	file, err := os.OpenFile(s.files("d./a"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	await.Seen(t, "a lease on the file, which nobody else may have open", func() (any, bool) {
		_, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		return err, err == nil
	})
	if again := s.do("GET", "/d./a", "").is(503).says("unavailable", "lease"); again.header.Get("Retry-After") == "" {
		t.Error("Retry-After is missing")
	}
	s.do("PROPPATCH", "/d./a", setProperties("<x:p>1</x:p>")).is(503)
	s.do("COPY", "/d./a", "", "Destination: "+prefix+"/copy").is(503)
	s.do("PROPFIND", "/d./a", "", "Depth: 0").is(207).says("kept")
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/d./a", "").is(200).says("1")
	s.do("PROPPATCH", "/d./a", setProperties("<x:p>1</x:p>")).is(207)
}
