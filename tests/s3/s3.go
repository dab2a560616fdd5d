// Package s3 runs tests against a real S3 server: versitygw, which stores objects as files. It is built from the module in
// the folder versitygw and started as a process. Where it cannot be built, its tests are left out by name, and with
// CI=true they fail.
package s3

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Server is an S3 server with a bucket named "backups".
type Server struct {
	// Endpoint is the server's host and port; it speaks HTTP.
	Endpoint string
	// Key and Secret are its only credentials.
	Key, Secret string
	// Dir has a folder for each bucket.
	Dir string
}

// patience bounds the start of a server.
const patience = time.Minute

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	binary := build(t)
	s := &Server{Endpoint: freeAddress(t), Key: "testkey", Secret: "testsecret", Dir: t.TempDir()}
	attributes := t.TempDir()
	if err := os.Mkdir(filepath.Join(s.Dir, "backups"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	command := exec.Command(binary, "--port", s.Endpoint, "--access", s.Key, "--secret", s.Secret, "--quiet",
		"posix", "--sidecar", attributes, s.Dir)
	command.Dir, command.Stdout, command.Stderr = t.TempDir(), &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-exited
		if t.Failed() {
			t.Logf("versitygw: %s", log.String())
		}
	})
	s.await(t, exited)
	return s
}

// await returns when the server answers.
func (s *Server) await(t testing.TB, exited <-chan struct{}) {
	t.Helper()
	given := time.After(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		response, err := http.Get("http://" + s.Endpoint + "/")
		if err == nil {
			response.Body.Close()
			return
		}
		select {
		case <-exited:
			t.Fatal("versitygw has ended")
		case <-given:
			t.Fatalf("versitygw does not answer: %v", err)
		case <-time.After(pause):
		}
	}
}

// freeAddress returns an address at which nothing listened a moment ago.
func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// build returns the server's program. It is kept in the folder bin, and built again when the module has changed; tests of
// several packages take turns.
func build(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	module := filepath.Join(filepath.Dir(here), "versitygw")
	bin := filepath.Join(filepath.Dir(here), "..", "..", "bin")
	binary := filepath.Join(bin, "versitygw")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(binary+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "build", "-o", binary, "github.com/versity/versitygw/cmd/versitygw")
	command.Dir = module
	command.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := command.CombinedOutput()
	if err == nil {
		return binary
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("versitygw cannot be built: %v: %s", err, out)
	}
	t.Skipf("left out: S3 (versitygw cannot be built: %v: %s)", err, out)
	return ""
}
