package apps

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// A loop runs one app while its task is open.
type loop struct {
	s                            *Supervisor
	identity, workspaceID, appID string
	log                          *appLog
	key                          key
	// ended is closed when all processes of the app have ended.
	ended chan struct{}
	// stopping is closed when the task has closed. It is set before the loop runs.
	stopping <-chan struct{}
	// draining counts the retired processes that have not ended.
	draining sync.WaitGroup
	// freed receives a value after a retired process has ended.
	freed chan struct{}

	// mu guards the fields below, which Dial reads.
	mu      sync.Mutex
	current *instance
	// retiring has the processes that were replaced, or could not be ended.
	retiring []*instance
	// relays has the relay of the current process, and the relay of the attempt.
	relays []*relay
	// isFailing is set while the app waits for the next start after a failure.
	isFailing bool
	// isResting is set from the report that the app is to sleep until the process has ended or the app has answered that it is awake. New
	// connections wait meanwhile, because the process is about to end.
	isResting bool
	// changed is closed and replaced by set, which sets current, isFailing and isResting.
	changed chan struct{}
}

// An attempt tries to run a configuration.
type attempt struct {
	configuration
	cancel context.CancelFunc
	done   chan result
}

type result struct {
	started *instance
	err     error
}

func (s *Supervisor) newLoop(identity string) *loop {
	workspaceID, appID := app.SplitIdentity(identity)
	return &loop{
		s: s, identity: identity, workspaceID: workspaceID, appID: appID, ended: make(chan struct{}), changed: make(chan struct{}),
		freed: make(chan struct{}, 1),
	}
}

// run follows the app and runs its wanted configuration until ctx ends. It then ends all processes, and leaves the processes that do not end in
// time to the supervisor (left.go).
func (l *loop) run(ctx context.Context) (err error) {
	if l.log, err = l.s.logs.acquire(l.appID); err != nil {
		return err
	}
	defer l.s.logs.release(l.log)
	l.stopping = ctx.Done()
	following, stop := context.WithCancel(ctx)
	news := make(chan *appv1.App)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		l.follow(following, news)
	}()
	defer func() { stop(); <-followed }()
	defer l.endAll()
	r := &runState{loop: l}
	defer r.abandon()
	for {
		r.proceed(ctx)
		r.reportFreePorts(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-news:
			r.target = target{
				wanted: wanted(a), isAccepted: a.GetAccepted() != nil, busy: a.GetPorts().GetBusy(), generation: a.GetGeneration(),
			}
			r.sleepAfter = time.Duration(a.GetAccepted().GetSleepAfterMs()) * time.Millisecond
			if !a.GetAsleep() {
				r.wake()
			}
			if r.target.wanted != nil && r.target.wanted.generation == r.past.reconciled {
				r.target.wanted.isRequested = false // this state of the app is older than the report
			}
		case done := <-r.attempted():
			r.finish(ctx, done)
		case exit := <-r.currentEnded():
			r.crashed(ctx, exit)
		case <-r.freed:
		case <-r.nextTime():
		}
	}
}

// A target is the part of the app's last state, as follow has sent it, that the loop is to reach.
type target struct {
	// wanted is nil until the app is known, and while it has no configuration to run.
	wanted *configuration
	// isAccepted is set if the app has an accepted configuration, which runs if the wanted configuration fails.
	isAccepted bool
	// busy has the ports on which processes may listen in addition to the port of the accepted configuration.
	busy []uint32
	// generation is the last requested generation.
	generation uint64
}

// A runState is the part of a loop that only its goroutine uses.
type runState struct {
	*loop
	target     target
	past       history
	sleepAfter time.Duration
	attempt    *attempt
	// watched is the process whose end the loop waits for.
	watched *instance
	// asleep is the time of the last report that the app is to sleep. If the app accepts the report, the task closes.
	asleep time.Time
	timer  *time.Timer
}

// proceed begins or cancels an attempt, so that the wanted configuration runs.
func (r *runState) proceed(ctx context.Context) {
	c, current := r.target.wanted, r.now()
	switch {
	case r.attempt != nil:
		if c == nil || c.generation != r.attempt.generation {
			r.attempt.cancel() // run then calls finish
		}
	case r.isPending() && time.Until(r.past.nextStart(r.target.wanted.generation)) <= 0:
		r.begin(ctx, *c)
	}
	if r.attempt == nil && current != nil && r.mayFallAsleep(current) {
		r.fallAsleep(ctx, current)
	}
}

// isPending reports whether the wanted configuration is to be started, now or later. No attempt may be running.
func (r *runState) isPending() bool {
	c, current := r.target.wanted, r.now()
	return c != nil && (!c.isRequested || c.generation != r.past.refused) &&
		(current == nil || current.generation != c.generation || r.hasReplacedKey(current))
}

// hasReplacedKey reports whether an attempt with different scopes has replaced the key of a process, and has then failed. The process has no
// access to the API until a new process of its configuration replaces it.
func (r *runState) hasReplacedKey(i *instance) bool { return i.key != "" && i.key != r.key.text }

func (r *runState) begin(ctx context.Context, c configuration) {
	attempting, cancel := context.WithCancel(ctx)
	a := &attempt{configuration: c, cancel: cancel, done: make(chan result, 1)}
	r.attempt = a
	r.set(r.now(), false)
	go func() {
		started, err := r.try(attempting, c)
		a.done <- result{started, err}
	}()
}

// attempted returns the channel of the result of the attempt; nil if no attempt is running.
func (r *runState) attempted() <-chan result {
	if r.attempt == nil {
		return nil
	}
	return r.attempt.done
}

// abandon cancels the attempt at the end of the loop, and ends the process that the attempt has started.
func (r *runState) abandon() {
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.attempt == nil {
		return
	}
	r.attempt.cancel()
	if done := <-r.attempt.done; done.started != nil {
		r.endOrLeave(done.started)
	}
}

// finish handles the result of the attempt. After a success, it replaces the current process by the process of the attempt. It reports the
// result.
func (r *runState) finish(ctx context.Context, done result) {
	a := r.attempt
	r.attempt = nil
	defer a.cancel()
	defer r.closeRelays()
	isCanceled := done.err != nil && (ctx.Err() != nil || r.target.wanted == nil || r.target.wanted.generation != a.generation)
	switch {
	case isCanceled:
	case done.err == nil:
		old := r.now()
		r.set(done.started, false)
		r.retire(old)
		r.closeRelays() // before the report: after the report, another app may take the port of the old process
		r.s.metrics.starts.WithLabelValues("ready").Inc()
		r.past.succeed(a.configuration)
		if a.isRequested {
			if r.target.wanted != nil && r.target.wanted.generation == a.generation { // otherwise it was replaced too late to cancel the attempt
				r.target.wanted.isRequested = false
			}
			r.report(ctx, &appv1.ReportReconciled{Generation: a.generation, BusyPorts: r.usedPorts()})
		}
	case errors.Is(done.err, errInterrupted) && r.past.mayResume(time.Now(), a.configuration, r.s.o.Ready):
		r.log.platform(done.err.Error())
		r.past.delay(time.Now().Add(r.s.o.FirstPause), a.generation)
	case a.isRequested:
		r.s.metrics.starts.WithLabelValues("failed").Inc()
		r.past.refused = a.generation
		r.log.platform(done.err.Error())
		r.set(r.now(), !r.target.isAccepted) // an accepted configuration runs, or starts again at once
		r.closeRelays()
		r.report(ctx, &appv1.ReportReconciled{Generation: a.generation, Failure: done.err.Error(), BusyPorts: r.usedPorts()})
	default:
		r.s.metrics.starts.WithLabelValues("failed").Inc()
		r.fail(ctx, a.generation, done.err.Error())
	}
}

// crashed handles the end of the watched process. It does nothing if the process is no longer the current process: an attempt has ended it.
func (r *runState) crashed(ctx context.Context, exit computer.Exit) {
	current := r.watched
	if r.now() != current {
		return
	}
	r.set(nil, true)
	if r.attempt == nil {
		r.closeRelays()
	}
	r.discard(current)
	if isStopped(exit) {
		// The computer starts again when the next process starts.
		r.log.platform("the computer was stopped")
		r.set(nil, false)
		r.past.delay(time.Now().Add(r.s.o.FirstPause), current.generation)
		return
	}
	if time.Since(current.readyAt) >= r.s.o.Healthy {
		r.past.failures = 0
	}
	r.fail(ctx, current.generation, describeExit(exit))
}

// fail records that the accepted configuration does not run, and sets the time of the next attempt.
func (r *runState) fail(ctx context.Context, generation uint64, reason string) {
	wait := r.past.countFailure(time.Now(), generation, r.s.o.pause)
	r.set(r.now(), r.now() == nil)
	r.s.metrics.crashes.Inc()
	r.log.platform(fmt.Sprintf("%s; starting again in %s", reason, wait))
	r.report(ctx, &appv1.ReportCrash{Generation: generation, Crash: &appv1.Crash{At: time.Now().UnixMilli(), Reason: excerpt(reason)}})
}

// describeExit returns the reason of a crash.
func describeExit(exit computer.Exit) string {
	switch {
	case exit.Reason != "":
		return string(exit.Reason)
	case exit.Signal != 0:
		return fmt.Sprintf("signal %d", int(exit.Signal))
	default:
		return fmt.Sprintf("exit status %d", exit.Status)
	}
}

// mayFallAsleep reports whether the current process was idle for as long as the app allows.
func (r *runState) mayFallAsleep(current *instance) bool {
	idle, isIdle := current.idle()
	return r.sleepAfter > 0 && isIdle && idle >= r.sleepAfter && time.Since(r.asleep) >= askTimeout
}

// fallAsleep reports that the app is to sleep. The task of the app then closes, which ends the process.
func (r *runState) fallAsleep(ctx context.Context, current *instance) {
	if !r.rest(current) {
		return
	}
	r.asleep = time.Now()
	r.report(ctx, &appv1.ReportAsleep{Generation: current.generation})
}

// rest sets isResting, so that new connections wait. It returns false, and does nothing, if a connection is open.
func (l *loop) rest(current *instance) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, l.isResting = current.idle()
	return l.isResting
}

// wake ends the effect of rest, because the app has not accepted the report that it is to sleep.
func (l *loop) wake() {
	l.mu.Lock()
	isResting := l.isResting
	l.mu.Unlock()
	if isResting {
		l.set(l.now(), false)
	}
}

// nextTime returns the channel of a timer for the next start, or the next check whether the app may sleep.
func (r *runState) nextTime() <-chan time.Time {
	wait := time.Hour
	switch current := r.now(); {
	case r.attempt == nil && r.isPending():
		wait = max(0, time.Until(r.past.nextStart(r.target.wanted.generation)))
	case r.attempt == nil && current != nil && r.sleepAfter > 0: // an attempt keeps the app awake
		idle, isIdle := current.idle()
		wait = r.sleepAfter
		if isIdle {
			wait = max(0, r.sleepAfter-idle, askTimeout-time.Since(r.asleep))
		}
	}
	if r.timer == nil {
		r.timer = time.NewTimer(wait)
	} else {
		r.timer.Reset(wait)
	}
	return r.timer.C
}

// now returns the current process; nil if no process is running.
func (l *loop) now() *instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// set replaces the current process, and wakes the callers of Dial.
func (l *loop) set(current *instance, isFailing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.isFailing, l.isResting = current, isFailing, false
	close(l.changed)
	l.changed = make(chan struct{})
}

// currentEnded returns the channel of the end of the current process, and sets watched to this process; nil if no process is running.
func (r *runState) currentEnded() <-chan computer.Exit {
	r.watched = r.now()
	if r.watched == nil {
		return nil
	}
	return r.watched.exited
}

// endAll ends the current process, and waits for the end of the retired processes.
func (l *loop) endAll() {
	current := l.now()
	l.set(nil, false)
	l.closeRelays()
	if current != nil {
		l.endOrLeave(current)
	}
	l.draining.Wait()
}

// dial connects to the current process. If the process is starting or about to sleep, it returns an error and a channel that is closed when the
// caller should try again. Otherwise retry is nil.
func (l *loop) dial(ctx context.Context) (c *used, retry <-chan struct{}, err error) {
	l.mu.Lock()
	current, changed := l.current, l.changed
	switch {
	case current == nil && l.isFailing:
		l.mu.Unlock()
		return nil, nil, unavailable(ReasonFailed)
	case current == nil || l.isResting:
		l.mu.Unlock()
		return nil, changed, unavailable(ReasonStarting)
	}
	current.enter() // before mu is unlocked, so that rest cannot find the process idle
	l.mu.Unlock()
	c, err = current.dial(ctx)
	if err != nil && ctx.Err() == nil {
		return nil, nil, unavailable(ReasonFailed)
	}
	return c, nil, err
}
