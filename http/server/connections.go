package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/limit"
)

// connection is a connection of a public listener.
type connection struct {
	net.Conn
	// heads bounds the request heads of the connection; nil on the operators' listener and for HTTP/2.
	heads *headConn
	// isOverLimit reports that the connection has no slot: its requests are answered 503.
	isOverLimit bool
	// isSecure is set for connections over TLS.
	isSecure bool

	// accepted is the connection as net/http knows it, shares has its slot, and peer the holder of the slot.
	accepted net.Conn
	shares   *limit.Shares[peer]
	peer     peer
	// idle is the place in the list of the peer's idle connections; nil while a request is served. Of two connections, the one that is
	// idle for a longer time has the smaller idleSince.
	idle      *list.Element
	idleSince uint64
}

// A peer holds the slots of connections: the network of a client, or one connection of a peer without a share.
type peer struct {
	network    netip.Prefix
	connection uint64
}

// connections has the open connections of the public listeners. Each has a slot, which the networks of clients share. If there is none
// for a new connection, an idle connection is closed: of the same network, or, if no slot is free, of the network with the most idle
// connections; an IPv6 site counts as one network. A connection is idle while it has no request, also before its first request.
//
// Without an idle connection, the new connection gets a slot for refused connections: its requests are answered 503, except for probes.
// Without such a slot it is closed at once. Trusted proxies, which have the connections of many clients, and peers without an address
// have no share.
type connections struct {
	slots, refusing *limit.Shares[peer]
	trusted         []netip.Prefix
	evicted         prometheus.Counter

	mu   sync.Mutex
	open map[net.Conn]*connection
	// unshared is the number of connections of peers without a share so far.
	unshared uint64
	// idles counts the times that a connection became idle.
	idles uint64
	// idleOf has the idle connections of each peer that has some, the longest idle connection first. idleIn has the number of idle
	// connections of each IPv6 site that has some.
	idleOf map[peer]*list.List
	idleIn map[peer]int
}

// siteOfPeer returns the group of a peer: the larger network of an IPv6 network.
func siteOfPeer(p peer) (site peer, has bool) {
	site.network, has = limit.Site(p.network)
	return site, has
}

// newConnections returns the slots of a number of connections, and of an eighth of them and 16 that are refused.
func newConnections(number int, trusted []netip.Prefix, r prometheus.Registerer) (*connections, error) {
	c := &connections{
		slots: limit.NewGroupedShares(number, siteOfPeer), refusing: limit.NewGroupedShares(max(number, 0)/8+16, siteOfPeer), trusted: trusted,
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_http_connections_evicted_total", Help: "Idle connections that were closed to make room for others.",
		}),
		open: map[net.Conn]*connection{}, idleOf: map[peer]*list.List{}, idleIn: map[peer]int{},
	}
	return c, errors.Join(r.Register(c.evicted), c.slots.Register(r, "connections"))
}

// admit gives an accepted connection a slot, or closes it. It is the ConnContext of net/http.
func (c *connections) admit(ctx context.Context, accepted net.Conn) context.Context {
	of := &connection{Conn: accepted, accepted: accepted}
	if heads, ok := accepted.(*headConn); ok {
		of.Conn, of.heads = heads.Conn, heads
	}
	_, of.isSecure = of.Conn.(*tls.Conn)
	evicted := c.add(of)
	if evicted != nil {
		evicted.cut()
		c.evicted.Inc()
	}
	if of.shares == nil {
		of.cut()
	}
	return context.WithValue(ctx, connectionKey{}, of)
}

// add takes the slot of a connection, which is idle then, and returns the connection that was evicted for it.
func (c *connections) add(of *connection) (evicted *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of.peer = c.peerOf(of.accepted)
	err := c.slots.Acquire(of.peer)
	if err != nil {
		switch evicted = c.longestIdle(of.peer, err); {
		case evicted == nil:
		case evicted.peer == of.peer:
			c.forget(evicted)
			err = nil // the new connection takes the slot over
		default:
			c.remove(evicted)
			err = c.slots.Acquire(of.peer)
		}
	}
	switch {
	case err == nil:
		of.shares = c.slots
	case c.refusing.Acquire(of.peer) == nil:
		of.shares, of.isOverLimit = c.refusing, true
	default:
		return evicted
	}
	c.open[of.accepted] = of
	c.setIdle(of)
	return evicted
}

func (c *connections) peerOf(accepted net.Conn) peer {
	address, err := netip.ParseAddrPort(accepted.RemoteAddr().String())
	if err != nil || limit.IsWithin(address.Addr().Unmap(), c.trusted) {
		c.unshared++
		return peer{connection: c.unshared}
	}
	return peer{network: limit.Network(address.Addr())}
}

// comparedPeers bounds how many peers are compared to find the peer with the most idle connections.
const comparedPeers = 1024

// longestIdle returns the connection to evict for a peer that was refused a slot with an error: the longest idle connection of the same
// peer, or, if no slot is free, of the peers with the most idle connections: an IPv6 site counts as one peer. The result is nil if there is none.
func (c *connections) longestIdle(p peer, refused error) *connection {
	if own := c.idleOf[p]; own != nil {
		return own.Front().Value.(*connection)
	}
	if !errors.Is(refused, limit.ErrFull) {
		return nil
	}
	var longest *connection
	most, compared := 0, 0
	for of, idle := range c.idleOf {
		first, number := idle.Front().Value.(*connection), idle.Len()
		if site, has := siteOfPeer(of); has {
			number = c.idleIn[site]
		}
		if longest == nil || number > most || number == most && first.idleSince < longest.idleSince {
			longest, most = first, number
		}
		if compared++; compared == comparedPeers {
			break
		}
	}
	return longest
}

// setState follows the states of a connection: it is the ConnState of net/http. A connection that leaves net/http keeps its slot until
// its request ends; see release.
func (c *connections) setState(accepted net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.open[accepted]
	if of == nil { // evicted, or without a slot
		return
	}
	switch state {
	case http.StateIdle:
		if of.heads != nil {
			of.heads.beginHead()
		}
		c.setIdle(of)
	case http.StateActive, http.StateHijacked:
		c.setActive(of)
	case http.StateClosed:
		c.remove(of)
	}
}

// release frees the slot of a connection that has left net/http.
func (c *connections) release(of *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[of.accepted] == of {
		c.remove(of)
	}
}

func (c *connections) setIdle(of *connection) {
	if of.idle != nil || of.isOverLimit {
		return
	}
	own := c.idleOf[of.peer]
	if own == nil {
		own = list.New()
		c.idleOf[of.peer] = own
	}
	if site, has := siteOfPeer(of.peer); has {
		c.idleIn[site]++
	}
	c.idles++
	of.idle, of.idleSince = own.PushBack(of), c.idles
}

func (c *connections) setActive(of *connection) {
	if of.idle == nil {
		return
	}
	own := c.idleOf[of.peer]
	if own.Remove(of.idle); own.Len() == 0 {
		delete(c.idleOf, of.peer)
	}
	if site, has := siteOfPeer(of.peer); has {
		if c.idleIn[site]--; c.idleIn[site] == 0 {
			delete(c.idleIn, site)
		}
	}
	of.idle = nil
}

// remove forgets a connection and frees its slot.
func (c *connections) remove(of *connection) {
	c.forget(of)
	of.shares.Release(of.peer)
}

func (c *connections) forget(of *connection) {
	c.setActive(of)
	delete(c.open, of.accepted)
}

// cut closes the connection below TLS, so that no peer can delay it.
func (c *connection) cut() {
	under := c.Conn
	if secure, is := under.(*tls.Conn); is {
		under = secure.NetConn()
	}
	_ = under.Close()
}
