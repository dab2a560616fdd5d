package limit

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// SiteFactor is the number of clients as which all clients of an IPv6 site are counted.
const SiteFactor = 4

// A Client is the client that a limit counts, and the subject that the limit counts for it, such as the email address of a sign-in.
//
// One rule holds for all limits by address. A client is an IPv4 address, or an IPv6 network of 64 bits (Network): a host has such a
// network. One customer may have an IPv6 network of 48 bits with 65,536 such networks (Site). All clients of a site together therefore have
// at most SiteFactor times the limit of one client, and the slots of Shares but for the reserve are shared as if the site were one client.
type Client struct {
	Address netip.Addr
	Subject string
}

// clientKey is a client, or all clients of a site, as counted.
type clientKey struct {
	network netip.Prefix
	subject string
}

// keys returns the keys of the client and of its site; hasSite is false for IPv4.
func (c Client) keys() (own, site clientKey, hasSite bool) {
	own = clientKey{Network(c.Address), c.Subject}
	site.subject = c.Subject
	site.network, hasSite = Site(own.network)
	return own, site, hasSite
}

// Network returns the network that is counted as one client: an IPv4 address, or the /64 of an IPv6 address.
func Network(address netip.Addr) netip.Prefix {
	address = address.Unmap()
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}

// Site returns the /48 of an IPv6 network, which a provider may give to one customer; has is false for IPv4.
func Site(network netip.Prefix) (site netip.Prefix, has bool) {
	if !network.Addr().Is6() {
		return netip.Prefix{}, false
	}
	site, _ = network.Addr().Prefix(48)
	return site, true
}

// ClientBuckets is a table of token buckets by client and site. Its memory is fixed, as the memory of Buckets is.
type ClientBuckets struct{ buckets Buckets[clientKey] }

// NewClientBuckets returns a table of full buckets.
func NewClientBuckets() ClientBuckets { return ClientBuckets{NewBuckets[clientKey]()} }

// Take takes a token of a client, and a token of its site, or returns the time until the next token. A request that is refused because
// of the site does not count against the client, so that a site cannot empty the buckets of all clients with hashes that collide with
// the hashes of its networks. A request that is refused because of the client does not count against the site, so that a client cannot
// use up the tokens of the site's other clients.
func (b ClientBuckets) Take(now time.Time, client Client, limit Allowance) time.Duration {
	own, site, hasSite := client.keys()
	if !hasSite {
		return b.buckets.Take(now, own, limit)
	}
	siteLimit := Allowance{Burst: SiteFactor * limit.Burst, Interval: limit.Interval / SiteFactor}
	if wait := b.buckets.Take(now, site, siteLimit); wait > 0 {
		return wait
	}
	wait := b.buckets.Take(now, own, limit)
	if wait > 0 {
		b.buckets.Bucket(site).fullAt.Add(-int64(siteLimit.Interval))
	}
	return wait
}

// ClientCounters counts the resources that clients and sites hold at the same time. Its memory is fixed: clients with colliding hashes
// share a counter.
type ClientCounters struct {
	seed     maphash.Seed
	counters *[bucketCount]atomic.Int64
}

// NewClientCounters returns counters at 0.
func NewClientCounters() ClientCounters {
	return ClientCounters{maphash.MakeSeed(), new([bucketCount]atomic.Int64)}
}

// Counted has the counters of one call of ClientCounters.Acquire. The zero value has no counters.
type Counted struct{ own, site *atomic.Int64 }

// Acquire counts one more for a client and its site, until the result is released. It reports false, and counts nothing, if the client has
// most already, or the site SiteFactor times as many. The result then has the counter that is full, for Overlaps, and is not released.
func (c ClientCounters) Acquire(client Client, most int) (counted Counted, ok bool) {
	own, site, hasSite := client.keys()
	if hasSite {
		if counted.site = c.of(site); counted.site.Add(1) > SiteFactor*int64(most) {
			counted.site.Add(-1)
			return counted, false
		}
	}
	if counted.own = c.of(own); counted.own.Add(1) > int64(most) {
		counted.Release()
		return Counted{own: counted.own}, false
	}
	return counted, true
}

func (c ClientCounters) of(key clientKey) *atomic.Int64 {
	return &c.counters[maphash.Comparable(c.seed, key)%uint64(len(c.counters))]
}

// Overlaps reports whether both have a counter in common.
func (c Counted) Overlaps(o Counted) bool {
	return c.own != nil && c.own == o.own || c.site != nil && c.site == o.site
}

// Release ends the counting. It must be called once.
func (c Counted) Release() {
	if c.own != nil {
		c.own.Add(-1)
	}
	if c.site != nil {
		c.site.Add(-1)
	}
}
