package bench

import (
	"fmt"
	"testing"
)

// BenchmarkFanOut sends every event to a thousand connections. hijacked and each are the raw variants.
func BenchmarkFanOut(b *testing.B) {
	for _, w := range []int{1, 8, 256} {
		b.Run(fmt.Sprint("inflight=", w), func(b *testing.B) {
			m, readers := NewMember(b, Disk(b)), NewReaders(b)
			FanOut(b, w, Ours(m, readers, 1000), rawShared(b, readers, 1000), rawEach(b, readers, 1000))
		})
	}
}

// BenchmarkLatency is of a hundred events a second to a hundred connections.
func BenchmarkLatency(b *testing.B) {
	m, readers := NewMember(b, Disk(b)), NewReaders(b)
	Latencies(b, Ours(m, readers, 100), rawShared(b, readers, 100))
}
