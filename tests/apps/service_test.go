package apps

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/entity"
)

// goMod is the module file of the Go program. It is not in testdata, because the files of that name are modules of the repository.
const goMod = "module example.org/service\n\ngo 1.22\n"

// TestGo runs a Go program. The test builds it, and the install command makes it the app's: a computer has no cache of the standard
// library, and compiling the library takes a minute of processor time.
func TestGo(t *testing.T) {
	s := newSite(t, "")
	s.write(filepath.Join("testdata", "service"), "service")
	s.put("service/go.mod", goMod)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", "built", ".")
	build.Dir, build.Env = s.onDisk("service"), append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	in := client.NewApp{Path: "service", Command: "./service", InstallCommand: "mv built service", APIScopes: []string{entity.FilesRead}}
	address := s.register(in)
	s.launch("service")

	if _, body := s.get(address + "/"); body != "HTTP/1.1 "+strings.TrimPrefix(address, "http://") {
		t.Errorf("the app answers %q", body)
	}
	if _, body := s.get(address + "/whoami"); !strings.Contains(body, `"kind":"app"`) || !strings.Contains(body, "ws:acme:files:read") {
		t.Errorf("whoami is %s", body)
	}
	events := s.open(http.MethodGet, address+"/events", nil)
	defer events.Body.Close()
	if kind := events.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("the stream is %s %s", events.Status, kind)
	}
	lines := bufio.NewScanner(events.Body)
	// Each event arrives while the response goes on: the next one is said only then.
	for _, text := range []string{"listening", "one", "two"} {
		if text != "listening" {
			if answer, body := s.send(http.MethodPost, address+"/say", []byte(text)); answer.StatusCode != http.StatusNoContent {
				t.Fatalf("saying %s: %s %s", text, answer.Status, body)
			}
		}
		if !lines.Scan() || lines.Text() != "data: "+text || !lines.Scan() {
			t.Fatalf("the event is %q (%v), want %q", lines.Text(), lines.Err(), text)
		}
	}
}
