package local

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer/local/cgroup"
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

// measureMachine returns a sample of processors and memory, at most measureEvery old. A value that cannot be read is 0, which
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

// memory returns the bytes of memory of the machine, or 0 if they are not known.
func (m *meter) memory() int64 {
	memory, err := m.proc.Meminfo()
	if err != nil || memory.MemTotal == nil {
		return 0
	}
	return int64(*memory.MemTotal) << 10
}

// available returns the bytes of memory that programs can use without swapping, or 0 if they are not known.
func (m *meter) available() uint64 {
	memory, err := m.proc.Meminfo()
	if err != nil || memory.MemAvailable == nil {
		return 0
	}
	return *memory.MemAvailable << 10
}

// memoryOfAll is Memory of all computers. Without control groups, computers use all memory that is not available on the machine, or in the
// control group of the server.
func (d *Driver) memoryOfAll() (used, limit uint64, err error) {
	if limit = uint64(max(d.o.MaxMemory, 0)); limit == 0 || d.forbidden != nil {
		return 0, 0, nil
	}
	if d.root != nil {
		used, err = d.root.MemoryUsage()
		return used, limit, err
	}
	available := d.meter.available()
	if available == 0 {
		return 0, 0, nil
	}
	if own := cgroup.OwnMemory(); own.Limit > 0 {
		available = min(available, own.Limit-min(own.Used, own.Limit))
	}
	return limit - min(available, limit), limit, nil
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

// measure replaces the values of the machine in a sample by the values of the computer: memory and processor time of its control
// group, relative to its limits. The use of a computer that does not run is 0. g is nil if it has not been used.
func (d *Driver) measure(s *computerv1.Sample, g *guest) {
	if d.root == nil {
		return // without control groups only the machine can be measured
	}
	s.CpuPct, s.MemUsedMb = 0, 0
	if limit := d.o.Limits.MemoryBytes; limit > 0 {
		s.MemTotalMb = megabytes(uint64(limit))
	}
	if g != nil {
		g.measure(s)
	}
}

// measure sets the use of memory in a sample, and the use of processors since the last call.
func (g *guest) measure(s *computerv1.Sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.control == nil {
		return
	}
	use, err := g.control.Usage()
	if err != nil {
		return // the computer is being stopped
	}
	now := time.Now()
	s.MemUsedMb = megabytes(use.MemoryBytes)
	if s.MemTotalMb > 0 {
		s.MemUsedMb = min(s.MemUsedMb, s.MemTotalMb)
	}
	processors := g.driver.o.Limits.Processors
	if processors <= 0 || processors > float64(runtime.NumCPU()) {
		processors = float64(runtime.NumCPU())
	}
	if g.measured.control == g.control {
		available := now.Sub(g.measured.at).Seconds() * processors
		s.CpuPct = min(max(100*(use.Processor-g.measured.processor).Seconds()/max(available, 1e-3), 0), 100)
	}
	g.measured = measurement{g.control, now, use.Processor}
}

// A measurement is the processor time that a computer has used until a time.
type measurement struct {
	// control is the computer's control group. Each start has a new one.
	control   *cgroup.Group
	at        time.Time
	processor time.Duration
}
