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

// A Report says what the kernel permits the driver to do. An empty text means that it is permitted; otherwise the text says why
// not.
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

// Report returns what the kernel permits.
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

// examine finds out what the kernel permits, by starting a computer on an empty folder, and starts the keeper.
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
	err := try()
	if err != nil {
		d.report.Isolation = err.Error()
	}
	if d.report.Isolation != "" {
		if !d.o.AllowUnisolated {
			d.forbidden = errForbidden(d.report.Isolation)
			return
		}
		d.report.Unisolated = true
	}
	groups := d.group()
	if d.root, err = cgroup.Open(groups); err != nil {
		d.root, d.report.Limits, groups = nil, err.Error(), ""
	}
	// The keeper of an earlier process would also remove what this one creates; what it has left to do is done by Recover.
	ctx, cancel := context.WithTimeout(d.running, examineTimeout)
	defer cancel()
	if err := sandbox.EndKeeper(ctx, d.o.Node); err != nil {
		d.forbidden = errForbidden(err.Error())
		return
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

// tryComputer starts and ends a computer.
func (d *Driver) tryComputer() error {
	if d.report.Unprivileged && d.report.Landlock != "" {
		// A process could otherwise write to the file of this program, which its user may own.
		return errors.New("a server that does not run as root needs Landlock, and " + d.report.Landlock)
	}
	dir := filepath.Join(d.dir, ".probe") // on the file system of the drives, which must be able to map users
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.Remove(dir)
	ctx, cancel := context.WithTimeout(d.running, examineTimeout)
	defer cancel()
	config := d.config("probe")
	config.Files, config.Nested, config.Link = dir, false, guestnet.NoLink // which needs all that nested processes need, and more
	if config.UID == 0 {
		config.UID = d.o.FirstUID
	}
	box, err := sandbox.Start(ctx, config, func(int) error { return nil })
	if err != nil {
		return err
	}
	p, err := box.Start(ctx, sandbox.Spec{
		Argv: []string{"true"}, Env: d.environment("probe", &computer.Spec{}), Cwd: ".", OwnNetwork: true,
		Held: func(_ int, own *sandbox.Network) error { own.Close(); return nil },
	})
	if err == nil {
		select {
		case <-p.Ended():
			if status := p.Result().Status; p.Result().Lost || status != 0 {
				err = fmt.Errorf("a process has ended with %d", status)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		p.Close()
	}
	return errors.Join(err, box.Kill(ctx))
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
