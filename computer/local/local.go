// Package local is a driver of computers for which the local machine stands in. It creates the workspace's drive, and measures
// the machine and the file system of the drive. It runs no processes.
package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// ImageRef is the image reference of all computers of this driver.
const ImageRef = "local"

// Drives creates and measures the drives of workspaces.
type Drives interface {
	// Provision creates a workspace's drive, or does nothing if it exists.
	Provision(ctx context.Context, workspaceID string) error
	// Usage returns the used and total bytes of the file system that holds a workspace's drive. It returns an error if the
	// drive cannot be read.
	Usage(workspaceID string) (used, total uint64, err error)
}

// A Driver is a computer.Driver. Use New to create one.
type Driver struct {
	drives Drives
	proc   procfs.FS

	mu sync.Mutex
	// measured is the time of the last measurement, last its result.
	measured time.Time
	last     *computerv1.Sample
	// busy and idle are the processors' times since boot as of the last measurement, in seconds.
	busy, idle float64
}

// New returns a driver that reads its measurements from a proc file system mounted at the path proc. It returns an error
// if there is none.
func New(drives Drives, proc string) (*Driver, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, fmt.Errorf("computer: %w", err)
	}
	return &Driver{drives: drives, proc: fs}, nil
}

// Provision implements computer.Driver. No error is a refusal, so that provisioning is retried until the disk is repaired.
func (d *Driver) Provision(ctx context.Context, workspaceID, vmName string) (computer.Machine, error) {
	if err := d.drives.Provision(ctx, workspaceID); err != nil {
		// %v hides a refusal in err.
		return computer.Machine{}, fmt.Errorf("computer: cannot create the drive of workspace %s: %v", workspaceID, err)
	}
	return computer.Machine{VMName: vmName, ImageRef: ImageRef}, nil
}

// Release implements computer.Driver. It does nothing.
func (d *Driver) Release(context.Context, string) error { return nil }

// Recover implements computer.Driver. It finds nothing, because the driver runs no processes.
func (d *Driver) Recover(context.Context) ([]computer.Leftover, error) { return nil, nil }

// Sample implements computer.Driver. It returns an error if the drive cannot be read.
func (d *Driver) Sample(_ context.Context, workspaceID string) (*computerv1.Sample, error) {
	used, total, err := d.drives.Usage(workspaceID)
	if err != nil {
		return nil, err
	}
	s := d.measureMachine()
	s.DiskUsedMb, s.DiskTotalMb = megabytes(used), megabytes(total)
	return s, nil
}

// measureEvery is the minimum interval between measurements of the machine, because many workspaces are sampled at the same
// time.
const measureEvery = time.Second

// measureMachine returns a sample of processors and memory, at most measureEvery old. A value that cannot be read is 0, which
// means unknown.
func (d *Driver) measureMachine() *computerv1.Sample {
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

// measureProcessors computes the percentage of busy time since the last measurement, at first since boot.
func (d *Driver) measureProcessors() {
	stat, err := d.proc.Stat()
	if err != nil {
		return
	}
	busy, idle := splitTimes(stat.CPUTotal)
	if elapsed := busy - d.busy + idle - d.idle; elapsed > 0 {
		d.last.CpuPct = min(max(100*(busy-d.busy)/elapsed, 0), 100)
	}
	d.busy, d.idle = busy, idle
}

// splitTimes returns the busy and the idle seconds of the processors. User and Nice include the time of guests; stolen time
// counts as busy.
func splitTimes(s procfs.CPUStat) (busy, idle float64) {
	return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal, s.Idle + s.Iowait
}

func megabytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
