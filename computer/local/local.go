// Package local is the driver of computers that are this machine itself: a workspace's drive is made ready, and what is
// measured is the machine and the file system that the drive lies on. Nothing is run on it.
package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/atelier-run/atelier/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// ImageRef is what its computers are made from.
const ImageRef = "local"

// Drives are what the driver needs of them.
type Drives interface {
	// Provision makes a workspace's drive where it is missing.
	Provision(ctx context.Context, workspaceID string) error
	// Usage reads a workspace's drive a little, and tells the bytes in use and in all where it lies.
	Usage(workspaceID string) (used, total uint64, err error)
}

// Driver is a computer.Driver. Its zero value is of no use.
type Driver struct {
	drives Drives
	proc   procfs.FS

	mu sync.Mutex
	// measured is when the machine was last measured, with what came of it; busy and idle are the processors' seconds
	// since the start of the machine as of then.
	measured   time.Time
	busy, idle float64
	last       *computerv1.Sample
}

// New makes a driver that measures through a mount of /proc.
func New(drives Drives, proc string) (*Driver, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, fmt.Errorf("computer: %w", err)
	}
	return &Driver{drives: drives, proc: fs}, nil
}

// Provision is of computer.Driver.
func (d *Driver) Provision(ctx context.Context, workspaceID, vmName string) (computer.Machine, error) {
	if err := d.drives.Provision(ctx, workspaceID); err != nil {
		// Whatever is wrong with the disk may be put right: it is no refusal.
		return computer.Machine{}, fmt.Errorf("computer: the drive is not ready: %v", err)
	}
	return computer.Machine{VMName: vmName, ImageRef: ImageRef}, nil
}

// Release is of computer.Driver. There is nothing to give up.
func (d *Driver) Release(context.Context, string) error { return nil }

// Sample is of computer.Driver. It fails where the drive cannot be read.
func (d *Driver) Sample(_ context.Context, workspaceID string) (*computerv1.Sample, error) {
	used, total, err := d.drives.Usage(workspaceID)
	if err != nil {
		return nil, err
	}
	s := d.machine()
	s.DiskUsedMb, s.DiskTotalMb = megabytes(used), megabytes(total)
	return s, nil
}
