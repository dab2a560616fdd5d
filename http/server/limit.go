package server

import (
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// limitAddress counts a request without a known credential against the client's address. Errors: rate_limited.
func (c *Call) limitAddress() error {
	limits := c.server.options.Limits
	allowed := limit.PerSecond(limits.AddressRate, limits.AddressBurst)
	if wait := c.server.addresses.Take(c.server.now(), limit.Client{Address: c.Address()}, allowed); wait > 0 {
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

// maxLoggedEntry bounds an entry of X-Forwarded-For in the log, in bytes.
const maxLoggedEntry = 100

// warnOfForwarded logs, once for the process, that a trusted proxy has sent an X-Forwarded-For that cannot be read: all limits by address
// then take its clients for one. Clients can cause it too, where the addresses of clients are trusted, so that it is not logged again.
func (s *Server) warnOfForwarded(r *http.Request) {
	if entry := limit.UnreadableEntry(r, s.options.TrustedProxies); entry != "" {
		s.forwarded.Do(func() {
			s.log.Warn("the client's address cannot be read in X-Forwarded-For of a trusted proxy: all its clients are one for the limits by address",
				slog.String("peer", r.RemoteAddr), slog.String("entry", entry[:min(len(entry), maxLoggedEntry)]))
		})
	}
}
