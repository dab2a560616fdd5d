package local

import (
	"context"
	"sync"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/cgroup"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

// spaceEvery is the time between two checks of the space of a drive while processes run.
const spaceEvery = time.Second

// checkSpace is computer.CheckSpace of the computer's drive.
func (g *guest) checkSpace(ctx context.Context, suspend func(bool)) error {
	return computer.CheckSpace(ctx, g.driver.o.Drives, g.id, suspend, g.driver.o.Log)
}

func isFull(err error) bool {
	return entity.HasCode(err, entity.LimitReached)
}

// followSpace ends the processes of a running computer whenever the drive is full, until the computer has ended.
func (g *guest) followSpace(box *sandbox.Computer) {
	ctx, cancel := context.WithCancel(g.driver.running)
	defer cancel()
	ticker := time.NewTicker(spaceEvery)
	defer ticker.Stop()
	fell, stop := g.driver.o.Drives.WatchSpace()
	defer stop()
	for {
		select {
		case <-box.Ended():
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-fell:
		}
		if all := g.running(); len(all) > 0 {
			if isFull(g.checkSpace(ctx, g.suspend)) {
				g.endFull(ctx, all)
			}
			g.suspend(false)
		}
	}
}

// suspend suspends the processes of the computer for a moment, or resumes those that it has suspended. It does not wait until they are
// suspended. Without control groups, it also resumes what has stopped by itself.
func (g *guest) suspend(suspended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.suspended == suspended {
		return
	}
	g.suspended = suspended
	if g.box == nil || g.frozen { // Freeze resumes them
		return
	}
	if err := g.signalFrozen(g.driver.running, suspended, (*cgroup.Group).Suspend); err != nil {
		g.log("cannot suspend or resume the processes of a nearly full drive", err)
	}
}

// running returns the processes that have been started and have not ended.
func (g *guest) running() (all []*process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.processes {
		if p.process != nil { // or it is being started, and found at the next check
			all = append(all, p)
		}
	}
	return all
}

// endFull ends processes because the drive is full, and returns when they have ended.
func (g *guest) endFull(ctx context.Context, all []*process) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, p := range all {
		p.isFull.Store(true)
		group.Go(func() {
			if err := p.End(ctx); err != nil {
				g.log("cannot end a process though the drive is full", err)
			}
		})
	}
	group.Wait()
}
