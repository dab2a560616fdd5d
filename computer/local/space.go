package local

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

// spaceEvery is the time between two checks of the space of a drive while processes run.
const spaceEvery = time.Second

// Full is the code of the error of Drives.CheckSpace if a drive or the disk is full.
const Full = entity.InsufficientStorage

// checkSpace returns LimitReached if no process may run on the drive, and Unavailable if that cannot be determined.
func (g *guest) checkSpace(ctx context.Context) error {
	err := g.driver.o.Drives.CheckSpace(ctx, g.id)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if refusal, is := errors.AsType[*entity.Error](err); is && refusal.Code == Full {
		return entity.Errorf(entity.LimitReached, "%s", refusal.Message)
	}
	g.log("cannot measure a drive", err)
	return entity.Errorf(entity.Unavailable, "cannot measure the drive of workspace %s; try again", g.id)
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
		if all := g.running(); len(all) > 0 && isFull(g.checkSpace(ctx)) {
			g.endFull(ctx, all)
		}
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
