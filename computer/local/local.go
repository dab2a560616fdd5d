// Package local is a driver of computers that runs processes on this machine, isolated by the kernel (see package sandbox), and
// measures the machine and the file system of the drive.
//
// # The life of a computer
//
// A computer exists from Provision to Release. Its first process starts it: it gets a control group with the limits of a
// computer, an init with namespaces of its own, and a user id that no other running computer has. It stops when it had no
// process for Options.IdleAfter, by Stop, Release, and when Provision gives it another name. If its init ends without that, its
// processes are lost, and it is started again, with growing pauses while that fails; Sample returns an error meanwhile, so
// that the fleet reports the computer as lost and then as found.
//
// A process may have a network of its own (network.go), which is connected before its code runs, and ends with it.
//
// # Control groups
//
//	<node>/<workspace>.<n>/init
//	<node>/<workspace>.<n>/<group>.<n>/<process>.<n>
//
// Numbers are never repeated, because a group that was killed accepts no process any more. Processes are suspended in their own
// groups, so that the init answers and a single suspended process can be ended.
//
// # What ends with the server
//
// An init ends when its connection to the server does. The keeper, a small process that learns of each init, ends the remaining
// processes a moment after the server has died, and removes the control groups. Recover does the same at the next start.
// Computers have no mounts outside of their namespaces.
//
// # Without isolation
//
// New examines the kernel, and Driver.Report returns the result. If the kernel cannot isolate, Host's methods return Forbidden, unless
// Options.AllowUnisolated is set: then processes are plain descendants of the server in the folder of the drive, with the rights of the
// server's user. That is unsafe for every workspace with members that are not trusted with the machine. A listener of Host.Listen is then
// on the machine's loopback interface.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/atelier-run/atelier/computer"
	guestnet "github.com/atelier-run/atelier/computer/egress/guest"
	"github.com/atelier-run/atelier/computer/local/cgroup"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
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
	// CheckSpace returns InsufficientStorage if processes may not run on a workspace's drive, because its quota is exhausted or
	// the disk has too little free space. It is called every second while processes run.
	// It calls suspend with true before it waits while processes might fill the disk, and with false when they may go on; nil: none runs.
	CheckSpace(ctx context.Context, workspaceID string, suspend func(bool)) error
	// WatchSpace returns a channel that receives a value when CheckSpace is to be called at once, because the disk fills fast.
	WatchSpace() (fell <-chan struct{}, stop func())
	// Dir returns the folder that has, for each workspace, the folder "<workspace>/files" with the files of its drive.
	Dir() string
}

// A Network connects computers with the network. egress.Egress is one.
type Network interface {
	// Link returns the link that each computer has.
	Link() guestnet.Link
	// Env returns variables for all processes of computers, and ResolvConf the content of /etc/resolv.conf.
	Env() []string
	ResolvConf() []byte
	// Attach serves the link of a computer until ctx ends or stop is called. It closes the files.
	Attach(ctx context.Context, workspaceID string, files []*os.File) (stop func(), err error)
}

// Options configures a Driver. Zero values mean the defaults.
type Options struct {
	Drives Drives
	// Proc is the folder of the proc file system that the machine is measured from. Empty: /proc.
	Proc string
	// Node identifies the data directory among the data directories of this machine. It consists of letters, digits and hyphens.
	// Empty: the driver runs no processes.
	Node string
	// AllowUnisolated permits running processes that are not isolated.
	AllowUnisolated bool
	// Limits are the limits of each computer. 0: half of the machine's memory, 2048 processes and threads, and any share of the
	// processors.
	Limits computer.Limits
	// MaxMemory limits the memory of all computers together, in bytes; 0: no limit.
	MaxMemory int64
	// Network connects computers with the network; nil: they have their loopback interface only.
	Network Network
	// IdleAfter is the time after which a computer without processes stops. 0: 5 minutes.
	IdleAfter time.Duration
	// MaxComputers limits how many computers run at the same time. At the limit, a computer that is to start replaces the computer that has
	// been without a process for the longest time. 0: maxComputers.
	MaxComputers int
	// ScratchBytes limits the temporary folders of a computer, the home folder included. 0: 1 GiB. They count as memory.
	ScratchBytes int64
	// FirstUID is the first of the maxComputers user ids of computers. 0: 1879048192, the beginning of a range that systemd leaves unused.
	FirstUID int
	// Log receives the failures of computers. nil: slog.Default.
	Log *slog.Logger

	// try replaces Driver.tryComputer in tests.
	try func(sandbox.Config) error
}

// maxComputers limits how many computers run at the same time.
const maxComputers = 65536

// A Driver is a computer.Driver and a computer.Host. Use New to create one.
type Driver struct {
	o Options
	// dir is the absolute path of Drives.Dir.
	dir     string
	program *computer.Program
	meter   meter
	report  Report
	// forbidden is the error of Host's methods if this node must not run code.
	forbidden error
	root      *cgroup.Root
	keeper    *sandbox.Keeper

	// running is canceled by Close.
	running context.Context
	cancel  context.CancelFunc

	mu     sync.Mutex
	closed bool
	// guests has the computers that have been used. released has the workspaces with a computer that has been released.
	guests   map[string]*guest
	released map[string]bool
	uids     map[int]bool
	// starts is the number of computers that run or are being started.
	starts int
	serial uint64
}

// New returns a driver. It returns an error if there is no proc file system. That processes cannot be run is no error: Report
// says why.
func New(o Options) (*Driver, error) {
	o.Proc, o.Log = cmp.Or(o.Proc, "/proc"), cmp.Or(o.Log, slog.Default())
	o.IdleAfter = cmp.Or(o.IdleAfter, 5*time.Minute)
	o.MaxComputers = min(cmp.Or(o.MaxComputers, maxComputers), maxComputers)
	o.ScratchBytes, o.FirstUID = cmp.Or(o.ScratchBytes, 1<<30), cmp.Or(o.FirstUID, 0x70000000)
	fs, err := procfs.NewFS(o.Proc)
	if err != nil {
		return nil, fmt.Errorf("computer: %w", err)
	}
	dir, err := filepath.Abs(o.Drives.Dir())
	if err != nil {
		return nil, fmt.Errorf("computer: %w", err)
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("computer: cannot find this program: %w", err)
	}
	program, err := computer.OpenProgram(path, dir)
	if err != nil {
		return nil, fmt.Errorf("computer: cannot open this program: %w", err)
	}
	d := &Driver{
		o: o, dir: dir, program: program, meter: meter{proc: fs},
		guests: map[string]*guest{}, released: map[string]bool{}, uids: map[int]bool{},
	}
	d.o.Limits.Processes = cmp.Or(d.o.Limits.Processes, 2048)
	d.o.Limits.MemoryBytes = cmp.Or(d.o.Limits.MemoryBytes, d.meter.memory()/2)
	d.running, d.cancel = context.WithCancel(context.Background())
	d.examine()
	return d, nil
}

// Close stops all computers and removes the driver's files and control groups on this machine. It returns an error if ctx ends first.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	var all []*guest
	for _, g := range d.guests {
		all = append(all, g)
	}
	d.mu.Unlock()
	d.cancel()
	var group sync.WaitGroup
	failed := make([]error, len(all))
	for i, g := range all {
		group.Go(func() { failed[i] = g.stop(ctx) })
	}
	group.Wait()
	if d.keeper != nil {
		failed = append(failed, d.keeper.Close(ctx))
	}
	return errors.Join(append(failed, d.program.Close())...)
}

// Provision implements computer.Driver. No error is a refusal, so that provisioning is retried until the disk is repaired.
func (d *Driver) Provision(ctx context.Context, workspaceID, vmName string) (computer.Machine, error) {
	if err := d.o.Drives.Provision(ctx, workspaceID); err != nil {
		// %v hides a refusal in err.
		return computer.Machine{}, fmt.Errorf("computer: cannot create the drive of workspace %s: %v", workspaceID, err)
	}
	d.mu.Lock()
	delete(d.released, workspaceID)
	g := d.guests[workspaceID]
	if g == nil {
		g = newGuest(d, workspaceID)
		d.guests[workspaceID] = g
	}
	d.mu.Unlock()
	if err := g.rename(ctx, vmName); err != nil {
		return computer.Machine{}, fmt.Errorf("computer: cannot replace the computer of workspace %s: %v", workspaceID, err)
	}
	return computer.Machine{VMName: vmName, ImageRef: ImageRef}, nil
}

// Release implements computer.Driver.
func (d *Driver) Release(ctx context.Context, workspaceID string) error {
	d.mu.Lock()
	g := d.guests[workspaceID]
	d.released[workspaceID] = true
	delete(d.guests, workspaceID)
	d.mu.Unlock()
	if g == nil {
		return nil
	}
	return g.release(ctx)
}

// Sample implements computer.Driver. It measures the computer's control group, or without control groups the machine. It returns
// an error if the drive cannot be read, or the computer does not start.
func (d *Driver) Sample(ctx context.Context, workspaceID string) (*computerv1.Sample, error) {
	used, total, err := d.o.Drives.Usage(workspaceID)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	g := d.guests[workspaceID]
	d.mu.Unlock()
	if g != nil {
		if err := g.failure(ctx); err != nil {
			return nil, fmt.Errorf("%v", err) // not of code Unavailable, which would mean that it may run
		}
	}
	s := d.meter.measureMachine()
	d.measure(s, g)
	s.DiskUsedMb, s.DiskTotalMb = megabytes(used), megabytes(total)
	return s, nil
}

// guest returns the computer of a workspace, or NotFound. The server may have been restarted since it was provisioned; then
// its drive tells that there is one.
func (d *Driver) guest(workspaceID string) (*guest, error) {
	if d.forbidden != nil {
		return nil, d.forbidden
	}
	d.mu.Lock()
	known := d.guests[workspaceID] != nil
	d.mu.Unlock()
	hasDrive := known
	if !known { // without the lock, because a disk may not answer
		_, _, err := d.o.Drives.Usage(workspaceID)
		hasDrive = err == nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, entity.Errorf(entity.Unavailable, "the node is shutting down")
	}
	if g := d.guests[workspaceID]; g != nil {
		return g, nil
	}
	if !hasDrive || d.released[workspaceID] {
		return nil, entity.Errorf(entity.NotFound, "workspace %s has no computer", workspaceID)
	}
	g := newGuest(d, workspaceID)
	d.guests[workspaceID] = g
	return g, nil
}

// number returns a number that the driver has not returned before.
func (d *Driver) number() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serial++
	return d.serial
}

// addComputer admits a computer that is about to start, and stops one without processes if too many run. removeComputer follows.
func (d *Driver) addComputer(ctx context.Context) error {
	for {
		d.mu.Lock()
		if d.starts < d.o.MaxComputers {
			d.starts++
			d.mu.Unlock()
			return nil
		}
		d.mu.Unlock()
		unused := d.longestUnused()
		if unused == nil {
			return entity.Errorf(entity.Unavailable, "too many computers run on this node")
		}
		// A computer that waits here is not one that runs, so that computers cannot wait for each other.
		if err := unused.stopUnused(ctx); err != nil {
			return err
		}
	}
}

// removeComputer records that a computer does not run any more, or was not started.
func (d *Driver) removeComputer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starts--
}

// longestUnused returns the running computer that has been without a process for the longest time; nil if all have one.
func (d *Driver) longestUnused() *guest {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.guests))
	d.mu.Unlock()
	var found *guest
	var since time.Time
	for _, g := range all {
		g.mu.Lock()
		if g.isUnused() && (found == nil || g.idleAt.Before(since)) {
			found, since = g, g.idleAt
		}
		g.mu.Unlock()
	}
	return found
}

// takeUID returns a user id that no running computer has. The caller returns it with returnUID.
func (d *Driver) takeUID() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range maxComputers {
		d.serial++
		uid := d.o.FirstUID + int(d.serial%maxComputers)
		if !d.uids[uid] {
			d.uids[uid] = true
			return uid, nil
		}
	}
	return 0, entity.Errorf(entity.Unavailable, "too many computers run on this node")
}

func (d *Driver) returnUID(uid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.uids, uid)
}
