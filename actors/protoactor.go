package actors

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/retry"
)

// This file adapts protoactor: the dispatcher and the mailbox of all actors, the supervision of their failures, and the names
// in their ids.

const (
	// throughput is the number of messages that an actor receives before other actors get its goroutine.
	throughput = 300
	// maxIdleGoroutines limits the goroutines that wait for work.
	maxIdleGoroutines = 256
)

// A dispatcher runs actors and queries on goroutines that it reuses. A new goroutine would first copy its stack several times,
// until it has the depth that rules and journal need.
type dispatcher struct {
	work    chan func()
	waiting atomic.Int64
	ended   chan struct{}
	once    sync.Once
}

func newDispatcher() *dispatcher {
	return &dispatcher{work: make(chan func()), ended: make(chan struct{})}
}

func (d *dispatcher) Throughput() int { return throughput }

func (d *dispatcher) Schedule(fn func()) {
	select {
	case d.work <- fn:
	default:
		go d.run(fn)
	}
}

func (d *dispatcher) run(fn func()) {
	for {
		fn()
		if d.waiting.Add(1) > maxIdleGoroutines {
			d.waiting.Add(-1)
			return
		}
		select {
		case fn = <-d.work:
			d.waiting.Add(-1)
		case <-d.ended:
			return
		}
	}
}

// end ends the idle goroutines. Functions that are scheduled later still run.
func (d *dispatcher) end() { d.once.Do(func() { close(d.ended) }) }

// A mailbox is an unbounded mailbox of protoactor that answers its messages, instead of dropping them, after its actor has
// stopped. Admission limits the requests in it (request.admit).
type mailbox struct {
	actor.Mailbox
	closed  atomic.Bool
	metrics *kindMetrics
	// started is closed, and isStarted set, when the actor may get messages.
	started   chan struct{}
	isStarted atomic.Bool
}

func newMailbox(m *kindMetrics) *mailbox {
	return &mailbox{Mailbox: actor.Unbounded()(), metrics: m, started: make(chan struct{})}
}

// Start lets messages in. protoactor calls it as the last step of spawning an actor.
func (m *mailbox) Start() {
	m.Mailbox.Start()
	m.isStarted.Store(true)
	close(m.started)
}

// awaitStart makes a sender wait that has found the actor by its name before it was completely spawned: protoactor would panic, or
// deliver the message before Started.
func (m *mailbox) awaitStart() {
	if !m.isStarted.Load() {
		<-m.started
	}
}

func (m *mailbox) PostUserMessage(message any) {
	m.awaitStart()
	m.metrics.mailboxDepth.Inc()
	m.Mailbox.PostUserMessage(message)
}

func (m *mailbox) PostSystemMessage(message any) {
	if _, isFirst := message.(*actor.Started); !isFirst {
		m.awaitStart()
	}
	m.Mailbox.PostSystemMessage(message)
}

func (m *mailbox) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	m.Mailbox.RegisterHandlers(&deadLetterInvoker{MessageInvoker: invoker, mailbox: m}, dispatcher)
}

// A deadLetterInvoker answers the messages of a mailbox after its actor has stopped.
type deadLetterInvoker struct {
	actor.MessageInvoker
	mailbox *mailbox
	// stopping is set after the actor has handled Stop. It then only waits for its children to stop.
	stopping bool
}

// InvokeSystemMessage also resumes the mailbox after the actor has handled Stop, so that the messages in it are answered. A
// failure may have suspended it before Stop was sent, or after that by the message that the actor was receiving. The restart
// that follows the failure is dropped, because protoactor would restart the actor instead of stopping it.
func (d *deadLetterInvoker) InvokeSystemMessage(message any) {
	if _, ok := message.(*actor.Restart); ok && d.stopping {
		return
	}
	d.MessageInvoker.InvokeSystemMessage(message)
	if _, ok := message.(*actor.Stop); ok {
		d.stopping = true
		d.mailbox.PostSystemMessage(&actor.ResumeMailbox{})
	}
}

func (d *deadLetterInvoker) InvokeUserMessage(message any) {
	d.mailbox.metrics.mailboxDepth.Dec()
	if d.mailbox.closed.Load() {
		answerDeadLetter(message)
		return
	}
	d.MessageInvoker.InvokeUserMessage(message)
}

// answerDeadLetter answers the requests in a message to a stopped actor: with ErrRetry, unless they have had an effect.
func answerDeadLetter(message any) {
	switch m := actor.UnwrapEnvelopeMessage(message).(type) {
	case *request:
		m.metrics.deadLetters.Inc()
		m.answer(nil, ErrRetry)
	case requests:
		for _, r := range m {
			answerDeadLetter(r)
		}
	case *settleRequest:
		m.done <- ErrRetry
	case *resumption:
		m.done <- ErrRetry
	case *skipWritten:
		m.answerInterrupted()
	}
}

// A backoff restarts a failing child after a pause, and stops the child after more than retries failures in a row. Failures
// are counted anew after the child has run for the time healthy.
type backoff struct {
	pauses    retry.Policy
	healthy   time.Duration
	retries   int
	restarted func(child *actor.PID, reason any, stopped bool)
}

func newBackoff(restarted func(child *actor.PID, reason any, stopped bool)) *backoff {
	return &backoff{
		pauses: retry.Policy{First: 10 * time.Millisecond, Longest: 5 * time.Second}, healthy: time.Minute, retries: 10,
		restarted: restarted,
	}
}

// supervision restarts failing children. An entity that keeps failing is stopped, and activated again by the next command for
// it; a shard's own workers (reactor, timers, tasks) are always restarted. protoactor gets the strategy from the props of the
// supervisor.
type supervision struct{ entities, workers *backoff }

func newSupervision(restarted func(child *actor.PID, reason any, stopped bool)) supervision {
	return supervision{newBackoff(restarted), newUnlimitedBackoff(restarted)}
}

func (s supervision) HandleFailure(system *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, rs *actor.RestartStatistics, reason, message any) {
	strategy := s.entities
	switch kindOf(child.Id) {
	case reactorKind, timersKind, tasksKind:
		strategy = s.workers
	}
	strategy.HandleFailure(system, supervisor, child, rs, reason, message)
}

// newUnlimitedBackoff returns a backoff that always restarts the child. If a shard stopped, its partition would not answer
// until the next term.
func newUnlimitedBackoff(restarted func(child *actor.PID, reason any, stopped bool)) *backoff {
	b := newBackoff(restarted)
	b.retries = math.MaxInt
	return b
}

func (b *backoff) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, rs *actor.RestartStatistics, reason any, _ any) {
	rs.Fail()
	failures := rs.NumberOfFailures(b.healthy)
	if failures > b.retries {
		b.restarted(child, reason, true)
		supervisor.StopChildren(child)
		return
	}
	b.restarted(child, reason, false)
	time.AfterFunc(b.pauses.After(failures), func() { supervisor.RestartChildren(child) })
}

func shardName(p persistence.Partition, epoch uint64) string {
	return fmt.Sprintf("%s-%d-%d", shardKind, p, epoch)
}

// kindOf returns the kind of an actor from its id, which has the name of each of its supervisors: shard-3-1, shard-3-1/reactor,
// shard-3-1/workspace/ws_1, shard-3-1/workspace/ws_1/activity/ws_1.
func kindOf(id string) string {
	names := strings.Split(id, "/")
	switch len(names) {
	case 1:
		return shardKind
	case 2:
		return names[1]
	default:
		return names[len(names)-2]
	}
}

// warningsOnly drops the log messages of protoactor below the level of warnings.
type warningsOnly struct{ slog.Handler }

func (l warningsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && l.Handler.Enabled(ctx, level)
}
