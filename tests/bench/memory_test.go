package bench

import (
	"testing"
	"time"
)

// BenchmarkIdleConnection is the memory of an idle stream in the server's process.
func BenchmarkIdleConnection(b *testing.B) {
	const connections = 5000
	readers := NewReaders(b)
	var each []float64
	for b.Loop() {
		child := NewChild(b)
		started := child.ask(wish{Start: Disk(b)})
		group := Group{Address: started.Address, Connections: connections, Requests: [][]byte{started.request("/events")}}
		warm := group
		warm.Connections = 10
		readers.Open(warm)
		before := child.ask(wish{})
		open := readers.Open(group)
		after := child.ask(wish{})
		each = append(each, float64(after.Resident-before.Resident)/connections/1024)
		open.Close()
		if err := child.stop(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(Median(each), "KB/connection")
}

func (s state) request(rest string) []byte {
	return (&Member{Slug: s.Slug, Key: s.Key}).Request(rest)
}

// BenchmarkStalledConnection is the kernel's memory for a stream whose client has stopped reading. The client's side,
// whose receive buffer is the least that there is, is in it.
func BenchmarkStalledConnection(b *testing.B) {
	const connections, events = 500, 20_000
	readers := NewReaders(b)
	var kernel []float64
	for b.Loop() {
		child := NewChild(b)
		started := child.ask(wish{Start: Disk(b)})
		open := readers.Open(Group{Address: started.Address, Connections: connections, Manner: Ignore,
			Requests: [][]byte{started.request("/events")}, ReceiveBuffer: 1})
		before := kernelTCP()
		child.ask(wish{Events: events})
		full := settled(kernelTCP)
		kernel = append(kernel, float64(full-before)/connections/1024)
		open.Close()
		if err := child.stop(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(Median(kernel), "kernel-KB/connection")
}

// settled is a value once it no longer grows.
func settled(value func() int64) int64 {
	last, same := value(), 0
	for same < 10 {
		<-time.After(50 * time.Millisecond)
		now := value()
		if same++; now > last {
			last, same = now, 0
		}
	}
	return last
}
