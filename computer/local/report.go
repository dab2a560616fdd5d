package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/computer"
	guestnet "github.com/atelier-run/atelier/computer/egress/guest"
	"github.com/atelier-run/atelier/computer/local/cgroup"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

// A Report has the reasons why the kernel does not permit parts of the isolation. An empty text means that the kernel permits the part.
type Report struct {
	// Isolation is why processes cannot be isolated.
	Isolation string
	// Limits is why the use of the machine cannot be limited.
	Limits string
	// Landlock is why access to files cannot be restricted in addition to the mounts.
	Landlock string
	// Unprivileged is true if the server does not run as root: processes then have its user id outside of their namespaces.
	Unprivileged bool
	// Unisolated is true if processes run although they cannot be isolated.
	Unisolated bool
}

// Report returns the result of the examination of the kernel.
func (d *Driver) Report() Report { return d.report }

// LogValue implements slog.LogValuer.
func (r Report) LogValue() slog.Value {
	says := func(missing string) string {
		if missing == "" {
			return "yes"
		}
		return "no: " + missing
	}
	return slog.GroupValue(
		slog.String("isolation", says(r.Isolation)), slog.String("limits", says(r.Limits)),
		slog.String("landlock", says(r.Landlock)), slog.Bool("unprivileged", r.Unprivileged), slog.Bool("unisolated", r.Unisolated),
	)
}

// examineTimeout limits the examination of the kernel.
const examineTimeout = 30 * time.Second

// examine examines the kernel by starting a computer on an empty folder, and starts the keeper.
func (d *Driver) examine() {
	d.report = Report{Unprivileged: os.Geteuid() != 0}
	if d.o.Node == "" {
		d.report.Isolation = "the driver was not asked to run processes"
		d.forbidden = entity.Errorf(entity.Forbidden, "this node does not run code")
		return
	}
	if sandbox.LandlockVersion() == 0 {
		d.report.Landlock = "the kernel has no Landlock of version 2 (Linux 5.19)"
	}
	try := d.o.try
	if try == nil {
		try = d.tryComputer
	}
	// The keeper of an earlier server would also remove things that this server creates. Recover removes the leftovers of that keeper.
	ctx, cancel := context.WithTimeout(d.running, examineTimeout)
	defer cancel()
	err := sandbox.EndKeeper(ctx, d.o.Node)
	if err != nil {
		d.forbidden = errForbidden(err.Error())
		return
	}
	groups := d.group()
	if d.root, err = cgroup.Open(groups); err != nil {
		d.root, d.report.Limits, groups = nil, err.Error(), ""
	}
	if err := try(d.probe()); err != nil {
		d.report.Isolation = err.Error()
		if !d.o.AllowUnisolated {
			d.forbidden = errForbidden(d.report.Isolation)
			d.closeGroups()
			return
		}
		d.report.Unisolated = true
	}
	keeper, err := sandbox.StartKeeper(d.o.Node, groups, d.inits)
	if err != nil {
		d.forbidden = errForbidden(err.Error())
		return
	}
	d.keeper = keeper
}

func errForbidden(reason string) error {
	return entity.Errorf(entity.Forbidden, "this node does not run code: %s; run the server as root, or where the kernel permits "+
		"user namespaces", reason)
}

// group returns the name of the node's control group.
func (d *Driver) group() string { return "atelier-" + d.o.Node }

// closeGroups removes the node's control group, with all that an earlier process has left in it.
func (d *Driver) closeGroups() {
	if d.root == nil {
		return
	}
	d.root = nil
	ctx, cancel := context.WithTimeout(d.running, examineTimeout)
	defer cancel()
	if err := removeGroups(ctx, d.group()); err != nil {
		d.o.Log.Warn("cannot remove the control groups of the node", slog.Any("error", err))
	}
}

// probe returns the configuration of a computer that the driver starts to find out whether processes can be isolated. The computer nests its
// processes if the computers of workspaces do.
func (d *Driver) probe() sandbox.Config {
	config := d.config("probe")
	config.Files = filepath.Join(d.dir, ".probe") // on the file system of the drives, which must be able to map users
	config.Link = guestnet.NoLink
	config.MaxProcesses = 0 // the kernel would also count processes that an earlier process of the server has left
	if config.UID == 0 {
		config.UID = d.o.FirstUID
	}
	return config
}

// tryComputer starts and ends a computer, with a process and, where processes share a namespace, a private process.
func (d *Driver) tryComputer(config sandbox.Config) error {
	if d.report.Unprivileged && d.report.Landlock != "" {
		// A process could otherwise write to the file of this program, which its user may own.
		return errors.New("a server that does not run as root needs Landlock, and " + d.report.Landlock)
	}
	var err error
	if config.Program, err = d.program.Path(); err != nil {
		return err
	}
	if err := os.MkdirAll(config.Files, 0o755); err != nil {
		return err
	}
	defer os.Remove(config.Files)
	ctx, cancel := context.WithTimeout(d.running, examineTimeout)
	defer cancel()
	box, err := sandbox.Start(ctx, config, func(int) error { return nil })
	if err != nil {
		return err
	}
	err = d.tryProcess(ctx, box, false)
	if err == nil && !config.Nested {
		err = d.tryProcess(ctx, box, true)
	}
	return errors.Join(err, box.Kill(ctx))
}

// tryProcess runs a process to its end. It has a network of its own if it is not private: the two exclude each other.
func (d *Driver) tryProcess(ctx context.Context, box *sandbox.Computer, isPrivate bool) error {
	p, err := box.Start(ctx, sandbox.Spec{
		Argv: []string{"true"}, Env: d.environment("probe", &computer.Spec{Private: isPrivate}), Cwd: ".", OwnNetwork: !isPrivate,
		Private: isPrivate,
		Held: func(_ int, own *sandbox.Network) error {
			if own != nil {
				own.Close()
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	defer p.Close()
	select {
	case <-p.Ended():
		if status := p.Result().Status; p.Result().Lost || status != 0 {
			return fmt.Errorf("a process has ended with %d", status)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inits returns the files that refer to the inits of the running computers.
func (d *Driver) inits() (files []*os.File) {
	d.mu.Lock()
	all := make([]*guest, 0, len(d.guests))
	for _, g := range d.guests {
		all = append(all, g)
	}
	d.mu.Unlock()
	for _, g := range all {
		g.mu.Lock()
		if g.box != nil {
			files = append(files, g.box.PidFD())
		}
		g.mu.Unlock()
	}
	return files
}

// Recover implements computer.Driver.
func (d *Driver) Recover(ctx context.Context) ([]computer.Leftover, error) {
	if d.o.Node == "" {
		return nil, nil
	}
	var found []computer.Leftover
	if d.root != nil {
		names, err := d.root.Leftovers()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if err := d.root.RemoveLeftover(ctx, name); err != nil {
				return found, err
			}
			workspaceID, _, _ := strings.Cut(name, ".")
			found = append(found, computer.Leftover{Kind: "cgroup", Name: name, WorkspaceID: workspaceID})
		}
	}
	if d.root != nil && d.o.MaxMemory > 0 { // now that nothing is left that may use more
		if err := d.root.LimitMemory(d.o.MaxMemory); err != nil {
			d.o.Log.Error("cannot limit the memory of all computers", slog.Any("error", err))
		}
	}
	ended, err := sandbox.EndLeftovers(ctx, d.o.Node)
	for _, one := range ended {
		found = append(found, computer.Leftover{Kind: "process", Name: strconv.Itoa(one.PID), WorkspaceID: one.Name})
	}
	return found, errors.Join(err, os.RemoveAll(filepath.Join(d.dir, homes)))
}

func init() {
	if sandbox.IsKeeper() {
		sandbox.RunKeeper(removeGroups)
	}
}

// removeGroups removes the control groups of a node, with the processes that are left in them. The keeper calls it.
func removeGroups(ctx context.Context, node string) error {
	root, err := cgroup.Open(node)
	if err != nil {
		return err
	}
	names, err := root.Leftovers()
	failed := []error{err}
	for _, name := range names {
		failed = append(failed, root.RemoveLeftover(ctx, name))
	}
	return errors.Join(append(failed, root.Remove(ctx))...)
}
