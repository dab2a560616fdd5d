package observe

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// maxProcesses bounds the table of processes.
const maxProcesses = 1 << 17

// processes knows the watch of each process. A process belongs to the watch of its parent at the time of its fork,
// also if the parent ends first. It is safe for concurrent use.
type processes struct {
	mu    sync.Mutex
	watch map[int32]*Watch
	// ended has the processes that have ended; true: since before the last forget.
	ended map[int32]bool
	// connector is nil if the forks of processes are not observed.
	connector *connector
	missed    int
}

func newProcesses(c *connector) *processes {
	return &processes{watch: map[int32]*Watch{}, ended: map[int32]bool{}, connector: c}
}

// register makes a process, which has not run yet, the root of a watch's processes. It fails if the table is full.
func (p *processes) register(pid int32, w *Watch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The message of the process's own fork must not come after its registration: its parent is no observed process.
	if err := p.drainLocked(); err != nil {
		return err
	}
	if len(p.watch) >= maxProcesses {
		return errors.New("observe: too many processes")
	}
	p.watch[pid] = w
	delete(p.ended, pid)
	return nil
}

// drain applies the forks and exits that have been reported. A process's fork is reported before the process runs, so after
// drain the table has every process of the events that were read before.
func (p *processes) drain() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drainLocked()
}

func (p *processes) drainLocked() error {
	err := p.connector.drain(p.apply)
	if errors.Is(err, errMissedForks) {
		p.missed++
		return p.readTable()
	}
	return err
}

func (p *processes) apply(e processEvent) {
	switch {
	case e.kind == eventExit && e.process == e.thread:
		if p.watch[e.process] != nil {
			p.ended[e.process] = false
		}
	case e.kind == eventFork && e.process == e.thread:
		w := p.watch[e.parent]
		delete(p.ended, e.process)
		if w == nil || len(p.watch) >= maxProcesses {
			delete(p.watch, e.process) // the id of an ended process was used again
			return
		}
		p.watch[e.process] = w
	}
}

// of returns the watch that a process belongs to, or nil. A process that was created as a sibling of its creator is not in the
// table; while it runs, it is found by its process group and session, which it has from its creator.
func (p *processes) of(pid int32) *Watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.watch[pid]; w != nil {
		return w
	}
	if pid <= 0 || len(p.watch) == 0 {
		return nil
	}
	parent, group, session, ok := readStat(pid)
	if !ok {
		return nil
	}
	for _, relative := range []int32{parent, group, session} {
		if w := p.watch[relative]; w != nil && len(p.watch) < maxProcesses {
			p.watch[pid] = w
			return w
		}
	}
	return nil
}

// forget removes processes that had ended when it was called the last time, and are not zombies: the first thread of a process
// can end before the others. All events that were queued before the last call have been attributed. It returns the number of processes that are left.
func (p *processes) forget() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, seen := range p.ended {
		if !seen {
			p.ended[pid] = true
			continue
		}
		if errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) {
			delete(p.ended, pid)
			delete(p.watch, pid)
		}
	}
	return len(p.watch)
}

// remove removes all processes of a watch.
func (p *processes) remove(w *Watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, of := range p.watch {
		if of == w {
			delete(p.watch, pid)
			delete(p.ended, pid)
		}
	}
}

// readTable adds the descendants of known processes if their forks were missed, from the machine's table of processes. A process
// is not found if its parent has ended meanwhile.
func (p *processes) readTable() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	parents := map[int32]int32{}
	for _, entry := range entries {
		if pid, err := strconv.ParseInt(entry.Name(), 10, 32); err == nil {
			if parent, _, _, ok := readStat(int32(pid)); ok {
				parents[int32(pid)] = parent
			}
		}
	}
	for added := true; added; {
		added = false
		for pid, parent := range parents {
			if w := p.watch[parent]; w != nil && p.watch[pid] == nil && len(p.watch) < maxProcesses {
				p.watch[pid] = w
				added = true
			}
		}
	}
	for pid := range p.watch {
		if _, runs := parents[pid]; !runs {
			p.ended[pid] = false
		}
	}
	return nil
}

// readStat returns the parent, process group and session of a running process.
func readStat(pid int32) (parent, group, session int32, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/stat")
	if err != nil {
		return 0, 0, 0, false
	}
	// The name in parentheses, the second field, may contain anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 4 {
		return 0, 0, 0, false
	}
	var ids [3]int32
	for i := range ids {
		id, err := strconv.ParseInt(string(fields[i+1]), 10, 32)
		if err != nil {
			return 0, 0, 0, false
		}
		ids[i] = int32(id)
	}
	return ids[0], ids[1], ids[2], true
}

// author returns the author of a process's changes of the drive.
func (r *reader) author(d *watched, pid int32) *activityv1.Author {
	var w *Watch
	if !r.strangers[pid] {
		if w = r.processes.of(pid); w == nil {
			r.strangers[pid] = true
		}
	}
	if w == nil {
		w = d.onlyUnidentified()
	}
	if w == nil || w.workspaceID != d.workspaceID {
		r.observer.metrics.events.WithLabelValues("unattributed").Inc()
		return system
	}
	r.observer.metrics.events.WithLabelValues("attributed").Inc()
	return w.author
}

// onlyUnidentified returns the drive's only watch with processes with unknown ids, or nil.
func (d *watched) onlyUnidentified() *Watch {
	var only *Watch
	for w := range d.watches {
		if !w.isUnidentified.Load() {
			continue
		}
		if only != nil {
			return nil
		}
		only = w
	}
	return only
}
