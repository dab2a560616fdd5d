package local

import (
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/proto"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// measureEvery keeps the samples of many workspaces at one moment from measuring the machine once for each.
const measureEvery = time.Second

// machine measures processors and memory. What cannot be read is left at 0, which stands for not known.
func (d *Driver) machine() *computerv1.Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil || time.Since(d.measured) >= measureEvery {
		d.last = &computerv1.Sample{}
		d.measureMemory()
		d.measureProcessors()
		d.measured = time.Now()
	}
	return proto.CloneOf(d.last)
}

func (d *Driver) measureMemory() {
	m, err := d.proc.Meminfo()
	if err != nil || m.MemTotal == nil || m.MemAvailable == nil {
		return
	}
	const kibibyte = 1 << 10
	d.last.MemTotalMb = megabytes(*m.MemTotal * kibibyte)
	d.last.MemUsedMb = megabytes((*m.MemTotal - min(*m.MemAvailable, *m.MemTotal)) * kibibyte)
}

// measureProcessors tells the share of time that was busy since the last measurement; at first, since the machine's start.
func (d *Driver) measureProcessors() {
	stat, err := d.proc.Stat()
	if err != nil {
		return
	}
	busy, idle := split(stat.CPUTotal)
	if now := busy - d.busy + idle - d.idle; now > 0 {
		d.last.CpuPct = min(max(100*(busy-d.busy)/now, 0), 100)
	}
	d.busy, d.idle = busy, idle
}

// split parts the processors' seconds. Guests' are inside User and Nice; stolen ones count as busy.
func split(s procfs.CPUStat) (busy, idle float64) {
	return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal, s.Idle + s.Iowait
}

func megabytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
