// Package actors runs entities as supervised actors over a journal.
//
// A shard actor stands for each partition that is led here; its children are the entities that are in memory. An
// entity's pipeline decides commands against the state as it will be, proposes the events to the journal, and holds
// each reply back until what it tells of is durable. A reactor follows each partition's feed and carries out what
// follows from events elsewhere. Streams of file activity are actors of their own, fed from a ring of frames that a
// workspace's actor fills with what was committed.
//
//	Ask ──► directory ──► entity actor ── Decide ──► pipeline ── Append ──► journal
//	           │ (unknown)      ▲                        ▲                     │
//	           └──► shard ──────┘ activates              └─── outcomes ────────┤
//	                   └──► reactor ◄── feed ─────────────────────────────────┘
package actors

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

// maxInFlight bounds the commands that one entity has admitted and not answered; maxInFlightOfKind those of a kind.
const (
	maxInFlight       = 4096
	maxInFlightOfKind = 65536
)

// Options are what a System is made of.
type Options struct {
	Journal    persistence.Journal
	Partitions int
	// Kinds are the kinds of entities that the system runs.
	Kinds []entity.Kind
	// Secret is what the cursors in the frames of streams are made with.
	Secret []byte
	// Trail has activity reacted to; may be zero.
	Trail Trail
	// Ask reaches entities of any partition, for reactions.
	Ask        func(context.Context, entity.Command) (proto.Message, error)
	Clock      func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// IdleAfter is when an unused entity leaves memory.
	IdleAfter time.Duration
	// ReactionAttempts is how often a reaction is tried before its stream is parked; 0: DefaultReactionAttempts.
	ReactionAttempts int
	// ExpireEvery is the pause between two searches for expired rows; 0: 10 minutes. See Expire.
	ExpireEvery time.Duration
	// Progress returns how far the reactor of any partition has come; nil: every partition is led here.
	Progress func(context.Context, persistence.Partition) (Progress, error)
	// Executors run the tasks that kinds open, by the kind of the task.
	Executors map[string]Executor
	// Follow, if set, is called in its own goroutine for each term of a partition that this process owns. ctx is canceled
	// when the term ends; Follow then drops the state that it keeps for the partition, and returns.
	Follow func(ctx context.Context, p OwnedPartition)
}

// DefaultReactionAttempts is the ReactionAttempts of Options that leave it out: about half a minute.
const DefaultReactionAttempts = 12

// System is the actor side of one process.
type System struct {
	journal    persistence.Journal
	kinds      map[string]*kind
	trail      Trail
	ask        func(context.Context, entity.Command) (proto.Message, error)
	clock      func() time.Time
	log        *slog.Logger
	metrics    *metrics
	idleAfter  time.Duration
	sweepEvery time.Duration

	reactionAttempts int
	expireEvery      time.Duration
	progress         func(context.Context, persistence.Partition) (Progress, error)
	// commands admits the commands of reactions; lanes are the goroutines of reactors, none of which starts once running
	// has ended.
	commands chan struct{}
	starting sync.Mutex
	lanes    sync.WaitGroup

	executors map[string]*executor
	runs      runs
	follow    func(context.Context, OwnedPartition)
	// work is what runs beside the actors: tasks, deliveries of timers, followers of terms.
	work sync.WaitGroup
	// working ends before the system stops.
	working context.Context
	endWork context.CancelFunc

	actors      *actor.ActorSystem
	root        *actor.RootContext
	dispatcher  *dispatcher
	supervision actor.SupervisorStrategy
	guardian    actor.SupervisorStrategy
	// terms are those of the partitions that are led here, by partition; nil: led elsewhere.
	terms   []atomic.Pointer[term]
	streams atomic.Uint64
	// ownership is held while terms begin and end.
	ownership sync.Mutex
	// reporting guards reporters, the terms whose reactors set the metrics of their partition: a term that ends late does
	// not reset those of its successor.
	reporting sync.Mutex
	reporters []*term
	// stopping are the shards of ended terms, which stop.
	stopping sync.WaitGroup
	// running ends when the system stops.
	running context.Context
	end     context.CancelFunc
}

// New makes a system that runs nothing yet. It panics where a kind names an owner that is not among the kinds.
func New(o Options) *System {
	s := &System{
		journal: o.Journal, kinds: map[string]*kind{}, trail: o.Trail, ask: o.Ask,
		clock: o.Clock, log: o.Log, idleAfter: o.IdleAfter, sweepEvery: max(o.IdleAfter/4, time.Second),
		terms:            make([]atomic.Pointer[term], o.Partitions),
		reporters:        make([]*term, o.Partitions),
		reactionAttempts: cmp.Or(o.ReactionAttempts, DefaultReactionAttempts), expireEvery: cmp.Or(o.ExpireEvery, 10*time.Minute),
		progress: o.Progress, commands: make(chan struct{}, allCommands),
	}
	if s.progress == nil {
		s.progress = func(_ context.Context, p persistence.Partition) (Progress, error) { return s.Progress(p) }
	}
	s.follow = o.Follow
	s.executors = map[string]*executor{}
	for kind, e := range o.Executors {
		s.executors[kind] = &executor{Executor: e.complete(), node: s, kind: kind}
	}
	names := []string{reactorKind, shardKind, timersKind, tasksKind}
	for _, k := range o.Kinds {
		names = append(names, k.Name)
	}
	s.metrics = newMetrics(o.Registerer, names)
	s.metrics.observeTasks(o.Registerer, s)
	for _, k := range o.Kinds {
		s.kinds[k.Name] = s.host(k, o.Secret)
	}
	for _, k := range s.kinds {
		if k.root = k; k.Owner == "" {
			continue
		}
		if k.root = s.kinds[k.Owner]; k.root == nil {
			panic("no kind " + k.Owner + ", which owns kind " + k.Name)
		}
		k.root.owned = append(k.root.owned, k)
	}
	s.actors = actor.NewActorSystemWithConfig(actor.Configure(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(levelled{o.Log.Handler()})
	})))
	s.root = s.actors.Root
	s.supervision, s.guardian = newSupervision(s.childFailed), tireless(s.childFailed)
	s.working, s.endWork = context.WithCancel(context.Background())
	s.running, s.end = context.WithCancel(context.Background())
	s.dispatcher = newDispatcher()
	s.actors.EventStream.Subscribe(func(event any) {
		if dead, ok := event.(*actor.DeadLetterEvent); ok {
			bounce(dead.Message)
		}
	})
	return s
}

// host prepares a kind to be run.
func (s *System) host(k entity.Kind, secret []byte) *kind {
	hosted := &kind{Kind: k, metrics: s.metrics.kinds[k.Name]}
	hosted.machine = func(identity string) machine { return newRuled(k, identity) }
	if k.Name == entity.KindActivity {
		hosted.machine = func(identity string) machine { return newActivityMachine(s.journal, secret, identity) }
	}
	return hosted
}

// Start runs shards for the partitions that the journal says are led here, now and later.
func (s *System) Start() {
	s.journal.Watch(s.running, s.notice)
}

// EndWork ends what runs beside the actors, the tasks among it, and waits for that until ctx ends. Entities still answer.
func (s *System) EndWork(ctx context.Context) {
	s.starting.Lock()
	s.endWork()
	s.starting.Unlock()
	ended := make(chan struct{})
	go func() { s.work.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Stop ends all actors. Callers of Ask must have stopped before: the outcome of a command that is still under way is
// answered as unknown. The journal stays open.
func (s *System) Stop(ctx context.Context) {
	s.starting.Lock()
	s.endWork()
	s.end()
	s.starting.Unlock()
	s.ownership.Lock()
	for i := range s.terms {
		s.lose(s.terms[i].Swap(nil))
	}
	s.ownership.Unlock()
	stopped := make(chan struct{})
	go func() { s.lanes.Wait(); s.stopping.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-ctx.Done():
	}
	s.EndWork(ctx)
	s.actors.Shutdown()
	s.dispatcher.end()
}

// Leads reports whether the partition is led here.
func (s *System) Leads(p persistence.Partition) bool { return s.terms[p].Load() != nil }

// newRequest makes a request of a command that counts against no limit.
func (s *System) newRequest(k *kind, c entity.Command) *request {
	k.metrics.inFlight.Inc()
	return &request{command: c, key: key(c.Kind, c.Identity), arrived: time.Now(), reply: make(chan outcome, 1), metrics: k.metrics}
}

// Ask sends a command to the entity that it names, in a partition that is led here, and waits for its reply.
// Errors: *entity.Error, ErrRetry, and ctx's.
func (s *System) Ask(ctx context.Context, p persistence.Partition, c entity.Command) (proto.Message, error) {
	k := s.kinds[c.Kind]
	if k == nil {
		return nil, unknownKind(c.Kind)
	}
	return s.deliver(ctx, p, s.newRequest(k, c))
}

func (s *System) deliver(ctx context.Context, p persistence.Partition, r *request) (proto.Message, error) {
	if err := s.post(p, r); err != nil {
		r.answer(nil, err)
	}
	select {
	case o := <-r.reply:
		return o.message, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *System) post(p persistence.Partition, r *request) error {
	k := s.kinds[r.command.Kind]
	if !r.admit(0, &k.inFlight, maxInFlightOfKind) {
		return busy(r)
	}
	t := s.terms[p].Load()
	if t == nil {
		return ErrRetry
	}
	return t.post(k, r)
}

func busy(r *request) error {
	r.metrics.refused.Inc()
	return unavailable("too many commands are under way")
}

// Sweep has every shard look for idle entities now.
func (s *System) Sweep() {
	for i := range s.terms {
		if t := s.terms[i].Load(); t != nil {
			s.root.Send(t.shard, sweep{})
		}
	}
}

// idleSince is the time since which an idle entity has not been used.
func (s *System) idleSince() time.Time { return s.clock().Add(-s.idleAfter) }

// Active returns the identities of a kind's entities that are in memory in a partition, in no order.
func (s *System) Active(p persistence.Partition, kind string) []string {
	t := s.terms[p].Load()
	if t == nil {
		return nil
	}
	var all []string
	t.directory.Range(func(k, _ any) bool {
		if identity, is := strings.CutPrefix(k.(string), kind+"/"); is {
			all = append(all, identity)
		}
		return true
	})
	return all
}

const shardKind = "shard"

// notice follows the ownership of partitions. It runs in the journal's goroutine: it hands over and returns.
func (s *System) notice(n persistence.Notice) {
	s.ownership.Lock()
	defer s.ownership.Unlock()
	if s.running.Err() != nil {
		return
	}
	t := s.terms[n.Partition].Load()
	if t != nil && (!n.Owned || t.epoch != n.Epoch) {
		s.terms[n.Partition].Store(nil)
		s.lose(t)
		t = nil
	}
	switch {
	case n.Owned && t == nil:
		s.terms[n.Partition].Store(s.lead(n))
	case n.Owned:
		t.sequence.Store(n.Sequence)
		if t.told.CompareAndSwap(false, true) {
			s.root.Send(t.shard, advanced{})
		}
	}
}

// lose ends a term: its shard stops with everything below it. What is under way is fenced off by the term's epoch.
func (s *System) lose(t *term) {
	if t == nil {
		return
	}
	stopped := s.root.StopFuture(t.shard)
	s.stopping.Go(func() { _ = stopped.Wait() })
}

// childFailed is told of each failure of a supervised actor.
func (s *System) childFailed(child *actor.PID, reason any, stopped bool) {
	directive := "restart"
	if stopped {
		directive = "stop"
	}
	s.log.Error("an actor failed", slog.String("actor", child.Id), slog.String("directive", directive), slog.Any("reason", reason))
	m := s.metrics.kinds[kindOf(child.Id)]
	if m == nil {
		return
	}
	if stopped {
		m.stops.Inc()
	} else {
		m.restarts.Inc()
	}
}
