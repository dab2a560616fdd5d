package process

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataOfAnotherUser starts nodes with a data directory that belongs to root and may be written by the group or by all users, as a
// volume of Kubernetes with an fsGroup may.
func TestDataOfAnotherUser(t *testing.T) {
	requireRoot(t)
	const nobody = 65534
	place, err := os.MkdirTemp("/tmp", "owner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	program := filepath.Join(place, "atelier")
	if output, err := exec.Command("sh", "-c", `chmod 755 "$1" && cp "$0" "$2" && chmod 755 "$2"`, binary, place, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, mode := range []string{"2775", "0770", "0777"} {
		t.Run(mode, func(t *testing.T) {
			dir := filepath.Join(place, mode)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, 0, nobody); err != nil {
				t.Fatal(err)
			}
			if output, err := exec.Command("chmod", mode, dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			n, err := launchBy([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", `exec "` + program + `" "$@"`}, dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(n.kill)
			if !n.ready() {
				t.Fatalf("the node did not start:\n%s", n.logs)
			}
			newClient(n.address, "").expect(t, http.StatusOK, "GET", "/readyz", "")
			if code := n.terminate(t); code != 0 || !strings.Contains(n.logs.String(), "the data directory belongs to another user") {
				t.Errorf("exit code %d:\n%s", code, n.logs)
			}
		})
	}
}
