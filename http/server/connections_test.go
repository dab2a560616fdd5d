package server

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/limit"
)

// A fakeConn is a connection with the address of a peer.
type fakeConn struct {
	net.Conn
	from net.Addr
}

func (c *fakeConn) RemoteAddr() net.Addr { return c.from }

func connectionFrom(address string) *connection {
	return &connection{accepted: &fakeConn{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1))}}
}

// The connections of an IPv6 site that has many networks with one idle connection each are evicted before the connections of a client
// with a few, and the site leaves others the slots of connections that are refused.
func TestEvictFromTheBusiestSite(t *testing.T) {
	const number = 64
	c, err := newConnections(number, nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var own []*connection
	for range 3 {
		of := connectionFrom("192.0.2.1")
		if c.add(of); of.shares != c.slots {
			t.Fatal("a client has no slot")
		}
		own = append(own, of)
	}
	for n := range 1000 {
		c.add(connectionFrom(fmt.Sprintf("2001:db8:1:%x::1", n)))
	}
	for n := range number / 2 { // the last ones find no free slot
		of := connectionFrom(fmt.Sprintf("198.51.100.%d", n))
		if evicted := c.add(of); of.isOverLimit || evicted != nil && evicted.peer.network.Addr().Is4() {
			t.Errorf("client %d: over the limit %t, evicted %v", n, of.isOverLimit, evicted)
		}
	}
	for _, of := range own {
		if c.open[of.accepted] != of {
			t.Error("a connection of a client with a few was evicted")
		}
	}
	for _, of := range c.open {
		c.remove(of)
	}
	if used := c.slots.Used() + c.refusing.Used(); used != 0 || len(c.idleOf)+len(c.idleIn) != 0 {
		t.Errorf("in the end %d slots are taken, %d peers and %d sites are idle", used, len(c.idleOf), len(c.idleIn))
	}
}

// A site that opens connections without end takes no more than its share of the slots for refused connections.
func TestRefusedConnectionsOfASite(t *testing.T) {
	const number = 64
	c, err := newConnections(number, nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 1000 {
		c.add(connectionFrom(fmt.Sprintf("2001:db8:1:%x::1", n)))
	}
	if err := c.refusing.Acquire(peer{network: limit.Network(netip.MustParseAddr("2001:db8:2::1"))}); err != nil {
		t.Errorf("another site: %v", err)
	}
}
