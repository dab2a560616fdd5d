package http_test

import (
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/http"
)

// Registrations are limited for all addresses together, so that a client with many addresses cannot store any number of
// them. Invalid ones do not count, so that they cannot keep others from registering.
func TestRegistrationsHaveALimitForAllAddresses(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	register := func(from, body string) int {
		r := httptest.NewRequest("POST", "/oauth/register", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", from)
		w := httptest.NewRecorder()
		s.node.Server.ServeHTTP(w, r)
		if w.Code == nethttp.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", w.Body)
		}
		return w.Code
	}
	for i := range 600 {
		invalid := []string{"{}", `{"redirect_uris":["http://example.com/back"]}`}[i%2]
		if status := register(fmt.Sprintf("2001:db9:%x::1", i), invalid); status != nethttp.StatusBadRequest {
			t.Fatalf("an invalid registration was answered %d", status)
		}
	}
	for _, want := range []int{500, 30} {
		registered := 0
		for i := range 1000 {
			if register(fmt.Sprintf("2001:db8:%x::1", i), `{"client_name":"T","redirect_uris":["https://example.com/back"]}`) == nethttp.StatusCreated {
				registered++
			}
		}
		if registered != want {
			t.Errorf("%d clients were registered, want %d", registered, want)
		}
		s.clock.advance(time.Minute)
	}
}
