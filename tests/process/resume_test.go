package process

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/atelier-run/atelier/client"
)

// The client's stream goes on over kills of the node, without a gap or a repeat.
func TestClientResumesOverKills(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	_, key := newPerson(t, n, "ada@example.org")
	newSpace(t, newClient(n.address, key))
	door := newFront(t, n)
	c, err := api.New(door.address(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	frames, ended := make(chan api.Frame), make(chan error, 1)
	go func() {
		for frame, err := range c.Events(ctx, "factory", api.EventsQuery{}) {
			if err != nil {
				ended <- err
				return
			}
			frames <- frame
		}
	}()
	for life := range 3 {
		if life > 0 {
			n.kill()
			n = start(t, n.dir)
			door.lead(n)
		}
		for i := range 3 {
			if _, err := c.WriteFile(ctx, "factory", fmt.Sprintf("%d-%d", life, i), strings.NewReader("text")); err != nil {
				t.Fatal(err)
			}
			select {
			case frame := <-frames:
				if want := fmt.Sprintf("%d-%d", life, i); frame.Event.Path != want || frame.Seq != uint64(3*life+i+1) {
					t.Fatalf("%+v, not %s", frame.Row, want)
				}
			case err := <-ended:
				t.Fatal("the stream ended: ", err)
			case <-time.After(patience):
				t.Fatal("the stream does not go on")
			}
		}
	}
}
