package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
)

// BenchmarkFanOut sends every event to a thousand connections. The raw variants are hijacked (rawShared) and each (rawEach).
func BenchmarkFanOut(b *testing.B) {
	for _, w := range []int{1, 8, 256} {
		b.Run(fmt.Sprint("inflight=", w), func(b *testing.B) {
			m, readers := NewMember(b, Disk(b)), NewReaders(b)
			FanOut(b, w, Ours(m, readers, 1000), rawShared(b, readers, 1000), rawEach(b, readers, 1000))
		})
	}
}

// BenchmarkLatency sends a hundred events a second to a hundred connections.
func BenchmarkLatency(b *testing.B) {
	m, readers := NewMember(b, Disk(b)), NewReaders(b)
	Latencies(b, Ours(m, readers, 100), rawShared(b, readers, 100))
}

const million = 1_000_000

// BenchmarkReplay sends a million events from the beginning to one client. The variant memory sends as many frames of the same
// size from memory, 64 KB with each write.
func BenchmarkReplay(b *testing.B) {
	m, readers := NewMember(b, Filled(b, million)), NewReaders(b)
	m.find(b)
	memory := serveRaw(b, http.HandlerFunc(replayMemory))
	replay := func(address string, request []byte) func(time.Duration) (float64, time.Duration) {
		return func(time.Duration) (float64, time.Duration) {
			began := time.Now()
			c := readers.Open(Group{Address: address, Connections: 1, Requests: [][]byte{request}})
			c.Await(million)
			took := time.Since(began)
			c.Close()
			return million, took
		}
	}
	variants := []Variant{
		{"atelier", replay(m.Address, m.Request("/events"))}, {"memory", replay(memory, rawRequest)},
	}
	Rounds(b, 0, variants...).Report(b, "event", variants...)
}

func replayMemory(w http.ResponseWriter, _ *http.Request) {
	cursor := activity.NewCursor(make([]byte, 32), rawWorkspace)
	operations := NewOperations(1, 10_000, false)
	var block []byte
	rows := 0
	for ; len(block) < 64<<10; rows++ {
		row := activity.Row{Seq: million / 2, At: time.Now().UnixMilli(), Operation: operations.Next()}
		block = activity.AppendFrame(block, cursor, row.Seq, activity.Encode(row))
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := w.(http.Flusher)
	for left := million; left > 0; left -= rows {
		if left < rows {
			end := block
			for range rows - left {
				end = end[:bytes.LastIndex(end[:len(end)-2], []byte("\n\n"))+2]
			}
			block = end
		}
		if _, err := w.Write(block); err != nil {
			return
		}
		flusher.Flush()
	}
}

// BenchmarkIdleConnection reports the memory of an idle stream in the server's process.
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

// BenchmarkStalledConnection reports the kernel's memory for a stream to a client that has stopped reading. It includes the
// client's receive buffer, which has the least size.
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
		full := stable(kernelTCP)
		kernel = append(kernel, float64(full-before)/connections/1024)
		open.Close()
		if err := child.stop(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(Median(kernel), "kernel-KB/connection")
}

// stable returns a value when it no longer grows.
func stable(value func() int64) int64 {
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
