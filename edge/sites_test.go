package edge_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/limit"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
)

// The limits for a client hold for all networks of an IPv6 site together: of requests at one app, and of names that are looked up.
func TestSitesAreLimited(t *testing.T) {
	s := newStage(t, func(o *edge.Options) {
		o.Limits.AddressBurst, o.Limits.AddressInterval, o.Limits.ClientRequests = 5, time.Hour, 2
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	s.publish(s.register("notes", echo(nil)))
	hostOf := func(site, n int) string { return fmt.Sprintf("2001:db8:%x:%x::1", site, n) }
	streams := 0
	for n := range 100 {
		response, err := http.DefaultTransport.RoundTrip(s.request("GET", "/sse", "", "X-Forwarded-For", hostOf(1, n)))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode == 200 {
			streams++
		}
	}
	if streams == 0 || streams > 2*limit.SiteFactor {
		t.Errorf("%d streams of one site at one app", streams)
	}
	before := s.asks(&slugv1.ResolveSlug{})
	for n := range 100 {
		s.get("/", "Host", fmt.Sprintf("notes--space%d.apps.test", n), "X-Forwarded-For", hostOf(1, n))
	}
	if asked := s.asks(&slugv1.ResolveSlug{}) - before; asked == 0 || asked > 5*limit.SiteFactor {
		t.Errorf("%d look-ups of one site", asked)
	}
	response, body := s.get("/", "X-Forwarded-For", hostOf(2, 1))
	s.expect(response, body, 200, "GET")
}
