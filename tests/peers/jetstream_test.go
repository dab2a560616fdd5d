package peers

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/atelier-run/atelier/tests/bench"
)

const subject = "activity"

// newJetStream starts a NATS server in this process, with one stream on disk, and returns its address and a client.
func newJetStream(b testing.TB, syncAlways bool) (address string, js jetstream.JetStream) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, PingInterval: time.Hour,
		JetStream: true, StoreDir: bench.Disk(b), SyncAlways: syncAlways,
	})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		b.Fatal("the NATS server has not started")
	}
	c, err := nats.Connect(s.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	if js, err = jetstream.New(c, jetstream.WithPublishAsyncMaxPending(512)); err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: "activity", Subjects: []string{subject}, Storage: jetstream.FileStorage,
	}); err != nil {
		b.Fatal(err)
	}
	return s.Addr().(*net.TCPAddr).String(), js
}

// frame returns a message with the size and the mark of one of Atelier's frames; the readers count marks.
func frame(seq uint64) []byte {
	return fmt.Appendf(nil, "id: 0123456789012345678901\nevent: write\ndata: %s\n\n", row(seq))
}

// stream returns a broadcast through JetStream. Publish returns when the event is durable. The readers are core NATS
// subscribers, which receive an event before it is durable.
func stream(b testing.TB, readers *bench.Readers, n int) *bench.Broadcast {
	address, js := newJetStream(b, true)
	hello := fmt.Appendf(nil, "CONNECT {\"verbose\":false}\r\nSUB %s 1\r\nPING\r\n", subject)
	var seq atomic.Uint64
	return &bench.Broadcast{
		Name: "jetstream",
		Connections: readers.Open(bench.Group{
			Address: address, Connections: n, Requests: [][]byte{hello}, Greeting: []byte("PONG\r\n"),
		}),
		Publish: func() error {
			_, err := js.Publish(context.Background(), subject, frame(seq.Add(1)))
			return err
		},
	}
}

// BenchmarkReplay replays a million events to one client: from Atelier over HTTP, and from JetStream to an ordered
// consumer in this process.
func BenchmarkReplay(b *testing.B) {
	const events = 1_000_000
	m, readers := bench.NewMember(b, bench.Filled(b, events)), bench.NewReaders(b)
	_, js := newJetStream(b, false)
	for seq := range uint64(events) {
		if _, err := js.PublishAsync(subject, frame(seq)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	variants := []bench.Variant{
		{Name: "atelier", Slice: func(time.Duration) (float64, time.Duration) {
			began := time.Now()
			c := readers.Open(bench.Group{Address: m.Address, Connections: 1, Requests: [][]byte{m.Request("/events")}})
			c.Await(events)
			took := time.Since(began)
			c.Close()
			return events, took
		}},
		{Name: "jetstream", Slice: func(time.Duration) (float64, time.Duration) {
			began := time.Now()
			if err := consume(js, events); err != nil {
				b.Error(err)
			}
			return events, time.Since(began)
		}},
	}
	bench.Rounds(b, 0, variants...).Report(b, "event", variants...)
}

// consume receives a number of events.
func consume(js jetstream.JetStream, events int) error {
	consumer, err := js.OrderedConsumer(context.Background(), "activity", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	done := make(chan struct{})
	seen := 0
	c, err := consumer.Consume(func(jetstream.Msg) {
		if seen++; seen == events {
			close(done)
		}
	}, jetstream.PullMaxMessages(10_000))
	if err != nil {
		return err
	}
	defer c.Stop()
	<-done
	return nil
}
