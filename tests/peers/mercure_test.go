package peers

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dunglas/mercure"

	"github.com/atelier-run/atelier/tests/bench"
)

// BenchmarkFanOut sends durable events to a thousand connections, through Atelier, a Mercure hub with Bolt, and NATS
// JetStream.
func BenchmarkFanOut(b *testing.B) {
	for _, w := range []int{1, 8, 256} {
		b.Run(fmt.Sprint("inflight=", w), func(b *testing.B) {
			m := bench.NewMember(b, bench.Disk(b))
			readers := bench.NewReaders(b)
			bench.FanOut(b, w, bench.Ours(m, readers, 1000), hub(b, readers, 1000), stream(b, readers, 1000))
		})
	}
}

// BenchmarkLatency measures the latency of a hundred events a second to a hundred connections.
func BenchmarkLatency(b *testing.B) {
	m := bench.NewMember(b, bench.Disk(b))
	readers := bench.NewReaders(b)
	bench.Latencies(b, bench.Ours(m, readers, 100), hub(b, readers, 100), stream(b, readers, 100))
}

const topic = "https://example.com/activity"

// hub returns a broadcast through a Mercure hub with default settings, except for anonymous subscribers and no log. Its
// updates have the size of Atelier's rows.
func hub(b testing.TB, readers *bench.Readers, n int) *bench.Broadcast {
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	transport, err := mercure.NewBoltTransport(mercure.NewSubscriberList(mercure.DefaultSubscriberListCacheSize), quiet,
		filepath.Join(bench.Disk(b), "updates.db"), "updates", 0, mercure.BoltDefaultCleanupFrequency)
	if err != nil {
		b.Fatal(err)
	}
	h, err := mercure.NewHub(ctx, mercure.WithAnonymous(), mercure.WithLogger(quiet), mercure.WithTransport(transport))
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(l)
	b.Cleanup(func() {
		server.Close()
		if err := h.Stop(ctx); err != nil {
			b.Error(err)
		}
	})
	request := fmt.Appendf(nil, "GET /.well-known/mercure?topic=%s HTTP/1.1\r\nHost: bench\r\n\r\n", topic)
	var seq atomic.Uint64
	return &bench.Broadcast{
		Name:        "mercure",
		Connections: readers.Open(bench.Group{Address: l.Addr().String(), Connections: n, Requests: [][]byte{request}}),
		Publish: func() error {
			return h.Publish(ctx, &mercure.Update{Topics: []string{topic}, Event: mercure.Event{Data: row(seq.Add(1))}})
		},
	}
}

// row returns a row with the size of one of Atelier's.
func row(seq uint64) string {
	return fmt.Sprintf(`{"seq":%d,"event":{"kind":"write","actor":"user:usr_01jd0000000000000000000007","at":1790000000000,`+
		`"userId":"usr_01jd0000000000000000000007","entryKind":"file","path":"projects/team-12/sprint-34/%s.md"}}`,
		seq, strings.Repeat("n", 8))
}
