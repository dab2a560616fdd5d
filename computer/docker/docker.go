// Package docker is a driver of computers that are containers of a Docker Engine, or of another engine with its API, such as
// Podman.
//
//	Driver                     container                          agent (in the container)
//	  Start ──► acquire ──► start: create, attach, start ──────────► init, the first process
//	              └───────► exec ──► Exec API ─────────────────────► run ──► the program
//	  Dial ─► openStream ───────────► Exec API ────────────────────► dial ──► 127.0.0.1:port
//	  Listen ─► acquire ────────────► Exec API ────────────────────► listen ◄── 127.0.0.1:port
//
// A computer that has processes is one container. The driver creates it for the first process, and removes it when it has had
// none for Options.IdleAfter. The container gets the workspace's drive at /drive, and has nothing else that lasts: its own file
// system is read-only, and /tmp and /run are in memory.
//
// # The life of a process
//
//  1. Driver.Start validates the Spec, and Driver.acquire starts the container if it is not running.
//  2. container.exec creates an exec of the engine with the agent's "run" as its command, and attaches to its streams.
//  3. The agent writes its process id in the container, and waits. As long as it is held, no other code runs in the process.
//  4. container.exec tells the agent's init to watch the process, looks up its id on this machine (hostPID), and calls
//     Spec.Attribute.
//  5. It writes a line. The agent then changes to the working directory, looks up the program, says whether it has found
//     both, and becomes the program.
//  6. process.supervise waits until init reports the end, asks the engine for the exit status, and has init end the descendants
//     that are left. See package agent for why none can escape.
//
// # The end of the server
//
// The driver holds the standard input of each container's init open. When the server ends, however it does, the engine closes
// it, init exits, the kernel ends all processes of the container, and the engine removes it. Recover removes a container that
// is left nevertheless. The engine may end creating a container after that; it runs nothing, and Close removes it.
//
// # Limits of this driver
//
//   - The engine must see the drives and the server's program at the server's paths. If the program's file was
//     replaced or removed, containers that start have a copy, which is beside the drives. The paths have no comma, because Podman
//     separates the options of a mount with commas.
//   - The engine's API cannot mount a folder with nosuid and nodev. Processes have no capabilities and cannot gain any
//     (no-new-privileges), so that neither set-user-id programs nor device files in the drive give them any right.
//   - The engine limits containers only. The agent checks a Spec's limits on memory and processes a few times per second, and ends
//     the processes of the group that exceeds them. It cannot limit the processor time of a group.
//   - A private process (computer.Spec) is not in a process namespace of its own, which only the engine makes, and only for containers:
//     others see its arguments and can send it signals. They cannot trace it or read its memory, environment and open files if the
//     kernel has Landlock and the engine permits it (sandbox.RestrictTracing). It has no folder of its own.
//   - A process cannot have a network of its own, because only the engine makes networks, and only for containers.
//   - The engine reports the exit status as a shell does: a program that itself exits with 137 looks like one that was killed.
//   - Usage is measured from /proc in the container: pages that several processes share count for each, and the processor time
//     of descendants without a waiting parent is not included after their end.
//   - A listener with all its connections is a process in the container, and so are all connections of Dial together. It takes as long
//     to open a listener, or the first connection, as a process to start.
//   - A connection that a program in the container resets ends for the server as one that the program closes.
//   - End and Stop thaw a frozen computer for a moment, because engines cannot end frozen processes.
//   - Podman leaves a small process on the machine for five minutes after each process in a container.
package docker

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/retry"
)

// Drives creates, finds and measures the drives of workspaces.
type Drives interface {
	// Provision creates a workspace's drive, or does nothing if it exists.
	Provision(ctx context.Context, workspaceID string) error
	// CheckSpace returns InsufficientStorage if processes may not run on a workspace's drive, because its quota is exhausted or
	// the disk has too little free space. It is called every second while processes run.
	CheckSpace(ctx context.Context, workspaceID string, suspend func(bool)) error
	// WatchSpace returns a channel that receives a value when CheckSpace is to be called at once, because the disk fills fast.
	WatchSpace() (fell <-chan struct{}, stop func())
	// Dir returns the folder that has, for each workspace, the folder "<workspace>/files" with the files of its drive.
	Dir() string
	// Usage returns the used and total bytes of the file system that holds a workspace's drive. It returns an error if the
	// drive cannot be read.
	Usage(workspaceID string) (used, total uint64, err error)
}

// Options configure a Driver. Fields without a default are required.
type Options struct {
	// Engine is the address of the engine's API, such as unix:///run/docker.sock.
	Engine string
	// Node identifies the node among the nodes of the engine. Recover removes the containers of this node only.
	Node string
	// Image is the reference of the image of all computers. The engine must have it; the driver does not pull images.
	Image string
	// Agent is the path of a static program and the arguments that make it call agent.Main. Containers have the program at
	// computer.ProgramPath.
	Agent  []string
	Drives Drives
	// User is the numeric "user:group" of all processes; empty: the server's user and group. It owns the files of the drives, which
	// the server changes, too.
	User string
	// Network is the engine's network of the containers; empty: none but the loopback interface.
	Network string
	// Env is the part of the environment of all processes that the image does not provide, such as the address of a proxy.
	Env []string
	// Limits are the limits of each container.
	Limits computer.Limits
	// MaxMemory is the memory that all containers together may use, in bytes; 0: no limit. The driver measures it for computer.Host, but
	// the engine does not enforce it: only the limit of CgroupParent is enforced.
	MaxMemory int64
	// CgroupParent is the control group in which the engine makes the control groups of the containers: a slice such as "atelier.slice" if
	// the engine uses systemd, or else a path such as "/atelier". Empty: the engine chooses a control group.
	CgroupParent string
	// MaxContainers limits how many containers run at the same time. At the limit, a container that is to start replaces the container that
	// has been without a process for the longest time. 0: no limit.
	MaxContainers int
	// TemporaryBytes limits the files in each of /tmp, /var/tmp and /run; 0: 64 MiB.
	TemporaryBytes int64
	// IdleAfter is how long a container without processes is kept; 0: 10 minutes.
	IdleAfter time.Duration
	// Timeout limits each step of a conversation with the engine; 0: 30 seconds.
	Timeout time.Duration
	Log     *slog.Logger
}

// A Driver is a computer.Driver and a computer.Host. Use New to create one.
type Driver struct {
	options Options
	program *computer.Program
	engine  *client.Client

	mu        sync.Mutex // guards the fields below, and the fields of each machine
	computers map[string]*machine
	// names has the name of each computer that this process has provisioned, by workspace.
	names map[string]string
	// released has the workspaces with a computer that this process has released, although they have drives.
	released map[string]struct{}
	isClosed bool
}

var (
	_ computer.Driver = (*Driver)(nil)
	_ computer.Host   = (*Driver)(nil)

	validName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	validImage = regexp.MustCompile(`^[a-z0-9]([a-z0-9._:/-]{0,254}[a-z0-9])?(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
	validGroup = regexp.MustCompile(`^/?[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}){0,7}$`)
	validUser  = regexp.MustCompile(`^[0-9]{1,10}:[0-9]{1,10}$`)
)

// ValidCgroupParent reports whether a text is the path of a control group or the name of a slice.
func ValidCgroupParent(text string) bool { return validGroup.MatchString(text) }

// New returns a driver for the engine. It does not connect to it. It returns an error if an option is missing or invalid, or if
// the agent is not a static program.
func New(o Options) (*Driver, error) {
	for name, isValid := range map[string]bool{
		"node":    validName.MatchString(o.Node),
		"image":   validImage.MatchString(o.Image),
		"user":    o.User == "" || validUser.MatchString(o.User),
		"network": o.Network == "" || validName.MatchString(o.Network) && o.Network != "host",
		"group":   o.CgroupParent == "" || ValidCgroupParent(o.CgroupParent),
		"limits":  o.Limits.MemoryBytes >= 0 && o.Limits.Processors >= 0 && o.Limits.Processes >= 0 && o.TemporaryBytes >= 0,
		"agent":   len(o.Agent) > 0 && filepath.IsAbs(o.Agent[0]),
		"drives":  o.Drives != nil,
	} {
		if !isValid {
			return nil, fmt.Errorf("docker: the option %q is missing or invalid", name)
		}
	}
	for _, path := range []string{o.Drives.Dir(), o.Agent[0]} {
		if strings.Contains(path, ",") {
			return nil, fmt.Errorf("docker: the path %s has a comma, with which Podman cannot mount it: move or rename it", path)
		}
	}
	if err := checkStatic(o.Agent[0]); err != nil {
		return nil, err
	}
	if o.User == "" {
		o.User = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	}
	if o.Network == "" {
		o.Network = "none"
	}
	setDefault(&o.TemporaryBytes, 64<<20)
	setDefault(&o.IdleAfter, 10*time.Minute)
	setDefault(&o.Timeout, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	engine, err := client.New(client.WithHost(o.Engine))
	if err != nil {
		return nil, fmt.Errorf("docker: the address of the engine, %q, cannot be used: %w", o.Engine, err)
	}
	program, err := computer.OpenProgram(o.Agent[0], o.Drives.Dir())
	if err != nil {
		return nil, fmt.Errorf("docker: the agent cannot be opened: %w", err)
	}
	return &Driver{options: o, program: program, engine: engine, computers: map[string]*machine{}, names: map[string]string{}, released: map[string]struct{}{}}, nil
}

func setDefault[V comparable](field *V, value V) {
	if *field == *new(V) {
		*field = value
	}
}

// checkStatic returns an error if a program needs files that images do not have.
func checkStatic(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("docker: the agent cannot be read: %w", err)
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("docker: the program %s cannot run in containers, because it is not static: build it with CGO_ENABLED=0", program)
		}
	}
	return nil
}

// Close stops all computers and refuses further processes. A container that cannot be removed now ends by itself, because the
// driver closes its connection.
func (d *Driver) Close(ctx context.Context) error {
	d.mu.Lock()
	d.isClosed = true
	var all []string
	for workspaceID := range d.computers {
		all = append(all, workspaceID)
	}
	d.mu.Unlock()
	var failed []error
	for _, workspaceID := range all {
		failed = append(failed, d.Stop(ctx, workspaceID))
	}
	if _, err := d.Recover(ctx); err != nil {
		d.options.Log.Warn("containers of this node may be left; the next start of the server removes them", "error", err)
	}
	return errors.Join(append(failed, d.program.Close(), d.engine.Close())...)
}

// checkExists returns NotFound if a workspace has no computer: it has no drive, or its computer was released.
func (d *Driver) checkExists(workspaceID string) error {
	d.mu.Lock()
	_, isReleased := d.released[workspaceID]
	d.mu.Unlock()
	if isReleased || !validName.MatchString(workspaceID) {
		return entity.Errorf(entity.NotFound, "workspace %s has no computer", workspaceID)
	}
	_, err := d.files(workspaceID)
	return err
}

// limit returns a context for one step of a conversation with the engine.
func (d *Driver) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.options.Timeout)
}

// agentCommand returns the command line of a command of the agent in a container.
func (d *Driver) agentCommand(arguments ...string) []string {
	command := append([]string{computer.ProgramPath}, d.options.Agent[1:]...)
	return append(command, arguments...)
}

// unavailable returns the error Unavailable for an engine that has failed to carry out an action.
func unavailable(action string, err error) error {
	return entity.Errorf(entity.Unavailable, "the container engine cannot %s: %v", action, err)
}

// Provision implements computer.Driver. It creates the drive, and verifies that the engine has the image. No error is a refusal,
// so that provisioning is retried until the operator has repaired the engine or the disk.
func (d *Driver) Provision(ctx context.Context, workspaceID, vmName string) (computer.Machine, error) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	if err := d.options.Drives.Provision(ctx, workspaceID); err != nil {
		// %v hides a refusal in err.
		return computer.Machine{}, fmt.Errorf("docker: cannot create the drive of workspace %s: %v", workspaceID, err)
	}
	if err := d.checkImage(ctx); err != nil {
		return computer.Machine{}, err
	}
	d.mu.Lock()
	isReplaced := d.names[workspaceID] != "" && d.names[workspaceID] != vmName
	d.mu.Unlock()
	if isReplaced {
		if err := d.Stop(ctx, workspaceID); err != nil {
			return computer.Machine{}, err
		}
	}
	d.mu.Lock()
	d.names[workspaceID] = vmName
	delete(d.released, workspaceID)
	d.mu.Unlock()
	return computer.Machine{VMName: vmName, ImageRef: d.options.Image}, nil
}

// checkImage returns an error if the engine has no usable image.
func (d *Driver) checkImage(ctx context.Context) error {
	image, err := d.engine.ImageInspect(ctx, d.options.Image)
	switch {
	case errdefs.IsNotFound(err):
		return fmt.Errorf("docker: the container engine does not have the image %s: pull it", d.options.Image)
	case err != nil:
		return fmt.Errorf("docker: cannot inspect the image %s: %w", d.options.Image, err)
	case image.Config != nil && len(image.Config.Volumes) > 0:
		return fmt.Errorf("docker: the image %s declares volumes, whose size the engine does not limit: use one without", d.options.Image)
	}
	return nil
}

// Release implements computer.Driver.
func (d *Driver) Release(ctx context.Context, workspaceID string) error {
	d.mu.Lock()
	if _, err := d.files(workspaceID); err == nil {
		d.released[workspaceID] = struct{}{}
	}
	delete(d.names, workspaceID)
	d.mu.Unlock()
	return d.Stop(ctx, workspaceID)
}

// Recover implements computer.Driver. It removes the containers of this node. Before this process has created one, they are the containers
// of an earlier process.
func (d *Driver) Recover(ctx context.Context) ([]computer.Leftover, error) {
	limited, cancel := d.limit(ctx)
	defer cancel()
	list, err := d.engine.ContainerList(limited, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", nodeLabel+"="+d.options.Node),
	})
	if err != nil {
		return nil, unavailable("list the containers of this node", err)
	}
	var found []computer.Leftover
	for _, c := range list.Items {
		if err := d.remove(ctx, c.ID); err != nil {
			return found, err
		}
		found = append(found, computer.Leftover{Kind: "container", Name: c.ID, WorkspaceID: c.Labels[workspaceLabel]})
	}
	return found, nil
}

// remove ends and removes a container. It returns nil if there is none.
func (d *Driver) remove(ctx context.Context, id string) error {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	// Podman would give the container time to end by itself.
	_, _ = d.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
	for {
		_, err := d.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		// The engine refuses if it is removing the container already. Then it is gone soon. Until then, Podman may fail to inspect
		// it, because a part of it is gone.
		_, missing := d.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(missing) {
			return nil
		}
		if client.IsErrConnectionFailed(missing) {
			return unavailable("remove the container "+id, err)
		}
		if !retry.Pause(ctx, 100*time.Millisecond) {
			return unavailable("remove the container "+id, err)
		}
	}
}

// Sample implements computer.Driver. A computer that is not running uses no memory.
func (d *Driver) Sample(ctx context.Context, workspaceID string) (*computerv1.Sample, error) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	used, total, err := d.options.Drives.Usage(workspaceID)
	if err != nil {
		return nil, err
	}
	s := &computerv1.Sample{DiskUsedMb: megabytes(used), DiskTotalMb: megabytes(total)}
	d.mu.Lock()
	m := d.computers[workspaceID]
	var c *runningContainer
	if m != nil {
		c = m.running
	}
	d.mu.Unlock()
	if c == nil {
		if _, err := d.engine.Ping(ctx, client.PingOptions{}); err != nil {
			return nil, unavailable("be reached", err)
		}
		return s, nil
	}
	if err := c.sample(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

func megabytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
