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
	mu sync.Mutex
	// state is changed by step only, which the goroutine of the attempt calls for eventEvicted.
	state state
	// current is the current process; nil if the state has no process.
	current *instance
	// retiring has the processes that were replaced, or could not be ended.
	retiring []*instance
	// relays has the relay of the current process, and the relay of the attempt.
	relays []*relay
	// changed is closed and replaced by step when the state changes.
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
		s: s, identity: identity, workspaceID: workspaceID, appID: appID, ended: make(chan struct{}), freed: make(chan struct{}, 1),
		state: stateWaiting, changed: make(chan struct{}),
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
	r := &runState{loop: l}
	defer r.close(ctx)
	for {
		r.proceed(ctx)
		r.reportFreePorts(ctx)
		current := r.now()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-news:
			r.learn(ctx, a)
		case done := <-r.attempted():
			r.finish(ctx, done)
		case exit := <-current.exit():
			r.lose(ctx, current, exit)
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

// markReconciled records that the wanted configuration was reported to run, if it has the generation.
func (t *target) markReconciled(generation uint64) {
	if t.wanted != nil && t.wanted.generation == generation {
		t.wanted.isRequested = false
	}
}

// A runState is the part of a loop that only its goroutine uses.
type runState struct {
	*loop
	target     target
	past       history
	sleepAfter time.Duration
	attempt    *attempt
	// asleep is the time of the last report that the app is to sleep. If the app accepts the report, the task closes.
	asleep time.Time
	timer  *time.Timer
}

// An occurrence is an event with the facts that its actions need.
type occurrence struct {
	event event
	// configuration is the configuration of the attempt or the process; of a process, only the generation is set.
	configuration configuration
	// started is the process that the attempt has started; nil if the event is not the success of an attempt.
	started *instance
	// reason says to members why the process has ended or has not started; empty for the other events.
	reason string
}

// feed makes the move of an event, and performs the actions. It returns false if the event is ignored in the state.
func (r *runState) feed(ctx context.Context, o occurrence) bool {
	old, actions, isMove := r.step(o.event, o.started)
	for _, a := range actions {
		r.perform(ctx, a, o, old)
	}
	return isMove
}

// step makes the move of an event, and wakes the callers of Dial if the state changes. started is the process that becomes the current process;
// nil: the current process remains, if the next state has a process. step returns the process that is not current any more; nil if there is
// none. The caller must perform the actions.
func (l *loop) step(e event, started *instance) (old *instance, actions []action, isMove bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e == eventIdle && !l.current.isIdle() {
		return nil, nil, false // a connection was made since the caller has looked
	}
	next, actions, isMove := transition(l.state, e)
	if !isMove {
		return nil, nil, false
	}
	if started != nil || !next.hasProcess() {
		old, l.current = l.current, started
	}
	if next != l.state {
		l.state = next
		close(l.changed)
		l.changed = make(chan struct{})
	}
	return old, actions, true
}

// perform performs an action of a move. old is the process that is not current any more; nil if there is none.
func (r *runState) perform(ctx context.Context, a action, o occurrence, old *instance) {
	generation, metrics := o.configuration.generation, r.s.metrics
	switch a {
	case actBegin:
		r.begin(ctx, o.configuration)
	case actCancel:
		r.attempt.cancel() // run then calls finish
	case actDiscard:
		r.discard(old)
	case actRetire:
		r.retire(old)
	case actEnd:
		r.endOrLeave(old)
	case actAwaitRetired:
		r.draining.Wait()
	case actCloseRelays:
		r.closeRelays()
	case actCountReady:
		metrics.starts.WithLabelValues("ready").Inc()
	case actCountFailed:
		metrics.starts.WithLabelValues("failed").Inc()
	case actSucceed:
		r.past.succeed(o.configuration)
		r.target.markReconciled(r.past.reconciled)
	case actRefuse:
		r.past.refused = generation
	case actForgetFailures:
		r.past.failures = 0
	case actCountFailure:
		wait := r.past.countFailure(time.Now(), generation, r.s.o.pause)
		metrics.crashes.Inc()
		r.log.platform(fmt.Sprintf("%s; starting again in %s", o.reason, wait))
	case actPause:
		r.past.delay(time.Now().Add(r.s.o.FirstPause), generation)
	case actLog:
		r.log.platform(o.reason)
	case actReportReconciled:
		r.report(ctx, &appv1.ReportReconciled{Generation: generation, BusyPorts: r.usedPorts()})
	case actReportFailure:
		r.report(ctx, &appv1.ReportReconciled{Generation: generation, Failure: o.reason, BusyPorts: r.usedPorts()})
	case actReportCrash:
		r.report(ctx, &appv1.ReportCrash{Generation: generation, Crash: &appv1.Crash{At: r.s.o.Clock().UnixMilli(), Reason: excerpt(o.reason)}})
	case actReportAsleep:
		r.asleep = time.Now()
		r.report(ctx, &appv1.ReportAsleep{Generation: generation})
	}
}

// learn takes the state of the app over.
func (r *runState) learn(ctx context.Context, a *appv1.App) {
	r.target = target{
		wanted: wanted(a), isAccepted: a.GetAccepted() != nil, busy: a.GetPorts().GetBusy(), generation: a.GetGeneration(),
	}
	r.target.markReconciled(r.past.reconciled) // the state of the app may be older than the report
	r.sleepAfter = time.Duration(a.GetAccepted().GetSleepAfterMs()) * time.Millisecond
	if !a.GetAsleep() {
		r.feed(ctx, occurrence{event: eventAwake})
	}
}

// proceed begins or cancels an attempt, so that the wanted configuration runs.
func (r *runState) proceed(ctx context.Context) {
	c, current := r.target.wanted, r.now()
	switch {
	case r.attempt != nil:
		if c == nil || c.generation != r.attempt.generation {
			r.feed(ctx, occurrence{event: eventSuperseded})
		}
	case r.isPending() && time.Until(r.past.nextStart(r.target.wanted.generation)) <= 0:
		r.feed(ctx, occurrence{event: eventDue, configuration: *c})
	}
	if r.attempt == nil && current != nil && r.mayFallAsleep(current) {
		r.feed(ctx, occurrence{event: eventIdle, configuration: configuration{generation: current.generation}})
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

// close ends the attempt and all processes at the end of the loop.
func (r *runState) close(ctx context.Context) {
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.attempt != nil {
		r.attempt.cancel()
		if done := <-r.attempt.done; done.started != nil {
			r.endOrLeave(done.started)
		}
		r.attempt = nil
		r.feed(ctx, occurrence{event: eventCanceled})
	}
	r.feed(ctx, occurrence{event: eventClosed})
}

// finish handles the result of the attempt.
func (r *runState) finish(ctx context.Context, done result) {
	a := r.attempt
	r.attempt = nil
	defer a.cancel()
	o := occurrence{event: r.verdict(ctx, a.configuration, done.err), configuration: a.configuration, started: done.started}
	if done.err != nil {
		o.reason = done.err.Error()
	}
	r.feed(ctx, o)
}

// verdict returns the event of the result of an attempt. An attempt that succeeds after it was canceled is a success.
func (r *runState) verdict(ctx context.Context, c configuration, err error) event {
	switch {
	case err == nil && c.isRequested:
		return eventReconciled
	case err == nil:
		return eventReady
	case ctx.Err() != nil || r.target.wanted == nil || r.target.wanted.generation != c.generation:
		return eventCanceled
	case errors.Is(err, errInterrupted) && r.past.mayResume(time.Now(), c, r.s.o.Ready):
		return eventInterrupted
	case !c.isRequested:
		return eventLapsed
	case r.target.isAccepted:
		return eventRefused
	default:
		return eventRejected
	}
}

// lose handles the end of a process that was the current process. It does nothing if an attempt has ended the process.
func (r *runState) lose(ctx context.Context, ended *instance, exit computer.Exit) {
	if r.now() != ended || !r.feed(ctx, occurrence{event: eventEnded}) {
		return
	}
	o := occurrence{event: eventCrashed, configuration: configuration{generation: ended.generation}, reason: describeExit(exit)}
	switch {
	case isStopped(exit): // the computer starts again when the next process starts
		o.event, o.reason = eventHalted, "the computer was stopped"
	case time.Since(ended.readyAt) >= r.s.o.Healthy:
		o.event = eventLateCrash
	}
	r.feed(ctx, o)
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

// dial connects to the current process. If the process is starting or about to sleep, it returns an error and a channel that is closed when the
// caller should try again. Otherwise retry is nil.
func (l *loop) dial(ctx context.Context) (c *used, retry <-chan struct{}, err error) {
	l.mu.Lock()
	current, changed := l.current, l.changed
	switch l.state {
	case stateFailing, stateRestarting:
		l.mu.Unlock()
		return nil, nil, unavailable(ReasonFailed)
	case stateRunning, stateReplacing:
	default:
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
