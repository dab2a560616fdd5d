package bench

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Broadcast is a server that sends every event to every connection.
type Broadcast struct {
	Name        string
	Connections *Connections
	// Publish makes one event durable and starts its delivery.
	Publish func() error

	published uint64
}

// Slice has w events in flight for about d: it publishes the next event when all connections have received one. It returns the
// number of frames that arrived, and the time.
func (c *Broadcast) Slice(b *testing.B, w int, d time.Duration) (frames float64, took time.Duration) {
	began := time.Now()
	before := c.published
	var next atomic.Uint64
	next.Store(before)
	var workers sync.WaitGroup
	for range w {
		workers.Go(func() {
			for time.Since(began) < d {
				mine := next.Add(1)
				if mine > before+uint64(w) {
					c.Connections.Await(mine - uint64(w))
				}
				if err := c.Publish(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	c.published = next.Load()
	c.Connections.Await(c.published)
	return float64(c.published-before) * float64(c.Connections.Connections), time.Since(began)
}

// FanOut measures broadcasts with w events in flight, and reports the first relative to each other one.
func FanOut(b *testing.B, w int, broadcasts ...*Broadcast) {
	var variants []Variant
	for _, c := range broadcasts {
		variants = append(variants, Variant{c.Name, func(d time.Duration) (float64, time.Duration) { return c.Slice(b, w, d) }})
	}
	Rounds(b, time.Second, variants...).Report(b, "frame", variants...)
}

// Latency publishes a hundred events a second for about d, and returns the times from publishing to the arrival at each
// connection.
func (c *Broadcast) Latency(b *testing.B, d time.Duration) []time.Duration {
	c.Connections.Stamp()
	var sent []int64
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for began := time.Now(); time.Since(began) < d; {
		<-ticks.C
		sent = append(sent, time.Now().UnixNano())
		if err := c.Publish(); err != nil {
			b.Fatal(err)
		}
		c.published++
	}
	c.Connections.Await(c.published)
	var took []time.Duration
	for _, stamps := range c.Connections.Stamps() {
		for i, at := range stamps {
			took = append(took, time.Duration(at-sent[i]))
		}
	}
	return took
}

// Latencies measures the latency of broadcasts at a hundred events a second.
func Latencies(b *testing.B, broadcasts ...*Broadcast) {
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	for b.Loop() {
		for i := range Turns * len(broadcasts) {
			c := broadcasts[i%len(broadcasts)]
			took := c.Latency(b, 2*time.Second)
			p50[c.Name] = append(p50[c.Name], float64(Quantile(took, 0.5).Microseconds()))
			p99[c.Name] = append(p99[c.Name], float64(Quantile(took, 0.99).Microseconds()))
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, c := range broadcasts {
		b.ReportMetric(Median(p50[c.Name]), c.Name+"-p50-µs")
		b.ReportMetric(Median(p99[c.Name]), c.Name+"-p99-µs")
		if i > 0 {
			b.ReportMetric(ratio(p99[broadcasts[0].Name], p99[c.Name]), "p99-of-"+c.Name)
		}
	}
}

// Ours returns the product as a broadcast to n connections.
func Ours(m *Member, readers *Readers, n int) *Broadcast {
	var mu sync.Mutex
	operations := NewOperations(1, 10_000, false)
	return &Broadcast{
		Name:        "atelier",
		Connections: readers.Open(Group{Address: m.Address, Connections: n, Requests: [][]byte{m.Request("/events")}}),
		Publish: func() error {
			mu.Lock()
			op := operations.Next()
			mu.Unlock()
			return m.Record(op)
		},
	}
}
