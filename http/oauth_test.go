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
// them.
func TestRegistrationsHaveALimitForAllAddresses(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	register := func(from string) int {
		r := httptest.NewRequest("POST", "/oauth/register", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", from)
		w := httptest.NewRecorder()
		s.node.Server.ServeHTTP(w, r)
		if w.Code == nethttp.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", w.Body)
		}
		return w.Code
	}
	for _, want := range []int{500, 30} {
		answered := 0
		for i := range 1000 {
			if register(fmt.Sprintf("2001:db8:%x::1", i)) == nethttp.StatusBadRequest {
				answered++
			}
		}
		if answered != want {
			t.Errorf("%d registrations were looked at, want %d", answered, want)
		}
		s.clock.advance(time.Minute)
	}
}
