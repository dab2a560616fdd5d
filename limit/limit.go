// Package limit bounds the requests of clients for the API and the edge. It has token buckets with a fixed memory for any number of
// clients, the address of the client that a request counts against (Client has the rule for IPv6), the reading of refused bodies, and
// Shares, which divides the slots of a resource among the holders that want slots.
//
// Whatever a client can keep for a time has a slot in Shares, which is taken before anything is allocated for it: connections by
// address, requests and the memory of their bodies by address until they are authenticated and by person afterwards, streams by person,
// changes of a drive by person, and requests to apps by workspace. Package http/server refuses with 503 if no slot is free, and with 429 if
// the free slots are kept for others; connections without a request are closed for others first, and streams of clients that may have
// left pass their slots on first. docs/operations.md lists the slots.
package limit

import (
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Bucket is a token bucket in one word: the time at which it will be full, in nanoseconds.
type Bucket struct{ fullAt atomic.Int64 }

// Take takes a token from a bucket of a size. If the bucket is empty, Take takes none and returns the time until the next token. If the
// clock is set back, the next token comes after at most one interval. The zero Allowance has no limit.
func (b *Bucket) Take(now time.Time, size Allowance) time.Duration {
	interval, at := int64(size.Interval), now.UnixNano()
	for {
		full := b.fullAt.Load()
		room := interval * int64(max(size.Burst, 1))
		if full > at+room { // the clock was set back
			b.fullAt.CompareAndSwap(full, at+room)
			continue
		}
		next := max(full, at) + interval
		if over := next - at - room; over > 0 {
			return time.Duration(over)
		}
		if b.fullAt.CompareAndSwap(full, next) {
			return 0
		}
	}
}

// Allowance is the size of a token bucket, and the time in which it gains one token.
type Allowance struct {
	Burst    int
	Interval time.Duration
}

// PerSecond returns the allowance of a bucket that gains rate tokens a second and holds burst. A rate of 0 or less has no limit.
func PerSecond(rate, burst int) Allowance {
	if rate <= 0 {
		return Allowance{}
	}
	return Allowance{Burst: burst, Interval: time.Second / time.Duration(rate)}
}

// bucketCount is the number of buckets in a table.
const bucketCount = 1 << 14

// Buckets is a table of token buckets by key. Its memory is fixed for any number of keys: keys with colliding hashes share a
// bucket. The seed of the hash is random in each process.
type Buckets[Key comparable] struct {
	seed    maphash.Seed
	buckets *[bucketCount]Bucket
}

// NewBuckets returns a table of full buckets.
func NewBuckets[Key comparable]() Buckets[Key] {
	return Buckets[Key]{maphash.MakeSeed(), new([bucketCount]Bucket)}
}

// Take takes a token of a key, or returns the time until the next one.
func (b Buckets[Key]) Take(now time.Time, key Key, limit Allowance) time.Duration {
	return b.Bucket(key).Take(now, limit)
}

// Bucket returns the bucket of a key.
func (b Buckets[Key]) Bucket(key Key) *Bucket {
	return &b.buckets[maphash.Comparable(b.seed, key)%uint64(len(b.buckets))]
}

// maxHops bounds the number of trusted proxies in a row.
const maxHops = 8

// ClientAddress returns the client's address: the peer's or, behind trusted proxies, the last address of X-Forwarded-For that is not a
// trusted proxy. It is invalid if the peer has none, as on a Unix socket.
func ClientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	address, _ := readForwarded(r, trusted)
	return address
}

// UnreadableEntry returns the entry of X-Forwarded-For at which ClientAddress has stopped because it is no address, or "". ClientAddress
// then returns the address of a trusted proxy, which all clients of the proxy share.
func UnreadableEntry(r *http.Request, trusted []netip.Prefix) string {
	_, unreadable := readForwarded(r, trusted)
	return unreadable
}

func readForwarded(r *http.Request, trusted []netip.Prefix) (client netip.Addr, unreadable string) {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	client = peer.Addr().Unmap()
	forwarded := r.Header["X-Forwarded-For"]
	if len(forwarded) == 0 || !IsWithin(client, trusted) {
		return client, ""
	}
	for _, hop := range lastHops(forwarded) {
		hop = strings.TrimSpace(hop)
		next, err := parseHop(hop)
		if err != nil {
			return client, hop
		}
		if client = next.Unmap(); !IsWithin(client, trusted) {
			break
		}
	}
	return client, ""
}

// parseHop returns the address of an entry of X-Forwarded-For. Some proxies add the port, and brackets to IPv6 addresses, as in Forwarded
// (RFC 7239, section 6).
func parseHop(hop string) (netip.Addr, error) {
	address, err := netip.ParseAddr(hop)
	if err == nil {
		return address, nil
	}
	if host, _, err := net.SplitHostPort(hop); err == nil {
		return netip.ParseAddr(host)
	}
	if host, ok := strings.CutSuffix(strings.TrimPrefix(hop, "["), "]"); ok {
		return netip.ParseAddr(host)
	}
	return netip.Addr{}, err
}

// lastHops returns the last maxHops addresses of X-Forwarded-For, the last one first. Several header lines are one list (RFC
// 9110, section 5.3), because each proxy may add its own line.
func lastHops(lines []string) (hops []string) {
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			if len(hops) == maxHops {
				return hops
			}
			at := strings.LastIndexByte(line, ',')
			hops = append(hops, line[at+1:])
			if more = at >= 0; more {
				line = line[:at]
			}
		}
	}
	return hops
}

// IsWithin reports whether an address is in one of the networks.
func IsWithin(address netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}
