package http_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/http"
)

// Requests for the metrics share a gathering a second, whatever their number. As long as few of them wait, they see all events before them.
func TestMetricsUnderLoad(t *testing.T) {
	for clients, isFresh := range map[int]bool{10: true, 20: false} {
		t.Run(fmt.Sprint(clients, " clients"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gathered, events atomic.Int64
				registry := prometheus.NewRegistry()
				registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "events", Help: "Events so far."}, func() float64 {
					gathered.Add(1)
					number := events.Load()
					time.Sleep(6 * time.Millisecond)
					return float64(number)
				}))
				s := newFakeEntities().server(t, func(o *http.Options) { o.Registerer = registry })
				read := func() (number int) {
					text := request(t, s, "GET", "/metrics", "", "").Body.String()
					if _, err := fmt.Sscanf(text[strings.LastIndex(text, "\nevents")+1:], "events %d", &number); err != nil {
						t.Errorf("%v: %s", err, text)
					}
					return number
				}
				for n := range 10 { // one after the other
					events.Add(1)
					if got := read(); got != n+1 {
						t.Errorf("the metrics have %d events after %d", got, n+1)
					}
				}
				began, before := time.Now(), gathered.Load()
				var group sync.WaitGroup
				for range clients {
					group.Go(func() {
						for time.Since(began) < 10*time.Second {
							had, asked := int(events.Add(1)), time.Now()
							if got := read(); isFresh && got < had || got == 0 {
								t.Errorf("the metrics have %d events after %d", got, had)
							}
							if took := time.Since(asked); took > 2*time.Second {
								t.Errorf("an answer took %v", took)
							}
							time.Sleep(250 * time.Millisecond)
						}
					})
				}
				group.Wait()
				if n := gathered.Load() - before; n < 10 || n > 25 {
					t.Errorf("the metrics were gathered %d times in ten seconds", n)
				}
				time.Sleep(time.Minute)
				events.Store(7)
				if got := read(); got != 7 {
					t.Errorf("the metrics have %d events after the load, want 7", got)
				}
			})
		})
	}
}
