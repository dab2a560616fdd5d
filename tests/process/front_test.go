package process

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// front is an address that stays while the node behind it is killed and started again. The port of a node that is dead may
// be somebody else's before the next one asks for it.
type front struct {
	listener net.Listener
	// node is where the node of now listens.
	node atomic.Pointer[string]
}

func newFront(t *testing.T, n *node) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	f := &front{listener: listener}
	f.lead(n)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go f.pass(client)
		}
	}()
	return f
}

func (f *front) address() string { return "http://" + f.listener.Addr().String() }

// lead has connections from now on lead to a node.
func (f *front) lead(to *node) {
	address := strings.TrimPrefix(to.address, "http://")
	f.node.Store(&address)
}

// pass joins a connection with one to the node. Where either ends, both do.
func (f *front) pass(client net.Conn) {
	defer client.Close()
	node, err := net.Dial("tcp", *f.node.Load())
	if err != nil {
		return
	}
	defer node.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, node}, {node, client}} {
		go func() {
			_, _ = io.Copy(way[1], way[0]) // both ends see that it ended
			ended <- struct{}{}
		}()
	}
	<-ended
}
