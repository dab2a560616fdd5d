package computer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Each process that Fleet.Launch starts takes one of Options.MaxProcesses places, from before its start until after its end.
//
// An idle process (Running.Rest) keeps its place until another process needs one: the process that has been idle for the longest time
// then ends, of the workspace that needs the place if it has one, otherwise of the workspace that has the most places.
//
// The places are shared between workspaces, and between persons: each of them may have spareFactor times as many processes that are
// not idle as there are places left without a process or with an idle one. So one workspace alone gets spareFactor of
// spareFactor+1 places, and n workspaces that always want more get equal parts, as processes end and start. The first process of a
// workspace and of a person needs any place. This is the dynamic threshold of A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length
// Thresholds for Shared-Memory Packet Switches" (1998): the number of participants need not be known.
const spareFactor = 3

var (
	errComputerBusy  = busy("the computer is being replaced, restored or stopped")
	errNodeBusy      = busy("too many processes are running on the server")
	errWorkspaceBusy = busy("the workspace has its share of the processes of the server")
	errPersonBusy    = busy("the person has their share of the processes of the server")
)

// busy returns the error of a start that may succeed a few seconds later.
func busy(message string) *entity.Error {
	return &entity.Error{Code: entity.Unavailable, Message: message, RetryAfter: 5 * time.Second}
}

// ErrEnding is the error of Running.Resume if the process is being ended, or has ended.
var ErrEnding = errors.New("computer: the process is being ended")

// processes has the processes that this process of the node starts and runs.
type processes struct {
	mu      sync.Mutex
	running map[string]*Running
	// stopping counts, for each workspace, the tasks that need a computer without processes.
	stopping map[string]int
	isClosed bool
	// watched has the workspaces with watched memory, because they have idle processes, and "" if the memory of all computers is watched.
	watched map[string]bool
	// most is Options.MaxProcesses.
	most int
}

// admit adds a process that is about to be started. If all places are taken, evicted is an idle process. The new process gets its place,
// and the caller ends it first. Errors: unavailable.
func (p *processes) admit(f *Fleet, l Launch) (admitted, evicted *Running, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &Running{
		ID: "prc_" + strings.ToLower(ulid.Make().String()), WorkspaceID: l.WorkspaceID, kind: l.Kind, userID: l.person(), fleet: f,
		started: make(chan struct{}), ended: make(chan struct{}),
	}
	r.group = l.group(r.ID)
	if p.isClosed || p.stopping[r.WorkspaceID] > 0 {
		return nil, nil, errComputerBusy
	}
	if r.takesPlace() && p.most > 0 {
		if err := p.checkShare(r); err != nil {
			return nil, nil, err
		}
		if evicted, err = p.makePlace(r.WorkspaceID); err != nil {
			return nil, nil, err
		}
	}
	p.running[r.ID] = r
	if !p.watched[""] {
		p.watched[""] = true
		go f.watchShared()
	}
	return r, evicted, nil
}

// takesPlace reports whether the process needs a place. A listener that is being opened needs none.
func (r *Running) takesPlace() bool {
	return r.kind != computerv1.ProcessKind_PROCESS_KIND_UNSPECIFIED && !r.isEvicted
}

// isIdle reports whether the process may be ended to make room. The caller holds mu of processes.
func (r *Running) isIdle() bool { return !r.idleSince.IsZero() && !r.isEvicted }

// checkShare returns an error if the workspace or the person of a process has its share of the places. The caller holds mu.
func (p *processes) checkShare(r *Running) error {
	left, ofWorkspace, ofPerson := p.most, 0, 0
	for _, other := range p.running {
		if !other.takesPlace() || other.isIdle() {
			continue
		}
		left--
		if other.WorkspaceID == r.WorkspaceID {
			ofWorkspace++
		}
		if other.userID == r.userID && r.userID != "" {
			ofPerson++
		}
	}
	isOver := func(has int) bool { return has > 0 && has+1 > spareFactor*(left-1) }
	switch {
	case left <= 0:
		return errNodeBusy
	case isOver(ofWorkspace):
		return errWorkspaceBusy
	case isOver(ofPerson):
		return errPersonBusy
	}
	return nil
}

// makePlace returns an idle process that loses its place, or nil if there is a place without a process. The caller holds mu.
func (p *processes) makePlace(workspaceID string) (*Running, error) {
	taken, of := 0, map[string]int{}
	for _, r := range p.running {
		if r.takesPlace() {
			taken++
			of[r.WorkspaceID]++
		}
	}
	if taken < p.most {
		return nil, nil
	}
	of[workspaceID] = taken + 1 // its own idle processes end first
	var found *Running
	for _, r := range p.running {
		if !r.isIdle() {
			continue
		}
		if found == nil || of[r.WorkspaceID] > of[found.WorkspaceID] ||
			of[r.WorkspaceID] == of[found.WorkspaceID] && r.idleSince.Before(found.idleSince) {
			found = r
		}
	}
	if found == nil {
		return nil, errNodeBusy
	}
	found.isEvicted = true
	return found, nil
}

// Rest marks the process as idle: the process may be ended at any time to make room for another process, or to free memory of its
// computer.
func (r *Running) Rest() {
	p := &r.fleet.processes
	p.mu.Lock()
	defer p.mu.Unlock()
	r.idleSince = time.Now()
	if !p.watched[r.WorkspaceID] && !p.isClosed {
		p.watched[r.WorkspaceID] = true
		go r.fleet.watchMemory(r.WorkspaceID)
	}
}

// Resume ends the effect of Rest before the process is used again. Errors: ErrEnding; unavailable if the workspace or the person has
// its share of the places, and the process remains idle.
func (r *Running) Resume() error {
	p := &r.fleet.processes
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.isEvicted || p.running[r.ID] != r:
		return ErrEnding
	case r.idleSince.IsZero():
		return nil
	}
	if p.most > 0 {
		if err := p.checkShare(r); err != nil {
			return err
		}
	}
	r.idleSince = time.Time{}
	return nil
}

// endEvicted ends an idle process, and returns when nothing of it is left in its computer. If it cannot be ended, it has its place again,
// so that a later start tries to end it.
func (f *Fleet) endEvicted(ctx context.Context, r *Running, reason string) error {
	f.metrics.evictions.WithLabelValues(reason).Inc()
	err := r.process.End(ctx)
	if err == nil {
		_, err = r.process.Wait(ctx)
	}
	if err != nil {
		f.processes.mu.Lock()
		r.isEvicted = false
		f.processes.mu.Unlock()
		f.o.Log.Error("cannot end an idle process", slog.String("workspace", r.WorkspaceID), slog.String("process", r.ID), slog.Any("error", err))
		return errNodeBusy
	}
	return nil
}

// isRunning reports whether this process of the node starts or runs the process with an id.
func (p *processes) isRunning(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[id] != nil
}

// remove removes a process after its end was recorded, or if the entity never admitted it.
func (p *processes) remove(r *Running) {
	p.mu.Lock()
	delete(p.running, r.ID)
	p.mu.Unlock()
	close(r.ended)
}

// in returns the processes of a workspace; "" means all workspaces.
func (p *processes) in(workspaceID string) []*Running {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*Running
	for _, r := range p.running {
		if workspaceID == "" || r.WorkspaceID == workspaceID {
			found = append(found, r)
		}
	}
	return found
}

// idle returns the number of idle processes of a workspace, "" means all, and the process that has been idle for the longest time. The
// caller holds mu.
func (p *processes) idle(workspaceID string) (n int, longest *Running) {
	for _, r := range p.running {
		if !r.isIdle() || workspaceID != "" && r.WorkspaceID != workspaceID {
			continue
		}
		if n++; longest == nil || r.idleSince.Before(longest.idleSince) {
			longest = r
		}
	}
	return n, longest
}
