package computer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// startTimeout limits the start of a process, with the start of its computer.
const startTimeout = 30 * time.Second

// An Observer records the changes that processes make to the drives of workspaces; see package drive/observe.
type Observer interface {
	// Begin observes a drive for a process of an author that is about to start.
	Begin(ctx context.Context, workspaceID string, author *activityv1.Author) (Watch, error)
	// Recover records the changes of processes after their Watch could not record them, for example because the node has ended. It has
	// no effect while the drive is observed, because Begin has done so.
	Recover(ctx context.Context, workspaceID string) error
}

// A Watch observes the changes of one process and its descendants.
type Watch interface {
	// Attribute names the process. It is called before any code of the process runs; 0 means that its id is unknown.
	Attribute(pid int) error
	// End is called when the process and its descendants have ended, and returns when all their changes are recorded durably.
	End(ctx context.Context) error
}

// Running is a process that Fleet.Launch has started.
type Running struct {
	ID          string
	WorkspaceID string
	kind        computerv1.ProcessKind
	// group is Spec.Group.
	group string
	// userID is the person that the process counts for; empty if there is none.
	userID  string
	process Process
	// fleet guards, with mu of its processes, idleSince, which is zero unless the process is idle, isEvicted, which is set while it
	// is ended because it is idle, and isNamed, which is set when CutOff has named it.
	fleet              *Fleet
	idleSince          time.Time
	isEvicted, isNamed bool
	// isShort is set when the process is ended because the memory of all computers is short.
	isShort atomic.Bool
	// started is closed when the process runs or could not be started, and ended when its end is recorded.
	started, ended chan struct{}
	exit           Exit
}

// Streams returns the caller's ends of the standard streams of the process.
func (r *Running) Streams() Streams { return r.process.Streams() }

// Resize changes the size of the terminal.
func (r *Running) Resize(size TerminalSize) error { return r.process.Resize(size) }

// Signal sends a signal to the process, or to the foreground process group of its terminal.
func (r *Running) Signal(s syscall.Signal) error { return r.process.Signal(s) }

// Dial connects to a port of the process's network; see Network.
func (r *Running) Dial(ctx context.Context, port int) (net.Conn, error) {
	return r.process.Dial(ctx, port)
}

// Listen listens on a port of the process's network; see Network.
func (r *Running) Listen(ctx context.Context, port int) (net.Listener, error) {
	return r.process.Listen(ctx, port)
}

// OutOfMemory returns the number of processes of its group that the kernel has ended because memory was short; 0 if it is unknown.
func (r *Running) OutOfMemory() uint64 { return r.process.OutOfMemory() }

// End ends the process and its descendants. It returns before their changes are recorded.
func (r *Running) End(ctx context.Context) error { return r.process.End(ctx) }

// Ended returns a channel that is closed when the process and its descendants have ended, and the journal has their changes and their end.
func (r *Running) Ended() <-chan struct{} { return r.ended }

// Wait waits for Ended, and returns how the process has ended. It returns an error only if ctx ends first.
func (r *Running) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-r.ended:
		return r.exit, nil
	default:
	}
	select {
	case <-r.ended:
		return r.exit, nil
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

// errUnobserved hides an error of the kernel, which the log has.
var errUnobserved = &entity.Error{
	Code: entity.Unavailable, Message: "changes of processes cannot be recorded at the moment", RetryAfter: 5 * time.Second,
}

// Launch starts a process in the computer of a workspace. ctx bounds the start only. "Processes and terminals" in the comment of
// package http/server describes the whole flow of a command; these are the steps here:
//
//  1. The command StartProcess has the caller authorized, and records the process in the entity of the computer.
//  2. Observer.Begin begins to observe the drive.
//  3. Host.Start starts the process. Before its code runs, Watch.Attribute learns its process id, and Launch.Prepare its
//     network.
//  4. When it has ended, follow waits until its changes are recorded, and reports the end with ReportProcessEnded.
//
// Before the first step, the process gets one of the node's places (places.go), and its computer memory (idlememory.go,
// sharedmemory.go).
//
// If the node ends between the first and the last step, the next owner of the partition reports the process as lost
// (ReportLost). Errors: invalid_request, the errors of StartProcess, of Observer.Begin and of Host.Start.
func (f *Fleet) Launch(ctx context.Context, l Launch) (_ *Running, err error) {
	defer func() { f.metrics.countStart(l.Kind, err) }()
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.OwnNetwork && !f.OwnNetworks() {
		return nil, entity.Errorf(entity.InvalidRequest, "this node cannot give processes networks of their own")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	r, err := f.admit(ctx, l)
	if err != nil {
		return nil, err
	}
	admitted, err := entity.Ask[*computerv1.Process](ctx, f.o.Asker, entity.Command{
		Kind: entity.KindComputer, Identity: l.WorkspaceID, Principal: l.Principal,
		Message: &computerv1.StartProcess{
			ProcessId: r.ID, Kind: l.Kind, Program: l.Argv[0], SessionId: l.SessionID, AppId: l.AppID, UserId: l.UserID,
		},
	})
	switch {
	case err != nil && entity.IsRefusal(err):
		close(r.started)
		f.processes.remove(r)
		return nil, err
	case err == nil:
		err = f.start(ctx, r, l, &activityv1.Author{Actor: admitted.GetActor(), UserId: admitted.GetUserId()})
	}
	close(r.started)
	if err != nil {
		// The entity may have recorded the process.
		go f.recordEnd(r, Exit{Reason: EndedLost})
		return nil, err
	}
	return r, nil
}

// admit gives a process that is about to be started a place and memory, and ends idle processes to free them. Errors: unavailable.
func (f *Fleet) admit(ctx context.Context, l Launch) (*Running, error) {
	r, evicted, err := f.processes.admit(f, l)
	if err != nil {
		return nil, err
	}
	if evicted != nil {
		if err := f.endEvicted(ctx, evicted, evictedForPlace); err != nil {
			close(r.started)
			f.processes.remove(r)
			return nil, err
		}
	}
	f.freeMemory(ctx, l.WorkspaceID, memoryBeforeStart)
	if err := f.checkShared(ctx, r); err != nil {
		close(r.started)
		f.processes.remove(r)
		return nil, err
	}
	return r, nil
}

// start carries out steps 2 and 3 of Launch, and begins step 4.
func (f *Fleet) start(ctx context.Context, r *Running, l Launch, author *activityv1.Author) error {
	watch, err := f.o.Observer.Begin(ctx, l.WorkspaceID, author)
	if _, is := errors.AsType[*entity.Error](err); err != nil && !is {
		f.o.Log.Error("cannot observe a drive", slog.String("workspace", l.WorkspaceID), slog.Any("error", err))
		return errUnobserved
	}
	if err != nil {
		return err
	}
	r.process, err = f.o.Host.Start(ctx, l.WorkspaceID, Spec{
		ID: r.ID, Group: r.group, Argv: l.Argv, Cwd: l.Cwd, Env: l.Env, Terminal: l.Terminal,
		Limits: l.Limits, OwnNetwork: l.OwnNetwork, Private: l.isPrivate(), Attribute: watch.Attribute, Prepare: l.Prepare,
	})
	if err != nil {
		return errors.Join(err, f.endWatch(r, watch))
	}
	f.metrics.running.WithLabelValues(kindOfProcess(r.kind)).Inc()
	go f.follow(r, watch)
	return nil
}

// follow waits for the end of a process and records it.
func (f *Fleet) follow(r *Running, watch Watch) {
	exit, _ := r.process.Wait(context.Background()) // fails only when its context ends
	exit = r.explain(exit)
	f.metrics.countEnd(r.kind, exit)
	if err := f.endWatch(r, watch); err != nil {
		// The process remains recorded, so that ReportLost recovers the drive.
		if f.running.Err() == nil { // CutOff has named it otherwise
			f.o.Log.Error("cannot record all changes of a process; the next check of the computer compares the drive with the sequence",
				slog.String("workspace", r.WorkspaceID), slog.String("process", r.ID), slog.Any("error", err))
		}
		r.exit = exit
		f.processes.remove(r)
		return
	}
	f.recordEnd(r, exit)
}

func (f *Fleet) endWatch(r *Running, watch Watch) error {
	ctx, cancel := context.WithTimeout(f.running, time.Minute)
	defer cancel()
	return watch.End(ctx)
}

// recordEnd reports the end of a process until the entity has answered, and removes the process. If the fleet is closed
// before, the next owner of the partition reports it.
func (f *Fleet) recordEnd(r *Running, exit Exit) {
	defer f.processes.remove(r)
	r.exit = exit
	report := &computerv1.ReportProcessEnded{ProcessId: r.ID, Status: uint32(exit.Status), Reason: string(exit.Reason)}
	_ = entity.AskUntilAnswered(f.running, func() error {
		_, err := f.ask(f.running, r.WorkspaceID, report)
		if err != nil && !entity.IsRefusal(err) {
			f.o.Log.Warn("cannot report the end of a process; retrying", slog.String("workspace", r.WorkspaceID),
				slog.String("process", r.ID), slog.Any("error", err))
		}
		return err
	})
}

// withoutProcesses calls work while the computer of a workspace has no process and none can be started. Its processes are
// ended first.
func (f *Fleet) withoutProcesses(ctx context.Context, workspaceID string, work func() error) error {
	p := &f.processes
	p.mu.Lock()
	p.stopping[workspaceID]++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.stopping[workspaceID]--; p.stopping[workspaceID] == 0 {
			delete(p.stopping, workspaceID)
		}
	}()
	if err := f.stop(ctx, workspaceID); err != nil {
		return err
	}
	return work()
}

// stop stops the computer of a workspace in which no process can be started any more, and returns when the ends of its
// processes are recorded.
func (f *Fleet) stop(ctx context.Context, workspaceID string) error {
	all := f.processes.in(workspaceID)
	for _, r := range all {
		select {
		case <-r.started:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := f.o.Host.Stop(ctx, workspaceID); err != nil {
		return err
	}
	for _, r := range all {
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Recover removes the leftovers of an earlier process of the node from the machine, and logs each. It is called before any
// other method.
func (f *Fleet) Recover(ctx context.Context) error {
	left, err := f.o.Driver.Recover(ctx)
	for _, l := range left {
		f.metrics.leftovers.WithLabelValues(l.Kind).Inc()
		f.o.Log.Warn("removed what an earlier process of the node has left", slog.String("kind", l.Kind),
			slog.String("name", l.Name), slog.String("workspace", l.WorkspaceID))
	}
	return err
}

// Close ends all processes and records their ends. It starts none after it. When ctx ends it returns an error that names the processes
// without a recorded end (CutOff); the next owner of the partition then records the other ends.
func (f *Fleet) Close(ctx context.Context) error {
	defer f.cancel()
	f.processes.mu.Lock()
	f.processes.isClosed = true
	f.processes.mu.Unlock()
	var stopping sync.WaitGroup
	var errs []error
	var mu sync.Mutex
	workspaces := map[string]bool{}
	for _, r := range f.processes.in("") {
		workspaces[r.WorkspaceID] = true
	}
	for id := range workspaces {
		stopping.Go(func() {
			if err := f.stop(ctx, id); err != nil && !errors.Is(err, ctx.Err()) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("end the processes of workspace %s: %w", id, err))
			}
		})
	}
	stopping.Wait()
	if ctx.Err() != nil {
		errs = append(errs, f.CutOff())
	}
	return errors.Join(errs...)
}

// ReportLost reports the recorded processes of a share that do not run as lost: the node has ended, or moved the partition,
// before it could record their end. The changes that they have made until then are recorded first. It returns the errors of the
// share.
func (f *Fleet) ReportLost(ctx context.Context, s Share) error {
	for after := ""; ; {
		ids, err := s.Occupied(after, idlePage)
		if err != nil || len(ids) == 0 {
			return err
		}
		after = ids[len(ids)-1]
		for _, id := range ids {
			recorded, err := s.Processes(id)
			if err != nil {
				return err
			}
			if f.recoverDrive(ctx, id) != nil {
				continue // the next check repeats it
			}
			for _, p := range recorded {
				f.reportLost(ctx, id, p)
			}
		}
	}
}

// recoverDrive makes the observer record the changes of lost processes.
func (f *Fleet) recoverDrive(ctx context.Context, workspaceID string) error {
	err := f.o.Observer.Recover(ctx, workspaceID)
	if err != nil && ctx.Err() == nil {
		f.o.Log.Warn("cannot record the last changes of lost processes; trying again later",
			slog.String("workspace", workspaceID), slog.Any("error", err))
	}
	return err
}

func (f *Fleet) reportLost(ctx context.Context, workspaceID string, p *computerv1.Process) {
	if f.processes.isRunning(p.GetId()) {
		return
	}
	log := f.o.Log.With(slog.String("workspace", workspaceID), slog.String("process", p.GetId()))
	_, err := f.ask(ctx, workspaceID, &computerv1.ReportProcessEnded{ProcessId: p.GetId(), Reason: string(EndedLost)})
	if err != nil && ctx.Err() == nil {
		log.Warn("cannot report a lost process; the next check repeats it", slog.Any("error", err))
	} else if err == nil {
		log.Info("a process was lost", slog.String("program", p.GetProgram()), slog.String("actor", p.GetActor()))
	}
}

func kindOfProcess(k computerv1.ProcessKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "PROCESS_KIND_"))
}
