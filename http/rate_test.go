package http_test

import (
	"sync"
	"testing"
	"time"

	steady "github.com/atelier-run/atelier/actors/clock"
	"github.com/atelier-run/atelier/http"
)

// TestRateLimitAfterTheClockIsSetBack sets the wall clock back by a minute between two requests. With and without the node's
// clock, the credential waits at most for one token.
func TestRateLimitAfterTheClockIsSetBack(t *testing.T) {
	for name, through := range map[string]func(read func() (time.Time, time.Duration)) func() time.Time{
		"with the node's clock": steady.Steady,
		"with the wall clock": func(read func() (time.Time, time.Duration)) func() time.Time {
			return func() time.Time { wall, _ := read(); return wall }
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			wall, passed := time.UnixMilli(1_800_000_000_000), time.Duration(0)
			pass := func(by, step time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				wall, passed = wall.Add(by+step), passed+by
			}
			w := newFakeEntities()
			s := w.server(t, func(o *http.Options) {
				o.Limits.Rate, o.Limits.Burst = 1, 2
				o.Clock = through(func() (time.Time, time.Duration) {
					mu.Lock()
					defer mu.Unlock()
					return wall, passed
				})
			})
			key := w.key(alice)
			expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
			expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
			expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 429, "")
			pass(0, -time.Minute)
			refused := request(t, s, "GET", "/v1/whoami", key, "")
			expect(t, refused, 429, "")
			if wait := refused.Header().Get("Retry-After"); wait != "1" {
				t.Errorf("a wait of %s s", wait)
			}
			for range 5 {
				pass(1100*time.Millisecond, 0)
				expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
			}
			pass(0, -time.Hour)
			request(t, s, "GET", "/v1/whoami", key, "") // the step may delay a request by one token
			pass(1100*time.Millisecond, 0)
			expect(t, request(t, s, "GET", "/v1/whoami", key, ""), 200, "")
		})
	}
}
