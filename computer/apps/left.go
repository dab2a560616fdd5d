package apps

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/retry"
)

// An attempt to end a process may fail, because the computer does not answer or the kernel does not end the process. The port of the process
// is then in use, and no second process of the app may run at the same time. While the loop of the app runs, the loop tries again (retire),
// and the app records the port as busy. When the loop ends, it leaves the process to the supervisor (leave): Run tries to end the process
// before it begins a new loop, and Stop before it reports that the app has stopped. So each attempt is bounded, and no process is forgotten.

var errNotEnded = errors.New("a process of the app has not ended")

// end ends the process with all its descendants, and returns when all have ended. It first asks the process to end (SIGTERM). It returns an
// error if a process has not ended after Options.Grace and Options.End, or when ctx ends. After an error, end may be called again.
func (i *instance) end(ctx context.Context) error {
	select {
	case i.ending <- struct{}{}:
		defer func() { <-i.ending }()
	case <-ctx.Done():
		return errNotEnded
	}
	if i.hasEnded {
		return nil
	}
	defer i.gate.close()
	if !i.wasAsked {
		i.wasAsked = true
		_ = i.process.Signal(syscall.SIGTERM) // fails if the process has ended
		timer := time.NewTimer(i.l.s.o.Grace)
		defer timer.Stop()
		select {
		case <-i.gone:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(ctx, i.l.s.o.End)
	defer cancel()
	err := i.process.End(ctx)
	select {
	case <-i.gone: // the descendants of the process have ended, too
	case <-ctx.Done():
		return errors.Join(errNotEnded, err)
	}
	i.hasEnded = true
	return nil
}

// discard ends a process that the loop does not use. If the process does not end, discard retires it, so that further attempts follow.
func (l *loop) discard(i *instance) {
	if i.end(context.Background()) != nil {
		l.retire(i)
	}
}

// retire ends a process that was replaced, after its connections are closed, after Options.Drain, or when the loop stops. It returns at once.
func (l *loop) retire(old *instance) {
	if old == nil {
		return
	}
	l.mu.Lock()
	l.retiring = append(l.retiring, old)
	l.mu.Unlock()
	l.draining.Go(func() {
		old.drain(l.s.o.Drain, l.stopping)
		for old.end(context.Background()) != nil {
			l.s.o.Log.Warn("a process of an app does not end; trying again", slog.String("app", l.identity))
			if !retry.PauseUnless(context.Background(), l.s.o.LongestPause, l.stopping) {
				l.s.leave(old)
				return
			}
		}
		l.mu.Lock()
		l.retiring = slices.DeleteFunc(l.retiring, func(i *instance) bool { return i == old })
		l.mu.Unlock()
		select {
		case l.freed <- struct{}{}:
		default:
		}
	})
}

// retiringAt returns the retired processes that may listen on a port.
func (l *loop) retiringAt(port int) []*instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.retiring), func(i *instance) bool { return i.port != port })
}

// usedPorts returns the ports on which a process of the attempt or a retired process may listen.
func (r *runState) usedPorts() []uint32 {
	var all []uint32
	if r.attempt != nil {
		all = append(all, r.attempt.runtime.GetPort())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.retiring {
		if i.port > 0 {
			all = append(all, uint32(i.port))
		}
	}
	return all
}

// reportFreePorts reports the ports that the app has recorded as busy, but on which no process listens any more. The app ignores the report if
// the app has changed; the loop then gets the news of the change, and reports again.
func (r *runState) reportFreePorts(ctx context.Context) {
	used := r.usedPorts()
	free := slices.DeleteFunc(slices.Clone(r.target.busy), func(port uint32) bool { return slices.Contains(used, port) })
	if len(free) == 0 || ctx.Err() != nil {
		return
	}
	r.target.busy = slices.DeleteFunc(slices.Clone(r.target.busy), func(port uint32) bool { return slices.Contains(free, port) })
	r.report(ctx, &appv1.ReportFreePorts{Generation: r.target.generation, Ports: free})
}

// endOrLeave ends a process, or leaves it to the supervisor if it does not end in time.
func (l *loop) endOrLeave(i *instance) {
	if i.end(context.Background()) != nil {
		l.s.leave(i)
	}
}

// leave records a process that has not ended at the end of its loop.
func (s *Supervisor) leave(i *instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[i.l.identity] = append(s.left[i.l.identity], i)
}

// endLeft ends the processes that earlier loops of an app have left.
func (s *Supervisor) endLeft(ctx context.Context, identity string) error {
	for {
		s.mu.Lock()
		all := s.left[identity]
		if len(all) == 0 {
			s.mu.Unlock()
			return nil
		}
		first := all[0] // read under the lock: another caller removes elements in place
		s.mu.Unlock()
		if err := first.end(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		if s.left[identity] = slices.DeleteFunc(s.left[identity], func(i *instance) bool { return i == first }); len(s.left[identity]) == 0 {
			delete(s.left, identity)
		}
		s.mu.Unlock()
	}
}

// looking has the pauses between two queries for the recorded processes of an app.
var looking = retry.Policy{First: 100 * time.Millisecond, Longest: 2 * time.Second}

// awaitEnd returns nil when all processes of an app have ended, on this and any other member:
//
//  1. The loop of the app on this member has ended. Its task is closed.
//  2. The processes that the loop has left have ended.
//  3. The computer has no record of a process of the app. The record is made before a process starts and removed after its end
//     (computer.Fleet.Launch); therefore it also covers processes of other members, and processes of a node that was killed. When a node
//     starts, it ends the processes of its killed predecessor (Fleet.Recover) before it runs tasks, and only then removes their records
//     (Fleet.ReportLost).
//
// Errors: errNotEnded, if a process that was left does not end, or ctx ends first; joined with the error of the attempt or of the query.
func (s *Supervisor) awaitEnd(ctx context.Context, identity string) error {
	s.mu.Lock()
	l := s.running[identity]
	s.mu.Unlock()
	if l != nil {
		select {
		case <-l.ended:
		case <-ctx.Done():
			return errNotEnded
		}
	}
	if err := s.endLeft(ctx, identity); err != nil {
		return err
	}
	workspaceID, appID := app.SplitIdentity(identity)
	var err error
	for range looking.Attempts(ctx) {
		var recorded *computerv1.Computer
		recorded, err = entity.AskAsPlatform[*computerv1.Computer](ctx, s.o.Asker, entity.KindComputer, workspaceID, &computerv1.DescribeComputer{})
		if err == nil && !records(recorded, appID) {
			return nil
		}
	}
	return errors.Join(errNotEnded, err)
}

// records reports whether a computer has a record of a process of an app.
func records(c *computerv1.Computer, appID string) bool {
	for _, p := range c.GetProcesses() {
		if p.GetAppId() == appID {
			return true
		}
	}
	return false
}
