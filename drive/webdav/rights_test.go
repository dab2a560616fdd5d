package webdav_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// runUnprivileged makes sure that file modes apply to the test. As root it runs the test in a child process of another user and
// returns false; otherwise it returns true and the caller runs the test.
func runUnprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	dir, err := os.MkdirTemp("/tmp", "rights")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	child.Dir, child.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	return false
}

func (s *site) chmod(path string, mode os.FileMode) {
	s.t.Helper()
	if err := os.Chmod(s.files(path), mode); err != nil {
		s.t.Fatal(err)
	}
}

func TestFilesWithoutReadPermission(t *testing.T) {
	if !runUnprivileged(t) {
		return
	}
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	s.do("MKCOL", "/d/closed", "").is(201)
	s.do("PUT", "/d/a", "1").is(201)
	s.do("PUT", "/d/b", "1").is(201)
	s.chmod("d/a", 0)
	s.chmod("d/closed", 0)
	s.do("GET", "/d/a", "").is(403).says(`"forbidden"`)
	s.do("PROPFIND", "/d", "", "Depth: 1").is(207).says("/d/a<", "/d/b<", "/d/closed/<", "</D:multistatus>")
	s.do("PROPFIND", "/d/a", "", "Depth: 0").is(207).says("200 OK")
	// The entry may exist, so neither condition may be evaluated as if it did not.
	s.do("PROPPATCH", "/d/closed/x", propertyUpdate(`<m xmlns="urn:x"/>`), "If-Match: *").is(403)
	s.do("PROPPATCH", "/d/closed/x", propertyUpdate(`<m xmlns="urn:x"/>`), "If-None-Match: *").is(403)
	s.chmod("d/closed", 0o700)
}

func TestDeletedFoldersWithoutWritePermission(t *testing.T) {
	if !runUnprivileged(t) {
		return
	}
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	s.do("MKCOL", "/d/sealed", "").is(201)
	s.do("MKCOL", "/d/sealed/inner", "").is(201)
	s.do("PUT", "/d/sealed/inner/a", "1").is(201)
	s.chmod("d/sealed/inner", 0o555)
	s.chmod("d/sealed", 0o555)
	s.do("DELETE", "/d", "").is(204)
	s.eventually(func() bool { return len(s.staged()) == 0 })
}
