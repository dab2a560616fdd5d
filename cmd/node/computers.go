package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/atelier-run/atelier/cmd/node/archives"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/computer/bucket"
	"github.com/atelier-run/atelier/computer/docker"
	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/computer/egress"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/observe"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// The drivers of computers.
const (
	LocalDriver  = "local"
	DockerDriver = "docker"
	// NoDriver runs no processes.
	NoDriver = "none"
)

// ComputerOptions are the settings of the computers that run processes. The zero value runs none.
type ComputerOptions struct {
	// Driver is LocalDriver, DockerDriver or NoDriver; empty: NoDriver.
	Driver string
	// AllowUnisolated lets processes run without isolation if the machine cannot isolate them.
	AllowUnisolated bool
	// Image and Engine are the image and the address of the engine of the docker driver, CgroupParent the control group of its containers.
	Image, Engine, CgroupParent string
	// Limits are the limits of one computer.
	Limits computer.Limits
	// IdleAfter is the time after which a computer without a process stops; 0: the driver's default.
	IdleAfter time.Duration
	// Network is the outgoing network of computers with the local driver, and Policy limits it.
	Network egress.Mode
	Policy  egress.Policy
	// DetachedLimit is the time after which a terminal without clients ends; 0: computer.DefaultDetachedLimit.
	DetachedLimit time.Duration
	// MaxProcesses is the number of processes that the server starts in all computers together, if the limit of open files allows them;
	// 0: as many as follow from the memory and the processors of the machine (machine.Processes).
	MaxProcesses int
	// MaxMemory is the memory in bytes that all computers together may use; 0: what the node does not keep (machine.ForComputers).
	MaxMemory int64
	// Program is the program of the containers of the docker driver, which has the commands of this one; empty: this one. Tests have
	// another, because theirs may not be static.
	Program string

	// processes and flows limit the processes and flows of all computers together; see machine.Descriptors.
	processes, flows int
}

// A driver provides computers and runs processes in them.
type driver interface {
	computer.Driver
	computer.Host
	// Processes returns the ids on this machine of the processes of a workspace's computer.
	Processes(workspaceID string) []int
	// Close ends all computers of this process.
	Close(ctx context.Context) error
}

// newFleet returns the fleet of the computers that use the node's drives. It removes the leftovers of an earlier process
// of the node.
func (n *Node) newFleet(ctx context.Context, o Options, stored computer.Archive) (*computer.Fleet, error) {
	settings := computer.Options{
		Archive: stored, Asker: n.Router, Clock: o.Clock, SampleEvery: o.SampleEvery, DetachedLimit: o.Computers.DetachedLimit,
		MaxProcesses: o.Computers.processes,
		Log:          o.Log, Policy: &computerv1.BackupPolicy{EveryMs: o.BackupEvery.Milliseconds(), Keep: int32(o.BackupKeep)},
		Put: func(ctx context.Context, workspaceID string, row entity.Row) error {
			return n.Router.Put(ctx, workspaceID, row)
		},
	}
	driver, err := n.newDriver(o)
	if err != nil {
		return nil, err // n.driver stays nil: driver has a nil pointer, which Stop could not tell from a driver
	}
	n.driver = driver
	settings.Driver, settings.Host, settings.Observer = n.driver, n.driver, unobserved{}
	if runsProcesses(o.Computers) {
		n.Drives.CountHeld(driver.Processes)
		if n.observer, err = observe.New(observe.Options{Drives: n.Drives, Asker: n.Router, Log: o.Log}); err != nil {
			return nil, err
		}
		o.Registry.MustRegister(n.observer)
		settings.Observer = observer{n.observer}
		mode, reason := n.observer.Mode()
		o.Log.Info("changes of processes are observed", slog.String("mode", string(mode)), slog.Any("reason", reason))
	}
	fleet := computer.New(settings)
	return fleet, fleet.Recover(ctx)
}

func runsProcesses(o ComputerOptions) bool { return o.Driver != "" && o.Driver != NoDriver }

// unobserved implements computer.Observer for a node that runs no processes.
type unobserved struct{}

func (unobserved) Begin(context.Context, string, *activityv1.Author) (computer.Watch, error) {
	return nil, entity.Errorf(entity.Forbidden, "this node does not run code: computer-driver is none")
}

func (unobserved) Recover(context.Context, string) error { return nil }

func (n *Node) newDriver(o Options) (driver, error) {
	if !runsProcesses(o.Computers) {
		return local.New(local.Options{Drives: n.Drives, Log: o.Log})
	}
	name, err := datadir.MachineName(o.Dir)
	if err != nil {
		return nil, err
	}
	if o.Computers.Driver == DockerDriver {
		return newDockerDriver(o, name, n.Drives)
	}
	network, err := egress.New(egress.Options{
		Mode: o.Computers.Network, Policy: o.Computers.Policy, Limits: egress.Limits{NodeFlows: o.Computers.flows}, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	d, err := local.New(local.Options{
		Drives: n.Drives, Node: name, AllowUnisolated: o.Computers.AllowUnisolated, Limits: o.Computers.Limits,
		IdleAfter: o.Computers.IdleAfter, MaxComputers: o.Computers.processes, MaxMemory: o.maxMemory(), Network: network, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	o.Registry.MustRegister(network)
	switch report := d.Report(); {
	case report.Isolation != "":
		o.Log.Warn("processes of computers cannot be isolated", slog.Any("kernel", report))
	case report.Limits != "":
		o.Log.Warn("computers run processes, whose use of the machine cannot be limited", slog.Any("kernel", report))
	default:
		o.Log.Info("computers run processes", slog.Any("kernel", report))
	}
	return d, nil
}

// temporaryBytes limits the files in each of /tmp, /var/tmp and /run of a container, which count as memory. Agents of others keep their
// records in /var/tmp.
const temporaryBytes = 512 << 20

func newDockerDriver(o Options, name string, drives *drive.Drives) (driver, error) {
	program := o.Computers.Program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("cannot find this program for the containers: %w", err)
		}
	}
	return docker.New(docker.Options{
		Engine: o.Computers.Engine, Node: name, Image: o.Computers.Image, Agent: []string{program, agent.Command}, Drives: drives,
		Limits: o.Computers.Limits, MaxMemory: o.maxMemory(), MaxContainers: o.Computers.processes, CgroupParent: o.Computers.CgroupParent,
		TemporaryBytes: temporaryBytes, IdleAfter: o.Computers.IdleAfter, Log: o.Log,
	})
}

// newArchive returns an archive of the node's drives in a bucket, for the tasks of computers.
func (n *Node) newArchive(b bucket.Bucket) *archive.Archive {
	onDisk := archives.IsOnDisk(b, n.Drives.Dir())
	return archive.New(b, archives.Drives{Drives: n.Drives, Asker: n.Router, OfTasks: true, OnDisk: onDisk})
}

// stopComputers ends all processes. Their ends and changes are recorded before it returns. When ctx ends, it returns an error that names
// the processes that it has not waited for.
func (n *Node) stopComputers(ctx context.Context) error {
	var errs []error
	if n.Computers != nil {
		errs = append(errs, n.Computers.Close(ctx))
	}
	if n.driver != nil {
		if err := withoutEnd(ctx, n.driver.Close(ctx)); err != nil {
			errs = append(errs, fmt.Errorf("stop the driver of computers: %w", err))
		}
	}
	if n.observer != nil {
		errs = append(errs, n.observer.Close())
	}
	return errors.Join(errs...)
}

// withoutEnd returns an error without its parts that say only that ctx has ended.
func withoutEnd(ctx context.Context, err error) error {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		if errors.Is(err, ctx.Err()) {
			return nil
		}
		return err
	}
	var rest []error
	for _, part := range joined.Unwrap() {
		rest = append(rest, withoutEnd(ctx, part))
	}
	return errors.Join(rest...)
}
