// Package s3 starts a real S3 server for tests: versitygw, which stores objects as files. The server is built from the module in
// the folder versitygw and runs as a separate process. If it cannot be built, the tests that need it are skipped, or fail if
// the environment has CI=true.
package s3

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/loopback"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// Server is a running S3 server with a bucket named "backups".
type Server struct {
	// Endpoint is the host and port of the server, which serves HTTP without TLS.
	Endpoint string
	// Key and Secret are the only credentials that the server accepts.
	Key, Secret string
	// Dir is the folder of the server, with a subfolder for each bucket.
	Dir string
}

// startTimeout limits the start of a server or a node.
const startTimeout = time.Minute

// Start starts a server, which is killed when the test ends. It returns when the server answers, and fails the test if the server
// does not answer within startTimeout.
func Start(t testing.TB) *Server {
	t.Helper()
	binary := testmachine.Build(t, "tests/s3/versitygw", "github.com/versity/versitygw/cmd/versitygw")
	s := &Server{Endpoint: loopback.Address(t), Key: "testkey", Secret: "testsecret", Dir: t.TempDir()}
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

// await waits until the server answers a request. It fails the test if the process exits first.
func (s *Server) await(t testing.TB, exited <-chan struct{}) {
	t.Helper()
	timeout := time.After(startTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		response, err := http.Get("http://" + s.Endpoint + "/")
		if err == nil {
			response.Body.Close()
			return
		}
		select {
		case <-exited:
			t.Fatal("versitygw exited before it answered a request")
		case <-timeout:
			t.Fatalf("versitygw did not answer within %s: %v", startTimeout, err)
		case <-time.After(pause):
		}
	}
}
