package local

import (
	"context"
	"sync"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

const (
	// spaceEvery is the time between two checks of the space of a drive while processes run.
	spaceEvery = time.Second
	// suspendTimeout limits the time in which the init of a computer without control groups suspends or resumes its processes.
	suspendTimeout = 2 * time.Second
)

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
			suspend := func(suspended bool) { g.suspend(box, suspended) }
			if isFull(g.checkSpace(ctx, suspend)) {
				g.endFull(ctx, all)
			}
			suspend(false)
		}
	}
}

// suspend suspends the processes of a computer for a moment, or resumes the processes that suspend has suspended before. It does nothing if
// another computer has replaced box. It does not wait until the processes are suspended. A process that waits at its gate is not suspended: the
// process writes nothing, and Start waits for the answer of the process. A process that could not be resumed is resumed at the next check.
// Without control groups, suspend also resumes processes that have stopped themselves.
func (g *guest) suspend(box *sandbox.Computer, suspended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.box != box || g.suspended == suspended {
		return
	}
	if g.frozen { // Freeze resumes them
		g.suspended = suspended
		return
	}
	ctx, cancel := context.WithTimeout(g.driver.running, suspendTimeout)
	defer cancel()
	err := g.signalFrozen(ctx, suspended, func(p *process) error {
		if suspended && p.process == nil {
			return nil
		}
		return p.control.Suspend(suspended)
	})
	if err != nil {
		g.log("cannot suspend or resume the processes of a nearly full drive", err)
	}
	g.suspended = suspended || err != nil
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
