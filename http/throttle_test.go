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
	s.signUp("alice")
	b := s.browser()
	for range 10 {
		b.post("/sign-in", "email", "alice@example.com", "password", "wrong").expectPage(403)
	}
	for _, email := range []string{"alice@example.com", "ALICE@example.com"} {
		refused := b.post("/sign-in", "email", email, "password", goodPassword).expectPage(429, "Too many attempts", "Try again in 10 seconds.")
		if refused.Header.Get("Retry-After") != "10" || len(refused.Cookies()) != 0 {
			t.Errorf("head: %v", refused.Header)
		}
	}
	s.clock.advance(10 * time.Second)
	b.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
}

// Attacks from many networks do not lock out a person with a known browser, and only that browser.
func TestKnownBrowserIsNotLockedOut(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	s.signUp("alice")
	s.signUp("bob")
	used, other := s.browser(), s.browser()
	used.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectRedirect("/account")
	other.post("/sign-in", "email", "bob@example.com", "password", goodPassword).expectRedirect("/account")
	for _, b := range []*browser{used, other} {
		b.post("/sign-out").expectRedirect("/sign-in")
	}
	for i := range 400 {
		s.node.Server.CountSignInAttempt(s.clock.Now(), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), "alice@example.com")
	}
	other.headers["X-Forwarded-For"], used.headers["X-Forwarded-For"] = "192.0.2.1", "192.0.2.2"
	other.post("/sign-in", "email", "alice@example.com", "password", goodPassword).expectPage(429)
	used.post("/sign-in", "email", "Alice@example.com", "password", goodPassword).expectRedirect("/account")
}

// The refusal by the limit for an address is shown as a page.
func TestPagesAreLimitedByAddress(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Limits = server.Limits{AddressRate: 1, AddressBurst: 2} })
	b := s.browser()
	b.get("/sign-in").expectPage(200)
	b.send("GET", "/sign-in", url.Values(nil)).expectPage(200)
	if refused := b.get("/sign-in").expectPage(429, "Too many attempts"); refused.Header.Get("Retry-After") != "1" {
		t.Errorf("head: %v", refused.Header)
	}
}
