package limit_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/atelier-run/atelier/limit"
)

// hostOf returns the client n of an IPv6 site.
func hostOf(site, n int) limit.Client {
	return limit.Client{Address: netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", site, n))}
}

// newSeparateBuckets returns buckets. No two of the clients share a bucket.
func newSeparateBuckets(clients ...limit.Client) limit.ClientBuckets {
	for {
		b, isSeparate := limit.NewClientBuckets(), true
		for i, one := range clients {
			for _, other := range clients[:i] {
				isSeparate = isSeparate && !b.SharesBucket(one, other)
			}
		}
		if isSeparate {
			return b
		}
	}
}

// The clients of a site together have the limit of SiteFactor clients, however many networks they use.
func TestBucketsOfOneSite(t *testing.T) {
	const burst = 10
	now, allowed := time.Unix(1000, 0), limit.Allowance{Burst: burst, Interval: time.Minute}
	b, passed := limit.NewClientBuckets(), 0
	for round := range 3 {
		for n := range 1 << 16 {
			if b.Take(now, hostOf(1, n), allowed) == 0 {
				passed++
			}
		}
		if want := limit.SiteFactor * burst * (round + 1); passed != want {
			t.Errorf("round %d: the site was allowed %d, want %d", round, passed, want)
		}
		now = now.Add(burst * time.Minute)
	}
}

// A client of a site has no more than its own limit, and its refused requests leave the other clients of the site their limits.
func TestBucketsOfNeighbours(t *testing.T) {
	const burst = 10
	now, allowed := time.Unix(1000, 0), limit.Allowance{Burst: burst, Interval: time.Minute}
	b := newSeparateBuckets(hostOf(1, 1), hostOf(1, 2))
	for _, client := range []limit.Client{hostOf(1, 1), hostOf(1, 2)} {
		passed := 0
		for range 1000 {
			if b.Take(now, client, allowed) == 0 {
				passed++
			}
		}
		if passed != burst {
			t.Errorf("%s was allowed %d, want %d", client.Address, passed, burst)
		}
	}
}

// A site that is refused leaves the clients of other sites their buckets, although their hashes collide with the hashes of its networks.
func TestBucketsBesideASite(t *testing.T) {
	now, allowed := time.Unix(1000, 0), limit.Allowance{Burst: 2, Interval: time.Minute}
	b := limit.NewClientBuckets()
	for n := range 1 << 16 {
		b.Take(now, hostOf(1, n), allowed)
	}
	refused := 0
	for n := range 1000 {
		if b.Take(now, limit.Client{Address: netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)})}, allowed) > 0 {
			refused++
		}
	}
	if refused > 20 {
		t.Errorf("%d of 1000 clients are refused", refused)
	}
}

func TestCountersOfOneSite(t *testing.T) {
	const most = 8
	c := limit.NewClientCounters()
	for round := range 2 {
		var held []limit.Counted
		for n := range 1000 {
			if counted, ok := c.Acquire(hostOf(1, n), most); ok {
				held = append(held, counted)
			}
		}
		if len(held) != limit.SiteFactor*most {
			t.Errorf("round %d: the site has %d, want %d", round, len(held), limit.SiteFactor*most)
		}
		for _, counted := range held {
			counted.Release()
		}
		held = nil
		for range 1000 {
			if counted, ok := c.Acquire(hostOf(1, 1), most); ok {
				held = append(held, counted)
			}
		}
		if len(held) != most {
			t.Errorf("round %d: one client has %d, want %d", round, len(held), most)
		}
		for _, counted := range held {
			counted.Release()
		}
	}
	limit.Counted{}.Release()
}
