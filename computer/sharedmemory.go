package computer

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync"
	"syscall"
	"time"
)

// The memory of all computers together has a limit, which the Host measures (Host.Memory without a workspace), so that the node and the
// other programs of the machine keep theirs. The memory is shared as places are (places.go):
//
//   - While more than memoryWhileIdle of the limit is used, computers without processes stop, and then idle processes end.
//   - Then a workspace, and a person, may start a process if they use no more than spareFactor times the memory that is left.
//   - Beyond memoryFull no process starts, and of the person with the most memory the process group with the most memory ends, with the
//     reason EndedOutOfMemory. At the limit itself the kernel would end the greatest process, possibly of a person with little memory.
const memoryFull = 0.9

var (
	errNodeMemory      = busy("the processes of the server use all memory that computers may have")
	errWorkspaceMemory = busy("the workspace has its share of the memory of the server")
	errPersonMemory    = busy("the person has their share of the memory of the server")
)

// shared is the last measurement of the memory of all computers, in bytes. A limit of 0 means that there is none.
type shared struct {
	mu          sync.Mutex
	used, limit uint64
}

func (s *shared) last() (used, limit uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.limit
}

// measureShared measures the memory of all computers. If that fails, it returns the last measurement.
func (f *Fleet) measureShared(ctx context.Context) (used, limit uint64) {
	used, limit, err := f.o.Host.Memory(ctx, "")
	if err != nil {
		return f.shared.last()
	}
	f.shared.mu.Lock()
	defer f.shared.mu.Unlock()
	f.shared.used, f.shared.limit = used, limit
	return used, limit
}

// freeShared stops computers without processes, because their temporary files count as memory, and ends idle processes, while all computers
// use more than memoryWhileIdle of their limit. It returns the last measurement.
func (f *Fleet) freeShared(ctx context.Context) (used, limit uint64) {
	for {
		used, limit = f.measureShared(ctx)
		if float64(used) <= memoryWhileIdle*float64(limit) {
			return used, limit
		}
		stopped, err := f.o.Host.StopUnused(ctx)
		if err != nil {
			f.o.Log.Warn("cannot stop a computer without processes though memory is short", slog.Any("error", err))
		}
		if err != nil || !stopped || ctx.Err() != nil {
			break
		}
	}
	f.freeMemory(ctx, "", memoryWhileIdle)
	return f.measureShared(ctx)
}

// checkShared returns unavailable if the workspace or the person of a process that is about to be started has its share of the memory of
// all computers, or if nothing is left. It ends idle processes and stops unused computers first.
func (f *Fleet) checkShared(ctx context.Context, r *Running) error {
	used, limit := f.freeShared(ctx)
	if float64(used) <= memoryWhileIdle*float64(limit) {
		return nil
	}
	if float64(used) > memoryFull*float64(limit) {
		return errNodeMemory
	}
	share := spareFactor * float64(limit-used)
	ofWorkspace, ofPerson := 0.0, 0.0
	for _, g := range f.measureGroups(ctx, used) {
		if g.workspaceID == r.WorkspaceID {
			ofWorkspace += g.memory
		}
		if g.userID == r.userID && r.userID != "" {
			ofPerson += g.memory
		}
	}
	switch {
	case ofWorkspace > share:
		return errWorkspaceMemory
	case ofPerson > share:
		return errPersonMemory
	}
	return nil
}

// A memoryGroup is a process group that runs, and its memory in bytes.
type memoryGroup struct {
	workspaceID, userID string
	processes           []*Running
	memory              float64
	// isMeasured is false if the Host does not know the memory of groups.
	isMeasured bool
}

// measureGroups returns the process groups of all computers. If the Host does not know their use, each process counts as an equal part of
// used.
func (f *Fleet) measureGroups(ctx context.Context, used uint64) (all []*memoryGroup) {
	type key struct{ workspaceID, group string }
	groups, workspaces, processes := map[key]*memoryGroup{}, map[string]bool{}, 0
	for _, r := range f.processes.in("") {
		if !r.isStarted() {
			continue
		}
		at := key{r.WorkspaceID, r.group}
		if groups[at] == nil {
			groups[at] = &memoryGroup{workspaceID: r.WorkspaceID, userID: r.userID}
			all = append(all, groups[at])
		}
		groups[at].processes = append(groups[at].processes, r)
		workspaces[r.WorkspaceID] = true
		processes++
	}
	isMeasured := false
	var mu sync.Mutex
	var measuring sync.WaitGroup
	for workspaceID := range workspaces {
		measuring.Go(func() {
			usages, _ := f.o.Host.Usage(ctx, workspaceID) // after an error its processes end
			mu.Lock()
			defer mu.Unlock()
			for _, u := range usages {
				if g := groups[key{workspaceID, u.Group}]; g != nil && u.MemoryBytes > 0 {
					g.memory, g.isMeasured, isMeasured = float64(u.MemoryBytes), true, true
				}
			}
		})
	}
	measuring.Wait()
	if !isMeasured {
		for _, g := range all {
			g.memory = float64(used) * float64(len(g.processes)) / float64(processes)
		}
	}
	return all
}

// watchShared measures the memory of all computers as long as processes run, and ends processes while the memory is short.
func (f *Fleet) watchShared() {
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	for {
		if !f.relieve() {
			return
		}
		select {
		case <-ticker.C:
		case <-f.running.Done():
			return
		}
	}
}

// relieve is one turn of watchShared. It returns false if the memory is not limited or no process runs.
func (f *Fleet) relieve() bool {
	ctx, cancel := context.WithTimeout(f.running, startTimeout)
	defer cancel()
	used, limit := f.freeShared(ctx) // also after the last process, so that the metrics show the memory after its end
	p := &f.processes
	p.mu.Lock()
	isOver := limit == 0 || len(p.running) == 0
	if isOver {
		delete(p.watched, "")
	}
	p.mu.Unlock()
	if isOver {
		return false
	}
	if float64(used) > memoryFull*float64(limit) {
		f.endGreatest(ctx, used, limit)
	}
	return true
}

// endGreatest ends the process group with the most memory of the person with the most memory; of the workspace where a group has no person.
func (f *Fleet) endGreatest(ctx context.Context, used, limit uint64) {
	all := f.measureGroups(ctx, used)
	owner := func(g *memoryGroup) string { return cmp.Or(g.userID, g.workspaceID) }
	of := map[string]float64{}
	for _, g := range all {
		of[owner(g)] += g.memory
	}
	var found *memoryGroup
	most := math.Inf(-1)
	for _, g := range all {
		if sum := of[owner(g)]; g.isMeasured && (sum > most || sum == most && g.memory > found.memory) {
			found, most = g, sum
		}
	}
	if found == nil {
		return
	}
	f.metrics.memoryEnds.Inc()
	f.o.Log.Warn("ending processes, because the memory of all computers is short", slog.String("workspace", found.workspaceID),
		slog.String("user", found.userID), slog.String("group", found.processes[0].group), slog.Uint64("used", used),
		slog.Uint64("limit", limit))
	var ending sync.WaitGroup
	for _, r := range found.processes {
		r.isShort.Store(true)
		ending.Go(func() {
			if err := r.process.End(ctx); err != nil {
				f.o.Log.Error("cannot end a process though memory is short", slog.String("workspace", r.WorkspaceID),
					slog.String("process", r.ID), slog.Any("error", err))
			}
		})
	}
	ending.Wait()
}

// isStarted reports whether the process runs, or has run.
func (r *Running) isStarted() bool {
	select {
	case <-r.started:
		return r.process != nil
	default:
		return false
	}
}

// explain names the reason of an end that the node has caused because the memory of all computers was short.
func (r *Running) explain(exit Exit) Exit {
	const killed = 128 + int(syscall.SIGKILL)
	if r.isShort.Load() && exit.Status == killed && exit.Reason == "" {
		exit.Reason = EndedOutOfMemory
	}
	return exit
}
