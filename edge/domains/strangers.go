package domains

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/atelier-run/atelier/limit"
)

// strangers limits the look-ups of names that clients choose before they have sent anything else: those of each client, so that one
// cannot use up what is left for the others, and those of all together.
type strangers struct {
	all     *rate.Limiter
	clients limit.ClientBuckets
	each    limit.Allowance
	proxies []netip.Prefix
}

// newStrangers returns full limits: perSecond and burst of all clients, and a tenth of both for each of them. The clients behind one of
// the proxies cannot be distinguished, and are limited together with all others only.
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
