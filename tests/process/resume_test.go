package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/atelier-run/atelier/client"
)

// TestClientStreamResumesAfterKills verifies that the Go client's stream continues after kills of the node, without a gap or a
// duplicate.
func TestClientStreamResumesAfterKills(t *testing.T) {
	n := start(t, filepath.Join(t.TempDir(), "data"))
	_, key := newPerson(t, n, "ada@example.org")
	newWorkspace(t, newClient(n.address, key))
	proxy := newProxyServer(t, n)
	c, err := api.New(proxy.address(), key)
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
	for generation := range 3 {
		if generation > 0 {
			n.kill()
			n = start(t, n.dir)
			proxy.setNode(n)
		}
		for i := range 3 {
			if _, err := c.WriteFile(ctx, "factory", fmt.Sprintf("%d-%d", generation, i), strings.NewReader("text")); err != nil {
				t.Fatal(err)
			}
			select {
			case frame := <-frames:
				if want := fmt.Sprintf("%d-%d", generation, i); frame.Event.Path != want || frame.Seq != uint64(3*generation+i+1) {
					t.Fatalf("got row %+v, want the path %s", frame.Row, want)
				}
			case err := <-ended:
				t.Fatal("the stream ended: ", err)
			case <-time.After(patience):
				t.Fatal("the stream does not continue")
			}
		}
	}
}

// A proxyServer forwards connections to a node. Its address stays the same when the node is killed and started again,
// while the port of a killed node may be taken by another process.
type proxyServer struct {
	listener net.Listener
	// node is the address of the current node.
	node atomic.Pointer[string]
}

func newProxyServer(t *testing.T, n *node) *proxyServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	f := &proxyServer{listener: listener}
	f.setNode(n)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go f.forward(client)
		}
	}()
	return f
}

func (f *proxyServer) address() string { return "http://" + f.listener.Addr().String() }

// setNode sets the node for later connections.
func (f *proxyServer) setNode(to *node) {
	address := strings.TrimPrefix(to.address, "http://")
	f.node.Store(&address)
}

// forward forwards a connection to the node until either of them ends.
func (f *proxyServer) forward(client net.Conn) {
	defer client.Close()
	node, err := net.Dial("tcp", *f.node.Load())
	if err != nil {
		return
	}
	defer node.Close()
	ended := make(chan struct{}, 2)
	for _, direction := range [][2]net.Conn{{client, node}, {node, client}} {
		go func() {
			_, _ = io.Copy(direction[1], direction[0]) // both connections are closed afterwards
			ended <- struct{}{}
		}()
	}
	<-ended
}
