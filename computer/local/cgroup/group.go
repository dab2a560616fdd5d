package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// A Group is the group of a computer or of a process group. All methods may be called concurrently. After Remove, they return
// errors that match fs.ErrNotExist.
type Group struct {
	root *Root
	// path is the path of its directories below the bases.
	path string

	// mu is held for reading while a process joins.
	mu sync.RWMutex
	// isKilled is set when Kill begins.
	isKilled bool
}

// create creates a group below the group at the path parent.
func (r *Root) create(parent, name string, l Limits) (*Group, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	g := &Group{root: r, path: filepath.Join(parent, name)}
	for i, dir := range r.dirs(g.path) {
		if err := r.mkdir(dir); err != nil {
			for _, made := range r.dirs(g.path)[:i] {
				err = errors.Join(err, r.rmdir(made))
			}
			return nil, g.failed("create", err)
		}
	}
	if err := g.limit(l); err != nil {
		for _, made := range r.dirs(g.path) {
			err = errors.Join(err, r.rmdir(made))
		}
		return nil, g.failed("limit", err)
	}
	return g, nil
}

func (g *Group) failed(verb string, err error) error {
	return fmt.Errorf("cgroup: cannot %s the group %s: %w", verb, g.path, err)
}

// Child creates a group below the group. It returns an error that matches fs.ErrExist if there is one with the name. After an
// error there is no new group.
func (g *Group) Child(name string, l Limits) (*Group, error) { return g.root.create(g.path, name, l) }

// dir returns the group's directory in the hierarchy of a controller.
func (g *Group) dir(controller string) string { return g.root.dir(controller, g.path) }

// limit sets the limits of a group, and passes the controllers on to its children.
func (g *Group) limit(l Limits) error {
	if g.root.unified {
		return cmp.Or(g.root.enable(g.dir(memory)), g.limitUnified(l))
	}
	return g.limitSeparate(l)
}

func (g *Group) limitUnified(l Limits) error {
	dir := g.dir(memory)
	if l.MemoryBytes > 0 {
		if err := write(dir, "memory.max", strconv.FormatInt(l.MemoryBytes, 10)); err != nil {
			return err
		}
		if err := write(dir, "memory.swap.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if l.Processors > 0 {
		if err := write(dir, "cpu.max", fmt.Sprintf("%d %d", quota(l.Processors), period)); err != nil {
			return err
		}
	}
	if l.Processes > 0 {
		return write(dir, "pids.max", strconv.Itoa(l.Processes))
	}
	return nil
}

// limitSeparate is limit for version 1.
func (g *Group) limitSeparate(l Limits) error {
	if l.MemoryBytes > 0 {
		value := strconv.FormatInt(l.MemoryBytes, 10)
		if err := write(g.dir(memory), "memory.limit_in_bytes", value); err != nil {
			return err
		}
		// The file exists if the kernel accounts for swap space.
		if err := write(g.dir(memory), "memory.memsw.limit_in_bytes", value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if l.Processors > 0 {
		most := quota(l.Processors)
		// A quota must not exceed the quota of the group above.
		if above, err := readNumber(filepath.Dir(g.dir(cpu)), "cpu.cfs_quota_us"); err == nil && above > 0 {
			most = min(most, above)
		}
		if err := write(g.dir(cpu), "cpu.cfs_period_us", strconv.Itoa(period)); err != nil {
			return err
		}
		if err := write(g.dir(cpu), "cpu.cfs_quota_us", strconv.FormatInt(most, 10)); err != nil {
			return err
		}
	}
	if l.Processes > 0 {
		return write(g.dir(pids), "pids.max", strconv.Itoa(l.Processes))
	}
	return nil
}

// period is the time in microseconds in which a group may use its quota of processor time.
const period = 100_000

// quota returns the processor time for each period in microseconds. The kernel accepts no less than one millisecond.
func quota(processors float64) int64 {
	return int64(math.Min(math.Max(processors*period, 1000), 1e12))
}

// Join moves a process to the group. Children that the process starts later are in the group too; existing children are not. So the
// process waits before its first fork until Join has returned. Join returns an error that matches syscall.ESRCH if there is no such
// process, and an error after Kill. After an error the process may be in the group.
func (g *Group) Join(pid int) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.isKilled {
		return g.failed("join", errors.New("its processes were ended"))
	}
	if g.root.unified {
		leaf := filepath.Join(g.dir(memory), "_own")
		if err := g.root.mkdir(leaf); err != nil && !errors.Is(err, fs.ErrExist) {
			return g.failed("join", err)
		}
		return g.wrap("join", write(leaf, "cgroup.procs", strconv.Itoa(pid)))
	}
	for _, dir := range g.root.dirs(g.path) {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return g.failed("join", err)
		}
	}
	return nil
}

// Entrances returns files through which a thread that writes "0" to each of them joins the group, for a thread that then executes a
// program: that is all of its process. Join makes the kernel wait until no process of the machine forks, for seconds beside a thousand
// that do; a thread that moves itself does not. There are none with version 2, where a thread leaves the group of its process only within
// threaded groups. It returns an error after Kill.
func (g *Group) Entrances() (files []*os.File, err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.isKilled {
		return nil, g.failed("join", errors.New("its processes were ended"))
	}
	if g.root.unified {
		return nil, nil
	}
	for _, dir := range g.root.dirs(g.path) {
		file, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
		if err != nil {
			for _, opened := range files {
				_ = opened.Close()
			}
			return nil, g.failed("join", err)
		}
		files = append(files, file)
	}
	return files, nil
}

// wrap is failed for an error that may be nil.
func (g *Group) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return g.failed(verb, err)
}

// Usage measures the group. It returns an error if a file of the group cannot be read.
func (g *Group) Usage() (Usage, error) {
	used, err1 := g.memoryUsage()
	processor, err2 := g.processorTime()
	processes, err3 := readNumber(g.dir(pids), "pids.current")
	if err := cmp.Or(err1, err2, err3); err != nil {
		return Usage{}, g.failed("measure", err)
	}
	return Usage{MemoryBytes: used, Processor: processor, Processes: int(processes)}, nil
}

// memoryUsage returns the memory of the group, without file content and tables of files that the kernel evicts when memory is short.
func (g *Group) memoryUsage() (uint64, error) {
	current, evictable := "memory.current", []string{"inactive_file", "active_file", "slab_reclaimable"}
	if !g.root.unified {
		current, evictable = "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}
	}
	used, err := readNumber(g.dir(memory), current)
	for _, field := range evictable {
		cached, failed := readField(g.dir(memory), "memory.stat", field)
		used, err = used-int64(cached), cmp.Or(err, failed)
	}
	return uint64(max(used, 0)), err
}

func (g *Group) processorTime() (time.Duration, error) {
	if g.root.unified {
		used, err := readField(g.dir(cpu), "cpu.stat", "usage_usec")
		return time.Duration(used) * time.Microsecond, err
	}
	used, err := readNumber(g.dir(cpuacct), "cpuacct.usage")
	return time.Duration(used), err
}

// OutOfMemory returns how many processes of the group and of its children the kernel has ended because a limit on memory was
// reached: the limit of the group itself, or of one above it. With version 1 it does not count the processes of children that
// were removed.
func (g *Group) OutOfMemory() (uint64, error) {
	if g.root.unified {
		n, err := readField(g.dir(memory), "memory.events", "oom_kill")
		return n, g.wrap("measure", err)
	}
	var total uint64
	err := visit(g.dir(memory), func(dir string) error {
		n, err := readField(dir, "memory.oom_control", "oom_kill")
		total += n
		return err
	})
	return total, g.wrap("measure", err)
}
