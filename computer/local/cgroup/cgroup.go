// Package cgroup limits, measures, suspends and ends groups of processes with the control groups of Linux (cgroups(7)).
//
// A Root is the group of a node. Below it are the groups of computers, and below a computer's group the groups of processes:
//
//	<base>/<parent>/<name>/<child>
//
// The base is a directory of each hierarchy that this process may change: the group that systemd has delegated to it
// (Delegate=yes), or else the root of the hierarchy as it is mounted. Version 2 has one hierarchy. Version 1 has one for each
// controller or for several, and a group is a directory of the same path in each of them. Version 2 is used if it has the
// controllers, otherwise version 1.
//
// # Version 2
//
// A group of version 2 that passes controllers on to children has no processes of its own. So the processes that join a group
// are in its leaf "_own", and if the base has processes, Open moves them to its leaf "_server".
//
// # Generations
//
// A killed group accepts no process any more: the kernel may still kill a process that is just being started there. Callers
// take a name that was not used before for the successor of a group.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/computer"
)

// Limits restrict a group, in addition to the limits of the group above. 0 means no limit. MemoryBytes limits memory and swap
// space together.
type Limits = computer.Limits

// Usage is the use of the machine by a group, its children included.
type Usage struct {
	// MemoryBytes does not include file content that the kernel can evict at once.
	MemoryBytes uint64
	// Processor is the processor time used since the group was created.
	Processor time.Duration
	// Processes is the number of processes and threads.
	Processes int
}

// A Root is the group of a node. All methods may be called concurrently.
type Root struct {
	hierarchies
	// parent is the name of the node's group.
	parent string
	// mkdir creates and rmdir removes the directory of a group.
	mkdir, rmdir func(dir string) error
}

// Open returns the group of a node and creates it if it does not exist. The name parent identifies the node on this machine. It
// consists of letters, digits and "-_.:". Open returns an error with advice for the administrator if no hierarchy with the
// controllers cpu, memory and pids is mounted or may be changed.
func Open(parent string) (*Root, error) {
	return open(parent, "/proc/self/mountinfo", "/proc/self/cgroup", mkdir, os.Remove)
}

func mkdir(dir string) error { return os.Mkdir(dir, 0o755) }

// open is Open with the paths of the files that describe the mounts and the process's groups.
func open(parent, mountinfo, own string, mkdir, rmdir func(string) error) (*Root, error) {
	if err := validateName(parent); err != nil {
		return nil, err
	}
	candidates, err := findHierarchies(mountinfo, own)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, candidate := range candidates {
		r := &Root{hierarchies: candidate, parent: parent, mkdir: mkdir, rmdir: rmdir}
		if err := r.prepare(); err != nil {
			errs = append(errs, err)
			continue
		}
		return r, nil
	}
	return nil, fmt.Errorf("cgroup: cannot limit processes: %w; run the server as root, or as a systemd service with Delegate=yes",
		errors.Join(errs...))
}

// prepare creates the node's group in all hierarchies.
func (r *Root) prepare() error {
	if r.unified {
		if err := r.enableInBase(); err != nil {
			return err
		}
	}
	for _, dir := range r.dirs(r.parent) {
		if err := r.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if r.unified {
		return r.enable(r.dir(memory, r.parent))
	}
	return r.countBelow(r.dir(memory, r.parent))
}

// New creates the group of a computer. It returns an error that matches fs.ErrExist if there is a group with the name. After an
// error there is no new group.
func (r *Root) New(name string, l Limits) (*Group, error) { return r.create(r.parent, name, l) }

// Leftovers returns the names of all groups of the node. Before the first call of New, these are the groups that an earlier
// process has left.
func (r *Root) Leftovers() ([]string, error) {
	var names []string
	for _, dir := range r.dirs(r.parent) {
		below, err := children(dir)
		if err != nil {
			return nil, fmt.Errorf("cgroup: cannot list the groups of the node: %w", err)
		}
		names = append(names, below...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// RemoveLeftover kills the processes of a group that Leftovers has returned, and removes it. It returns nil if there is no such
// group, and an error if ctx ends first.
func (r *Root) RemoveLeftover(ctx context.Context, name string) error {
	if err := validateName(name); err != nil {
		return err
	}
	g := &Group{root: r, path: filepath.Join(r.parent, name)}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Remove(ctx)
}

// Remove removes the node's group. It returns an error if a group of a computer is left.
func (r *Root) Remove(ctx context.Context) error {
	names, err := r.Leftovers()
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("cgroup: cannot remove the group %s: it has the groups %s", r.parent, strings.Join(names, ", "))
	}
	return (&Group{root: r, path: r.parent}).Remove(ctx)
}

// children returns the names of the groups directly below a directory, without leaves. It returns none if the directory does
// not exist.
func children(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), "_") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}$`)

// validateName returns an error if a name is not one that a group of any version can have.
func validateName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("cgroup: invalid name %q: a name has 1 to 200 letters, digits and \"-_.:\", and begins with a letter or digit", name)
	}
	return nil
}
