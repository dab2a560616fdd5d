package domains

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/atelier-run/atelier/limit"
)

// strangers limits the look-ups of names that unauthenticated clients choose. It limits the look-ups of each client, so that one client cannot
// exhaust the look-ups of all clients, and the look-ups of all clients together.
type strangers struct {
	all     *rate.Limiter
	clients limit.ClientBuckets
	each    limit.Allowance
	proxies []netip.Prefix
}

// newStrangers returns limits that are not used yet: perSecond and burst for all clients together, and a tenth of both for each client. The
// clients behind a proxy cannot be distinguished; only the limit of all clients applies to them.
func newStrangers(perSecond, burst int, proxies []netip.Prefix) *strangers {
	return &strangers{
		all: rate.NewLimiter(rate.Limit(perSecond), burst), clients: limit.NewClientBuckets(), proxies: proxies,
		each: limit.Allowance{Burst: burst / 10, Interval: 10 * time.Second / time.Duration(perSecond)},
	}
}

// allow counts a look-up for a client, and reports whether it may be made.
func (s *strangers) allow(now time.Time, client netip.Addr) bool {
	client = client.Unmap()
	if !slices.ContainsFunc(s.proxies, func(p netip.Prefix) bool { return p.Contains(client) }) &&
		s.clients.Take(now, limit.Client{Address: client}, s.each) > 0 {
		return false
	}
	return s.all.AllowN(now, 1)
}
