package node

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The program is built without C, so that Pebble's cache and memtables lie in the Go heap. Go's collector lets a heap grow by
// a percentage of all that is alive: with a full cache of 256 MiB, GOGC=400 let the process grow to 1.5 GB. A collection costs
// time only for what can hold pointers, which blocks and memtables cannot. So the heap may grow by a multiple of that part, and
// by leastGrowth where that part is small; the cache counts once.
const (
	// growthFactor is how much the heap grows between two collections, as a multiple of the memory that a collection scans.
	growthFactor = 4
	// leastGrowth keeps a small heap from being collected many times a second.
	leastGrowth = 64 << 20
	// firstPercent is the GOGC until the first collection has been measured.
	firstPercent = 400
)

// TuneMemory sets the garbage collector for a process that is a node, unless GOGC is set: it adapts the percentage after each
// collection. GOMEMLIMIT stays in force beside it. Calls after the first have no effect.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		startTuning()
	}
}

var startTuning = sync.OnceFunc(func() {
	debug.SetGCPercent(firstPercent)
	t := &tuner{percent: firstPercent, samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	t.awaitCollection()
})

// tuner adapts the collector's percentage. Its methods run one after the other, each call before the next collection's.
type tuner struct {
	percent int
	samples []metrics.Sample
}

// awaitCollection has tune called after the next collection, by which nothing refers to the object that it makes.
func (t *tuner) awaitCollection() {
	runtime.AddCleanup(&struct{ next *tuner }{t}, (*tuner).tune, t)
}

func (t *tuner) tune() {
	metrics.Read(t.samples)
	live, heap, stack, globals := t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64(), t.samples[2].Value.Uint64(), t.samples[3].Value.Uint64()
	percent := growthPercent(live, heap, stack+globals)
	// A change stops all goroutines for a moment: small ones are not worth it.
	if percent*10 > t.percent*11 || percent*11 < t.percent*10 {
		t.percent = percent
		debug.SetGCPercent(percent)
	}
	t.awaitCollection()
}

// growthPercent returns the GOGC with which the heap grows as intended. live is the heap that the last collection found alive,
// scanned the part of it that can hold pointers, and roots what a collection scans outside of the heap, all in bytes.
func growthPercent(live, scanned, roots uint64) int {
	growth := max(growthFactor*(scanned+roots), leastGrowth)
	return int(max(growth*100/max(live+roots, 1<<20), 1))
}
