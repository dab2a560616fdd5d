package browser

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

var (
	here      = netip.MustParseAddr("192.0.2.1")
	elsewhere = netip.MustParseAddr("198.51.100.7")
)

func TestSignInAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSeparateAttempts(limit.Client{Address: here, Subject: "alice@example.com"}, limit.Client{Address: elsewhere, Subject: "alice@example.com"},
			limit.Client{Address: here, Subject: "bob@example.com"})
		for i := range 10 {
			if wait := wait(g, here, "alice@example.com"); wait != 0 {
				t.Fatalf("attempt %d waits %s", i, wait)
			}
		}
		if wait := wait(g, here, "alice@example.com"); wait != 10*time.Second {
			t.Errorf("attempt 11 waits %s", wait)
		}
		if wait(g, elsewhere, "alice@example.com") != 0 || wait(g, here, "bob@example.com") != 0 {
			t.Error("an attacker locks others out")
		}
		time.Sleep(10*time.Second - 1)
		if wait(g, here, "alice@example.com") == 0 {
			t.Error("another attempt is allowed too early")
		}
		time.Sleep(time.Nanosecond)
		if wait(g, here, "alice@example.com") != 0 || wait(g, here, "alice@example.com") == 0 {
			t.Error("not exactly one attempt is allowed after ten seconds")
		}
	})
}

// An attacker in one network cannot use up the limits of all networks, for however long: the strictest limit refuses it
// first.
func TestAttackerLocksOutNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewSignInAttempts()
		for range 3600 {
			for range 100 {
				wait(g, here, "alice@example.com")
			}
			time.Sleep(time.Second)
			if wait := wait(g, elsewhere, "alice@example.com"); wait > 10*time.Second {
				t.Fatalf("alice waits %s", wait)
			}
		}
		time.Sleep(100 * time.Second)
		for range 10 {
			if wait := wait(g, elsewhere, "alice@example.com"); wait != 0 {
				t.Fatalf("alice waits %s", wait)
			}
		}
	})
}

func TestAttemptsFromManyNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewSignInAttempts()
		passed := 0
		for i := range 1000 {
			if wait(g, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "alice@example.com") == 0 {
				passed++
			}
		}
		if passed < 290 || passed > 300 { // networks with colliding hashes share a bucket
			t.Errorf("%d attempts on one account were allowed", passed)
		}
	})
}

func TestAttemptsOnManyAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		another := netip.MustParseAddr("2001:db8::1")
		g := newSeparateAttempts(limit.Client{Address: here, Subject: "b@example.com"}, limit.Client{Address: another, Subject: "a@example.com"})
		passed := 0
		for i := range 1000 {
			if wait(g, here, fmt.Sprintf("%d@example.com", i)) == 0 {
				passed++
			}
		}
		if passed != 100 {
			t.Errorf("%d attempts from one network were allowed", passed)
		}
		if wait(g, another, "a@example.com") != 0 {
			t.Error("another network waits")
		}
	})
}

// wait counts an attempt and returns the time until the next one is allowed.
func wait(g *SignInAttempts, from netip.Addr, email string) time.Duration {
	if refused, is := errors.AsType[*entity.Error](g.Take(time.Now(), from, email, false)); is {
		return refused.RetryAfter
	}
	return 0
}

// newSeparateAttempts returns limits with separate buckets for the given attempts. The tables hash with a random seed, and a
// collision would disturb tests of the effect of one attempt on another.
func newSeparateAttempts(guessers ...limit.Client) *SignInAttempts {
	for {
		if g := NewSignInAttempts(); g.apart(guessers) {
			return g
		}
	}
}

func (g *SignInAttempts) apart(guessers []limit.Client) bool {
	at := time.Unix(0, 0) // all buckets are full again at the time of the test
	share := func(b limit.ClientBuckets, one, other limit.Client) bool {
		at = at.Add(time.Hour)
		once := limit.Allowance{Burst: 1, Interval: time.Second}
		return b.Take(at, one, once) == 0 && b.Take(at, other, once) > 0
	}
	for i, a := range guessers {
		for _, b := range guessers[:i] {
			if a != b && share(g.pairs, a, b) || a.Subject != b.Subject && g.emails.Bucket(a.Subject) == g.emails.Bucket(b.Subject) ||
				a.Address != b.Address && share(g.networks, limit.Client{Address: a.Address}, limit.Client{Address: b.Address}) {
				return false
			}
		}
	}
	return true
}
