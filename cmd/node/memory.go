package node

import (
	"os"
	"runtime/debug"
)

// collectAt is the growth of the heap in percent at which it is collected. The journal's cache and memtables lie outside
// of the heap, which is small, so that at Go's 100 it would be collected all the time.
const collectAt = 400

// TuneMemory sets the garbage collector for a process that is a node, unless GOGC has.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}
