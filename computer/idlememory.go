package computer

import (
	"context"
	"log/slog"
	"time"
)

// An agent needs up to 850 MB, and computers have 2 GiB by default. So agents without a turn would use up the memory of a computer until
// the kernel ends one of its processes, possibly the process that works. Idle processes therefore end while their computer uses more than
// one of these parts of its memory, the processes that have been idle for the longest time first.
const (
	memoryBeforeStart = 0.5
	memoryWhileIdle   = 0.75
	// memoryEvery is the time between two measurements of a computer that has idle processes.
	memoryEvery = time.Second
)

// freeMemory ends idle processes of a workspace while its computer uses more than a part of its memory; "" means all workspaces, and the
// memory of all computers.
func (f *Fleet) freeMemory(ctx context.Context, workspaceID string, most float64) {
	p := &f.processes
	for {
		p.mu.Lock()
		n, _ := p.idle(workspaceID)
		p.mu.Unlock()
		if n == 0 {
			return
		}
		used, limit, err := f.o.Host.Memory(ctx, workspaceID)
		if err != nil || float64(used) <= most*float64(limit) {
			return // memory that cannot be measured is limited all the same
		}
		p.mu.Lock()
		_, longest := p.idle(workspaceID)
		if longest != nil {
			longest.isEvicted = true
		}
		p.mu.Unlock()
		if longest == nil {
			return
		}
		f.o.Log.Info("ending an idle process, because memory is short", slog.String("workspace", longest.WorkspaceID),
			slog.Bool("ofAllComputers", workspaceID == ""), slog.String("process", longest.ID), slog.Uint64("used", used), slog.Uint64("limit", limit))
		if f.endEvicted(ctx, longest, evictedForMemory) != nil {
			return
		}
	}
}

// watchMemory measures the computer of a workspace until it has no idle process.
func (f *Fleet) watchMemory(workspaceID string) {
	p := &f.processes
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.running.Done():
			return
		}
		p.mu.Lock()
		n, _ := p.idle(workspaceID)
		if n == 0 {
			delete(p.watched, workspaceID)
		}
		p.mu.Unlock()
		if n == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(f.running, startTimeout)
		f.freeMemory(ctx, workspaceID, memoryWhileIdle)
		cancel()
	}
}
