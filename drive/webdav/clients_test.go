package webdav_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/testmachine"
)

// requireProgram returns the path of a program. It skips the test if the program is not installed; see skipUnlessCI.
func requireProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		testmachine.Lacks(t, name+" is not installed")
	}
	return path
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

func TestLitmus(t *testing.T) {
	litmus := requireProgram(t, "litmus")
	for _, suite := range []string{"basic", "copymove", "props", "locks", "http"} {
		t.Run(suite, func(t *testing.T) {
			s := serve(t)
			t.Setenv("TESTS", suite)
			out := run(t, litmus, s.url("/"))
			if passed := regexp.MustCompile(`(\d+) tests run: (\d+) passed, 0 failed`).FindString(out); passed == "" {
				t.Errorf("litmus %s:\n%s", suite, out)
			} else {
				t.Log(passed)
			}
			if strings.Contains(out, "WARNING") {
				t.Log(out)
			}
		})
	}
}

// mount mounts a site with davfs2 until the end of the test. It skips the test if mounting is not possible.
func mount(t *testing.T, s *site) string {
	t.Helper()
	davfs := requireProgram(t, "mount.davfs")
	if os.Geteuid() != 0 {
		testmachine.Lacks(t, "mounting needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		testmachine.Lacks(t, "mounting needs /dev/fuse")
	}
	point, conf := t.TempDir(), filepath.Join(t.TempDir(), "davfs2.conf")
	// Since Linux 6.16 folders are read in larger pieces than davfs2's default buffer, which returns EINVAL.
	settings := "ask_auth 0\nuse_locks 1\ndelay_upload 0\nbuf_size 256\n"
	if err := os.WriteFile(conf, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), davfs, "-o", "conf="+conf, s.url("/"), point).CombinedOutput(); err != nil {
		t.Fatalf("mount.davfs: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		exec.Command("umount", point).Run()
		caches, _ := filepath.Glob("/var/cache/davfs2/*" + strings.ReplaceAll(point[1:], "/", "-") + "*")
		for _, cache := range caches {
			os.RemoveAll(cache)
		}
	})
	return point
}

func TestDavfs2(t *testing.T) {
	s := serve(t)
	point := mount(t, s)
	at := func(path string) string { return filepath.Join(point, path) }
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, err := range []error{
		os.MkdirAll(at("src/deep"), 0o755),
		os.WriteFile(at("src/a.txt"), []byte("hello"), 0o644),
		os.WriteFile(at("big.bin"), big, 0o644),
		os.Rename(at("src/a.txt"), at("src/deep/b.txt")),
		os.WriteFile(at("gone"), []byte("x"), 0o644),
		os.Remove(at("gone")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if got, err := os.ReadFile(at("big.bin")); err != nil || !bytes.Equal(got, big) {
		t.Errorf("read %d bytes: %v", len(got), err)
	}
	entries, err := os.ReadDir(point)
	if err != nil || len(entries) < 2 {
		t.Errorf("the root lists %v: %v", entries, err)
	}
	if out, err := exec.CommandContext(t.Context(), "umount", point).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v\n%s", err, out)
	}
	if got := s.content("src/deep/b.txt"); got != "hello" {
		t.Errorf("content %q", got)
	}
	if got := s.content("big.bin"); got != string(big) {
		t.Errorf("big.bin has %d bytes with other content, want %d", len(got), len(big))
	}
}

func TestRclone(t *testing.T) {
	rclone := requireProgram(t, "rclone")
	s := serve(t)
	up, down := t.TempDir(), t.TempDir()
	for _, path := range []string{"a.txt", "deep/er/b.txt", "deep/ü ö#%?.txt", "empty", "node_modules/x/index.js"} {
		if err := os.MkdirAll(filepath.Join(up, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(up, path), []byte(strings.Repeat(path, len(path)%5)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	remote := ":webdav,vendor=owncloud,url='" + s.url("/") + "':"
	run(t, rclone, "sync", up, remote)
	run(t, rclone, "check", "--download", up, remote)
	run(t, rclone, "sync", remote, down)
	run(t, rclone, "check", up, down)
	if err := os.Remove(filepath.Join(up, "a.txt")); err != nil {
		t.Fatal(err)
	}
	run(t, rclone, "sync", up, remote)
	if _, err := os.Stat(s.files("a.txt")); err == nil {
		t.Error("a file that was removed from the source is still on the drive")
	}
	changed := filepath.Join(up, "deep", "er", "b.txt")
	if err := os.WriteFile(changed, []byte(strings.Repeat("deep/ER/B.TXT", 3)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(changed, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	run(t, rclone, "sync", up, remote)
	run(t, rclone, "moveto", remote+"deep/er/b.txt", remote+"deep/c.txt")
	if got := s.content("deep/c.txt"); got != strings.Repeat("deep/ER/B.TXT", 3) {
		t.Errorf("content %q", got)
	}
}

func TestCurl(t *testing.T) {
	curl := requireProgram(t, "curl")
	s := serve(t)
	file := filepath.Join(t.TempDir(), "report.txt")
	if err := os.WriteFile(file, bytes.Repeat([]byte("line\n"), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, curl, "-fsS", "-T", file, s.url("/"))
	run(t, curl, "-fsS", "-X", "MKCOL", s.url("/docs"))
	run(t, curl, "-fsS", "-X", "MOVE", "-H", "Destination: "+s.url("/docs/r%20t.txt"), s.url("/report.txt"))
	if got := run(t, curl, "-fsS", "-r", "0-3", s.url("/docs/r%20t.txt")); got != "line" {
		t.Errorf("got %q", got)
	}
	if got := run(t, curl, "-fsS", s.url("/docs/")); got != "r t.txt\n" {
		t.Errorf("listing %q", got)
	}
	// A read is recorded after its response, so curl may exit before the row is there.
	s.eventually(func() bool { return len(s.activity.Rows()) == 4 })
	s.rows("create file report.txt", "create folder docs", "rename file docs/r t.txt from report.txt", "read docs/r t.txt")
}
