package machine

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The program is built without cgo, so Pebble's block cache and memtables are in the Go heap. Go's garbage collector lets the heap
// grow by a percentage of all live memory: with a full cache of 256 MiB, GOGC=400 let the process grow to 1.5 GB. The time of a
// collection, however, depends only on the memory that the collector scans, which is the memory that can hold pointers; cached
// blocks and memtables cannot. The heap may therefore grow by growthFactor times the scanned memory, but at least by minGrowth,
// regardless of the size of the cache.
const (
	// growthFactor is the growth of the heap between two collections, as a multiple of the memory that a collection scans.
	growthFactor = 4
	// minGrowth is the smallest growth in bytes. It prevents many collections a second of a small heap.
	minGrowth = 64 << 20
	// firstPercent is the value of GOGC until the first collection was measured.
	firstPercent = 400
)

// TuneMemory adjusts GOGC after each garbage collection of this process, unless the environment sets GOGC. GOMEMLIMIT remains
// in effect. Calls after the first have no effect.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		startTuning()
	}
}

// startTuning sets the first percentage and starts the tuner, once.
var startTuning = sync.OnceFunc(func() {
	debug.SetGCPercent(firstPercent)
	t := &tuner{percent: firstPercent, samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	t.awaitCollection()
})

// tuner adjusts GOGC. Its methods are never called concurrently: each call of tune schedules the next one.
type tuner struct {
	// percent is the current value of GOGC.
	percent int
	// samples are read after each collection: the live heap, and the scanned bytes of the heap, the stacks and the globals.
	samples []metrics.Sample
}

// awaitCollection schedules one call of tune after the next collection. The collection frees the unreferenced object that
// awaitCollection allocates, which runs the cleanup of that object.
func (t *tuner) awaitCollection() {
	runtime.AddCleanup(&struct{ next *tuner }{t}, (*tuner).tune, t)
}

// tune measures the last collection, sets GOGC for the next one and schedules the next call.
func (t *tuner) tune() {
	metrics.Read(t.samples)
	live, heap, stack, globals := t.samples[0].Value.Uint64(), t.samples[1].Value.Uint64(), t.samples[2].Value.Uint64(), t.samples[3].Value.Uint64()
	percent := growthPercent(live, heap, stack+globals)
	// Setting GOGC briefly stops all goroutines, so changes of less than a tenth are skipped.
	if percent*10 > t.percent*11 || percent*11 < t.percent*10 {
		t.percent = percent
		debug.SetGCPercent(percent)
	}
	t.awaitCollection()
}

// growthPercent returns the value of GOGC that makes the heap grow by growthFactor times the scanned memory, and at least by
// minGrowth. live is the live heap after the last collection, scanned the part of it that was scanned, and roots the memory
// scanned outside of the heap, all in bytes.
func growthPercent(live, scanned, roots uint64) int {
	growth := max(growthFactor*(scanned+roots), minGrowth)
	return int(max(growth*100/max(live+roots, 1<<20), 1))
}
