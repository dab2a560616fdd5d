package http_test

import (
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
)

func TestSignInIsThrottled(t *testing.T) {
	s := newSite(t)
	s.enter("alice")
	b := s.browser()
	for range 10 {
		b.post("/sign-in", "email", "alice@example.com", "password", "wrong").page(403)
	}
	for _, email := range []string{"alice@example.com", "ALICE@example.com"} {
		refused := b.post("/sign-in", "email", email, "password", goodPassword).page(429, "Too many attempts", "Try again in 10 seconds.")
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
		s.node.Server.CountSignInAttempt(s.clock.Now(), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), "alice@example.com")
	}
	other.headers["X-Forwarded-For"], used.headers["X-Forwarded-For"] = "192.0.2.1", "192.0.2.2"
	other.post("/sign-in", "email", "alice@example.com", "password", goodPassword).page(429)
	used.post("/sign-in", "email", "Alice@example.com", "password", goodPassword).leads("/account")
}

// A page's limit by address is told on a page as well.
func TestPagesAreLimitedByAddress(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Limits = server.Limits{AddressRate: 1, AddressBurst: 2} })
	b := s.browser()
	b.get("/sign-in").page(200)
	b.send("GET", "/sign-in", url.Values(nil)).page(200)
	if refused := b.get("/sign-in").page(429, "Too many attempts"); refused.Header.Get("Retry-After") != "1" {
		t.Errorf("head: %v", refused.Header)
	}
}
