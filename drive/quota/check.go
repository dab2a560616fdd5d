package quota

import (
	"context"
	"time"
)

// Check returns Full if processes may not run on a drive: the disk has too little free space, or the drive exceeds its limit and
// the kernel does not enforce it. It is to be called before a process is started, and every few seconds while processes run. It
// returns the errors of Measure, and ctx's error. While Check walks drives or waits for the walks of other drives, the share of the disk
// is decided again whenever the free space falls (Watch).
//
// Check calls suspend with true before it waits to decide about a disk that is nearly full: at the speed of memory, the processes of the
// drive would fill the rest meanwhile. It does not if the payer is known to have less than the share, whichever drive has grown. It calls
// suspend with false when it has admitted the processes; after an error the caller ends or resumes them. nil: no process runs.
func (l *Limiter) Check(ctx context.Context, workspaceID string, suspend func(bool)) error {
	d, err := l.checkShare(ctx, workspaceID, suspend)
	if err != nil {
		return err
	}
	a := l.account(workspaceID)
	isCounted := l.isCounted(a, workspaceID)
	mayBeNear := !isCounted && d.isNear() && d.isAbove(Usage{})
	mayExceed := l.isLimited() && l.options.Limit.mayExceed(d.Usage, Usage{}) && !(isCounted && l.kernel == enforces)
	if !mayBeNear && !mayExceed {
		return nil
	}
	fell, stop := l.Watch()
	defer stop()
	walking, cancel := context.WithCancel(ctx)
	defer cancel()
	walked := make(chan error, 1)
	go func() {
		var err error
		if mayBeNear {
			err = l.anticipate(walking, workspaceID, d)
		}
		if err == nil && mayExceed {
			err = l.checkLimit(walking, a, workspaceID)
		}
		walked <- err
	}()
	for { // the free space may have fallen before Watch
		if _, err := l.checkShare(ctx, workspaceID, suspend); err != nil {
			return err
		}
		select {
		case err := <-walked:
			return err
		case <-fell:
		}
	}
}

// checkShare is requireShare for processes, which are suspended while they would wait.
func (l *Limiter) checkShare(ctx context.Context, workspaceID string, suspend func(bool)) (disk, error) {
	if suspend == nil {
		return l.requireShare(ctx, workspaceID, Usage{}, goOn)
	}
	isSuspended := false
	d, err := l.requireShare(ctx, workspaceID, Usage{}, func() {
		if !isSuspended {
			isSuspended = true
			suspend(true)
		}
	})
	if isSuspended && err == nil {
		suspend(false)
	}
	return d, err
}

// checkLimit returns Full if a drive exceeds its limit.
func (l *Limiter) checkLimit(ctx context.Context, a *account, workspaceID string) error {
	defer a.noteCheck()
	if err := l.measure(ctx, a, workspaceID, checkEvery); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used.exceeds(l.options.Limit) {
		return l.errExceeded()
	}
	return nil
}

func (a *account) noteCheck() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checked = time.Now()
}
