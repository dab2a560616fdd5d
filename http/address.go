package http

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// addresses limits what comes without a known credential. Its memory is fixed, however many addresses there are: those
// whose hashes meet share a bucket.
type addresses struct {
	seed    maphash.Seed
	buckets [1 << 14]bucket
}

func newAddresses() *addresses { return &addresses{seed: maphash.MakeSeed()} }

func (a *addresses) bucket(address netip.Addr) *bucket {
	return &a.buckets[maphash.Comparable(a.seed, network(address))%uint64(len(a.buckets))]
}

// network is what one client is taken to hold: an IPv4 address, or an IPv6 /64.
func network(address netip.Addr) netip.Prefix {
	address = address.Unmap()
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}

// stranger counts a request of nobody who is known against its address.
func (c *call) stranger() error {
	limits := c.server.options.Limits
	wait := c.server.addresses.bucket(c.address()).take(c.server.now(), limits.AddressRate, limits.AddressBurst)
	if wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests from this address", RetryAfter: wait}
	}
	return nil
}

// address is the client's: the connection's, or what the last proxy that is not trusted said.
func (c *call) address() netip.Addr {
	return clientAddress(c.r, c.server.options.TrustedProxies)
}

// maxHops bounds the proxies in a row that are believed.
const maxHops = 8

func clientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	address := peer.Addr().Unmap()
	forwarded := r.Header["X-Forwarded-For"]
	if len(forwarded) == 0 || !within(address, trusted) {
		return address
	}
	for _, hop := range nearest(forwarded) {
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		if address = next.Unmap(); !within(address, trusted) {
			break
		}
	}
	return address
}

// nearest are the last of a list, the last one first. Several lines of it are one (RFC 9110, section 5.3): of proxies in a
// row each may add its own.
func nearest(lines []string) (hops []string) {
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

func within(address netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(address) })
}
