package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/retry"
)

// freezeLimit limits the time that Freeze waits.
const freezeLimit = 2 * time.Second

// Freeze suspends all processes of the group and of its children, and returns when none of them runs, or resumes them. A
// process is not resumed while the group above is suspended. Freeze returns an error if a process cannot be suspended in time,
// because it waits for a device; then none is.
func (g *Group) Freeze(frozen bool) error {
	if !frozen {
		return g.Suspend(false)
	}
	ctx, cancel := context.WithTimeout(context.Background(), freezeLimit)
	defer cancel()
	err := g.freeze(ctx)
	if err != nil {
		return g.failed("suspend", errors.Join(err, g.setFrozen(false)))
	}
	return nil
}

// Suspend begins to suspend all processes of the group and of its children, or resumes them. It does not wait.
func (g *Group) Suspend(suspended bool) error {
	return g.wrap("suspend or resume", g.setFrozen(suspended))
}

// looking has the pauses between two looks at a group while its processes stop or end.
var looking = retry.Policy{First: time.Millisecond, Longest: 50 * time.Millisecond}

// freeze suspends the group's processes. If ctx ends first, some may be suspended.
func (g *Group) freeze(ctx context.Context) error {
	for range looking.Attempts(ctx) {
		// Version 1 may stop half-way, and continues when it is told to again.
		if err := g.setFrozen(true); err != nil {
			return err
		}
		if is, err := g.isFrozen(); err != nil || is {
			return err
		}
	}
	return ctx.Err()
}

func (g *Group) setFrozen(frozen bool) error {
	if g.root.unified {
		return write(g.dir(memory), "cgroup.freeze", map[bool]string{false: "0", true: "1"}[frozen])
	}
	return write(g.dir(freezer), "freezer.state", map[bool]string{false: "THAWED", true: "FROZEN"}[frozen])
}

func (g *Group) isFrozen() (bool, error) {
	if g.root.unified {
		n, err := readField(g.dir(memory), "cgroup.events", "frozen")
		return n == 1, err
	}
	state, err := os.ReadFile(filepath.Join(g.dir(freezer), "freezer.state"))
	return strings.TrimSpace(string(state)) == "FROZEN", err
}

// Kill ends all processes of the group and of its children, and returns nil when none is left, also if they were suspended or the
// group does not exist. It returns an error if ctx ends first, or if a process cannot be killed. With version 1, a group in a
// suspended parent cannot be killed before the parent is resumed.
func (g *Group) Kill(ctx context.Context) error {
	g.mu.Lock()
	g.isKilled = true
	g.mu.Unlock()
	for range looking.Attempts(ctx) {
		left, err := g.kill(ctx)
		if err != nil {
			return g.failed("end the processes of", err)
		}
		if !left {
			return nil
		}
	}
	return g.failed("end the processes of", ctx.Err())
}

// kill sends SIGKILL to all processes of the group and reports whether there were any.
func (g *Group) kill(ctx context.Context) (left bool, err error) {
	if g.root.unified {
		populated, err := readField(g.dir(memory), "cgroup.events", "populated")
		if isGone(err) || err == nil && populated == 0 {
			return false, nil
		}
		if err == nil {
			err = write(g.dir(memory), "cgroup.kill", "1")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
	}
	return g.signalAll(ctx)
}

// signalAll is kill for kernels that do not kill a group as a whole: version 1, and version 2 before Linux 5.14. It suspends the
// group first, so that processes that fork faster than they are listed do not escape.
func (g *Group) signalAll(ctx context.Context) (left bool, err error) {
	freezing, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_ = g.freeze(freezing) // a process that is not suspended is killed in this round or in a later one
	defer func() { err = errors.Join(err, g.thaw()) }()
	processes, err := g.list()
	if err != nil || len(processes) == 0 {
		return false, err
	}
	for batch := range slices.Chunk(processes, 256) { // each holds a descriptor
		if err := g.signal(batch); err != nil {
			return true, err
		}
	}
	return true, nil
}

// thaw resumes the group and its children, because a suspended process does not end.
func (g *Group) thaw() error {
	file, value := "freezer.state", "THAWED"
	if g.root.unified {
		file, value = "cgroup.freeze", "0"
	}
	err := visit(g.dir(freezer), func(dir string) error { return write(dir, file, value) })
	if isGone(err) {
		return nil
	}
	return err
}

// Processes returns the ids of the processes of the group and of its children. It returns none if the group does not exist.
func (g *Group) Processes() ([]int, error) {
	all, err := g.list()
	return all, g.wrap("list the processes of", err)
}

// list returns the processes of the group and of its children in all hierarchies: one that is just joining is not in all.
func (g *Group) list() (processes []int, err error) {
	for _, dir := range g.root.dirs(g.path) {
		err := visit(dir, func(dir string) error {
			found, err := listProcesses(dir)
			processes = append(processes, found...)
			return err
		})
		if err != nil && !isGone(err) {
			return nil, err
		}
	}
	slices.Sort(processes)
	return slices.Compact(processes), nil
}

// signal sends SIGKILL to processes. It holds the processes, and verifies that they still are in the group, before it sends the
// signal, so that it does not reach a process that has got the id of one that has ended.
func (g *Group) signal(processes []int) error {
	held := map[int]*os.Process{}
	defer func() {
		for _, process := range held {
			_ = process.Release()
		}
	}()
	for _, pid := range processes {
		if pid == 0 || pid == os.Getpid() {
			return errors.New("it has this process or one of another process namespace")
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		held[pid] = process
	}
	still, err := g.list()
	if err != nil {
		return err
	}
	for _, pid := range still {
		if process := held[pid]; process != nil {
			if err := process.Signal(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// Remove removes the group and its children, and returns nil if they do not exist. It waits while they have processes, which it
// does not end, and returns an error if ctx ends first.
func (g *Group) Remove(ctx context.Context) error {
	for _, dir := range g.root.dirs(g.path) {
		err := visit(dir, func(dir string) error { return g.root.remove(ctx, dir) })
		if err != nil && !isGone(err) {
			return g.failed("remove", err)
		}
	}
	return nil
}

func (r *Root) remove(ctx context.Context, dir string) error {
	var err error
	for range looking.Attempts(ctx) {
		err = r.rmdir(dir)
		if isGone(err) {
			return nil
		}
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return errors.Join(ctx.Err(), err)
}

// visit calls f for each group below a directory, and then for the directory. It returns f's first error.
func visit(dir string, f func(dir string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := visit(filepath.Join(dir, e.Name()), f); err != nil && !isGone(err) {
			return err
		}
	}
	return f(dir)
}

// isGone reports whether an error means that a group does not exist, or was removed while it was used.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
