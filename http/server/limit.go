package server

import (
	"net/http"
	"net/netip"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// The types of package limit, which the packages beside this one use for their own limits.
type (
	Bucket                  = limit.Bucket
	Buckets[Key comparable] = limit.Buckets[Key]
	Allowance               = limit.Allowance
)

// NewBuckets returns a table of full buckets.
func NewBuckets[Key comparable]() Buckets[Key] { return limit.NewBuckets[Key]() }

// Network returns the network that is counted as one client: an IPv4 address, or the /64 of an IPv6 address.
func Network(address netip.Addr) netip.Prefix { return limit.Network(address) }

// limitAddress counts a request without a known credential against the client's address. Errors: rate_limited.
func (c *Call) limitAddress() error {
	limits := c.server.options.Limits
	wait := c.server.addresses.Bucket(Network(c.Address())).Take(c.server.now(), limits.AddressRate, limits.AddressBurst)
	if wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests from this address", RetryAfter: wait}
	}
	return nil
}

// Address returns the client's address: the peer's or, behind trusted proxies, the last address of X-Forwarded-For that is
// not a trusted proxy.
func (c *Call) Address() netip.Addr {
	return clientAddress(c.Request, c.server.options.TrustedProxies)
}

func clientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	return limit.ClientAddress(r, trusted)
}
