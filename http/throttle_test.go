package http_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/http"
)

var (
	here      = netip.MustParseAddr("192.0.2.1")
	elsewhere = netip.MustParseAddr("198.51.100.7")
)

func TestGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := http.NewGuessesApart(http.Try{From: here, Email: "alice@example.com"}, http.Try{From: elsewhere, Email: "alice@example.com"},
			http.Try{From: here, Email: "bob@example.com"})
		for i := range 10 {
			if wait := g.Wait(here, "alice@example.com"); wait != 0 {
				t.Fatalf("guess %d waits %s", i, wait)
			}
		}
		if wait := g.Wait(here, "alice@example.com"); wait != 10*time.Second {
			t.Errorf("the eleventh waits %s", wait)
		}
		if g.Wait(elsewhere, "alice@example.com") != 0 || g.Wait(here, "bob@example.com") != 0 {
			t.Error("who guesses keeps others out")
		}
		time.Sleep(10*time.Second - 1)
		if g.Wait(here, "alice@example.com") == 0 {
			t.Error("one more comes too early")
		}
		time.Sleep(time.Nanosecond)
		if g.Wait(here, "alice@example.com") != 0 || g.Wait(here, "alice@example.com") == 0 {
			t.Error("not one in ten seconds")
		}
	})
}

// One network cannot use up what is everybody's, however long it goes on: it is refused before that is asked.
func TestGuessesLockNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := http.NewGuesses()
		for range 3600 {
			for range 100 {
				g.Wait(here, "alice@example.com")
			}
			time.Sleep(time.Second)
			if wait := g.Wait(elsewhere, "alice@example.com"); wait > 10*time.Second {
				t.Fatalf("alice waits %s", wait)
			}
		}
		time.Sleep(100 * time.Second)
		for range 10 {
			if wait := g.Wait(elsewhere, "alice@example.com"); wait != 0 {
				t.Fatalf("alice waits %s", wait)
			}
		}
	})
}

func TestGuessesFromManyNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := http.NewGuesses()
		passed := 0
		for i := range 1000 {
			if g.Wait(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "alice@example.com") == 0 {
				passed++
			}
		}
		if passed < 290 || passed > 300 { // those whose hashes meet share a bucket
			t.Errorf("%d guesses about one person passed", passed)
		}
	})
}

func TestGuessesAboutManyPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		another := netip.MustParseAddr("2001:db8::1")
		g := http.NewGuessesApart(http.Try{From: here, Email: "b@example.com"}, http.Try{From: another, Email: "a@example.com"})
		passed := 0
		for i := range 1000 {
			if g.Wait(here, fmt.Sprintf("%d@example.com", i)) == 0 {
				passed++
			}
		}
		if passed != 100 {
			t.Errorf("%d guesses of one network passed", passed)
		}
		if g.Wait(another, "a@example.com") != 0 {
			t.Error("another network waits")
		}
	})
}

func TestSignInIsThrottled(t *testing.T) {
	s := newSite(t)
	s.enter("alice")
	b := s.browser()
	for range 10 {
		b.post("/sign-in", "email", "alice@example.com", "password", "wrong").page(403)
	}
	for _, email := range []string{"alice@example.com", "ALICE@example.com"} {
		refused := b.post("/sign-in", "email", email, "password", goodPassword).page(429, "Too many tries", "Try again in 10 seconds.")
		if refused.Header.Get("Retry-After") != "10" || len(refused.Cookies()) != 0 {
			t.Errorf("head: %v", refused.Header)
		}
	}
	s.clock.advance(10 * time.Second)
	b.post("/sign-in", "email", "alice@example.com", "password", goodPassword).leads("/account")
}

// However many networks guess, a person gets in with a browser that they used before; and only with that.
func TestGuessersKeepNobodyOut(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	s.enter("alice")
	s.enter("bob")
	used, other := s.browser(), s.browser()
	used.post("/sign-in", "email", "alice@example.com", "password", goodPassword).leads("/account")
	other.post("/sign-in", "email", "bob@example.com", "password", goodPassword).leads("/account")
	for _, b := range []*browser{used, other} {
		b.post("/sign-out").leads("/sign-in")
	}
	for i := range 400 {
		s.node.Server.Guess(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), "alice@example.com", s.clock.Now())
	}
	other.headers["X-Forwarded-For"], used.headers["X-Forwarded-For"] = "192.0.2.1", "192.0.2.2"
	other.post("/sign-in", "email", "alice@example.com", "password", goodPassword).page(429)
	used.post("/sign-in", "email", "Alice@example.com", "password", goodPassword).leads("/account")
}

// A page's limit by address is told on a page as well.
func TestPagesAreLimitedByAddress(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Limits = http.Limits{AddressRate: 1, AddressBurst: 2} })
	b := s.browser()
	b.get("/sign-in").page(200)
	b.send("GET", "/sign-in", url.Values(nil)).page(200)
	if refused := b.get("/sign-in").page(429, "Too many tries"); refused.Header.Get("Retry-After") != "1" {
		t.Errorf("head: %v", refused.Header)
	}
}
