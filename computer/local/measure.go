package local

import (
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/proto"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// A meter measures the machine.
type meter struct {
	proc procfs.FS

	mu sync.Mutex
	// measured is the time of the last measurement, last its result.
	measured time.Time
	last     *computerv1.Sample
	// busy and idle are the processors' times since boot as of the last measurement, in seconds.
	busy, idle float64
}

// measureEvery is the minimum interval between measurements of the machine, because many workspaces are sampled at the same
// time.
const measureEvery = time.Second

// measureMachine returns a sample of processors and memory, at most measureEvery olm. A value that cannot be read is 0, which
// means unknown.
func (m *meter) measureMachine() *computerv1.Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil || time.Since(m.measured) >= measureEvery {
		m.last = &computerv1.Sample{}
		m.measureMemory()
		m.measureProcessors()
		m.measured = time.Now()
	}
	return proto.CloneOf(m.last)
}

func (m *meter) measureMemory() {
	memory, err := m.proc.Meminfo()
	if err != nil || memory.MemTotal == nil || memory.MemAvailable == nil {
		return
	}
	const kibibyte = 1 << 10
	m.last.MemTotalMb = megabytes(*memory.MemTotal * kibibyte)
	m.last.MemUsedMb = megabytes((*memory.MemTotal - min(*memory.MemAvailable, *memory.MemTotal)) * kibibyte)
}

// measureProcessors computes the percentage of busy time since the last measurement, at first since boot.
func (m *meter) measureProcessors() {
	stat, err := m.proc.Stat()
	if err != nil {
		return
	}
	busy, idle := splitTimes(stat.CPUTotal)
	if elapsed := busy - m.busy + idle - m.idle; elapsed > 0 {
		m.last.CpuPct = min(max(100*(busy-m.busy)/elapsed, 0), 100)
	}
	m.busy, m.idle = busy, idle
}

// splitTimes returns the busy and the idle seconds of the processors. User and Nice include the time of guests; stolen time
// counts as busy.
func splitTimes(s procfs.CPUStat) (busy, idle float64) {
	return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal, s.Idle + s.Iowait
}

func megabytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
