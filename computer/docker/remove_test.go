package docker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// TestRemoveWaits removes a container that Podman is removing already: until it is gone, Podman refuses to remove it, and fails to
// inspect it.
func TestRemoveWaits(t *testing.T) {
	deletions, inspections := 0, 0
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, message := http.StatusInternalServerError, "container state improper"
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			w.Header().Set("Api-Version", "1.44")
			return
		case r.Method == http.MethodDelete:
			deletions++
		case r.Method == http.MethodGet:
			if inspections++; inspections == 3 {
				status, message = http.StatusNotFound, "no such container"
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"message":%q}`, message)
	}))
	t.Cleanup(engine.Close)
	api, err := client.New(client.WithHost("tcp://" + engine.Listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{options: Options{Timeout: time.Minute}, engine: api}
	if err := d.remove(t.Context(), "c1"); err != nil || deletions != 3 {
		t.Fatalf("remove returned %v after %d attempts", err, deletions)
	}
	engine.Close()
	if err := d.remove(t.Context(), "c1"); err == nil {
		t.Fatal("remove succeeded without an engine")
	}
}
