package server

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// Bucket is a token bucket in one word: the time at which it will be full again.
type Bucket struct{ fullAt atomic.Int64 }

// Take takes one of rate tokens a second, of which burst may be saved up, or tells how long to wait for one.
// A rate of 0 or less never refuses.
func (b *Bucket) Take(now time.Time, rate, burst int) time.Duration {
	if rate <= 0 {
		return 0
	}
	return b.TakeInterval(now, time.Second/time.Duration(rate), burst)
}

// TakeEach is take with the time in which one token comes. A clock that has gone back delays nobody by more than the time of
// one token: no bucket is emptier than empty.
func (b *Bucket) TakeInterval(now time.Time, each time.Duration, burst int) time.Duration {
	interval, at := int64(each), now.UnixNano()
	for {
		full := b.fullAt.Load()
		room := interval * int64(max(burst, 1))
		if full > at+room { // the clock has gone back
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

// Allowance is how many of something may come at once, and the time in which one more may come.
type Allowance struct {
	Burst    int
	Interval time.Duration
}

// Buckets is a table of token buckets by key. Its memory is fixed, however many keys there are: keys whose hashes collide
// share a bucket. The hashes differ from process to process.
type Buckets[Key comparable] struct {
	seed    maphash.Seed
	buckets *[1 << 13]Bucket
}

// NewBuckets makes a table of full buckets.
func NewBuckets[Key comparable]() Buckets[Key] {
	return Buckets[Key]{maphash.MakeSeed(), new([1 << 13]Bucket)}
}

// Take takes a token of a key, or returns how long to wait for one.
func (b Buckets[Key]) Take(now time.Time, key Key, limit Allowance) time.Duration {
	return b.bucket(key).TakeInterval(now, limit.Interval, limit.Burst)
}

// Share reports whether two keys share a bucket.
func (b Buckets[Key]) SharesBucket(one, other Key) bool { return b.bucket(one) == b.bucket(other) }

func (b Buckets[Key]) bucket(key Key) *Bucket {
	return &b.buckets[maphash.Comparable(b.seed, key)%uint64(len(b.buckets))]
}

// Addresses limits what comes without a known credential. Its memory is fixed, however many addresses there are: those
// whose hashes meet share a bucket.
type Addresses struct {
	seed    maphash.Seed
	buckets [1 << 14]Bucket
}

func NewAddresses() *Addresses { return &Addresses{seed: maphash.MakeSeed()} }

func (a *Addresses) Bucket(address netip.Addr) *Bucket {
	return &a.buckets[maphash.Comparable(a.seed, Network(address))%uint64(len(a.buckets))]
}

// Network is what one client is taken to hold: an IPv4 address, or an IPv6 /64.
func Network(address netip.Addr) netip.Prefix {
	address = address.Unmap()
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}

// limitAddress counts a request of nobody who is known against its address.
func (c *Call) limitAddress() error {
	limits := c.server.options.Limits
	wait := c.server.addresses.Bucket(c.Address()).Take(c.server.now(), limits.AddressRate, limits.AddressBurst)
	if wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests from this address", RetryAfter: wait}
	}
	return nil
}

// Address is the client's: the connection's, or what the last proxy that is not trusted said.
func (c *Call) Address() netip.Addr {
	return clientAddress(c.Request, c.server.options.TrustedProxies)
}

// maxHops bounds the proxies in a row that are believed.
const maxHops = 8

func clientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	address := peer.Addr().Unmap()
	forwarded := r.Header["X-Forwarded-For"]
	if len(forwarded) == 0 || !isWithin(address, trusted) {
		return address
	}
	for _, hop := range lastHops(forwarded) {
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		if address = next.Unmap(); !isWithin(address, trusted) {
			break
		}
	}
	return address
}

// nearest are the last of a list, the last one first. Several lines of it are one (RFC 9110, section 5.3): of proxies in a
// row each may add its own.
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

func isWithin(address netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}
