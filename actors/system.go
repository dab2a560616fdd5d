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
	Kinds      []Kind
	// Reactions by the full name of the event that they follow.
	Reactions map[string]Reaction
	// Trail has activity reacted to; may be zero.
	Trail Trail
	// Ask reaches entities of any partition, for reactions.
	Ask        func(context.Context, entity.Command) (proto.Message, error)
	Clock      func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// IdleAfter is when an unused entity leaves memory.
	IdleAfter time.Duration
	// Executors run the tasks that kinds open, by the kind of the task.
	Executors map[string]Executor
	// Follow, where set, is called in a goroutine of its own for each term of a partition that this process leads. ctx
	// ends with the term. State of the process that depends on what it leads is built and dropped there.
	Follow func(ctx context.Context, p persistence.Partition)
}

// System is the actor side of one process.
type System struct {
	journal    persistence.Journal
	kinds      []Kind
	hosts      map[string]Kind
	reactions  map[string]Reaction
	trail      Trail
	ask        func(context.Context, entity.Command) (proto.Message, error)
	clock      func() time.Time
	log        *slog.Logger
	metrics    *metrics
	idleAfter  time.Duration
	sweepEvery time.Duration

	actors     *actor.ActorSystem
	root       *actor.RootContext
	dispatcher *dispatcher
	// directory finds an active entity's entry by its key, so that commands go to it directly.
	directory sync.Map
	shards    []led
	inFlight  map[string]*atomic.Int64
	streams   atomic.Uint64
	executors map[string]*executor
	runs      runs
	follow    func(context.Context, persistence.Partition)
	// work is what runs beside the actors: tasks, deliveries of timers, followers of terms.
	work sync.WaitGroup
	// working ends before the system stops.
	working context.Context
	endWork context.CancelFunc
	// running ends when the system stops.
	running context.Context
	end     context.CancelFunc
}

// led is a partition as this process sees it.
type led struct {
	shard    atomic.Pointer[actor.PID]
	sequence atomic.Uint64
	epoch    atomic.Uint64
	// told is set while the reactor has a message that the feed has grown.
	told atomic.Bool
}

// entry is an active entity.
type entry struct {
	pid      *actor.PID
	used     atomic.Int64
	inFlight atomic.Int64
}

func newEntry(pid *actor.PID, now time.Time) *entry {
	e := &entry{pid: pid}
	e.used.Store(now.UnixNano())
	return e
}

func (e *entry) lastUsed() time.Time { return time.Unix(0, e.used.Load()) }

// New makes a system that runs nothing yet.
func New(o Options) *System {
	s := &System{
		journal: o.Journal, kinds: o.Kinds, hosts: map[string]Kind{}, reactions: o.Reactions, trail: o.Trail, ask: o.Ask,
		clock: o.Clock, log: o.Log, idleAfter: o.IdleAfter, sweepEvery: max(o.IdleAfter/4, time.Second),
		shards: make([]led, o.Partitions), inFlight: map[string]*atomic.Int64{},
	}
	s.follow = o.Follow
	s.executors = map[string]*executor{}
	for kind, e := range o.Executors {
		s.executors[kind] = &executor{Executor: e.complete(), node: s, kind: kind}
	}
	names := []string{reactorKind, shardKind, timersKind, tasksKind}
	for _, k := range o.Kinds {
		s.hosts[k.name] = k
		names = append(names, k.name)
		for part := range k.parts {
			s.hosts[part] = k
			names = append(names, part)
		}
	}
	for _, name := range names {
		s.inFlight[name] = new(atomic.Int64)
	}
	s.metrics = newMetrics(o.Registerer, names)
	s.metrics.observeTasks(o.Registerer, s)
	s.actors = actor.NewActorSystemWithConfig(actor.Configure(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(levelled{o.Log.Handler()})
	})))
	s.root = s.actors.Root
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

// Start runs shards for the partitions that the journal says are led here, now and later.
func (s *System) Start() {
	s.journal.Watch(s.running, s.notice)
}

// host is the kind whose actors carry out the commands of a kind.
func (s *System) host(kind string) (Kind, bool) {
	k, ok := s.hosts[kind]
	return k, ok
}

// EndWork ends what runs beside the actors, the tasks among it, and waits for that until ctx ends. Entities still answer.
func (s *System) EndWork(ctx context.Context) {
	s.endWork()
	ended := make(chan struct{})
	go func() { s.work.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Stop ends all actors. Whoever asks must have stopped before: the outcome of a command that is still under way is
// answered as not known. The journal stays open.
func (s *System) Stop(ctx context.Context) {
	s.endWork()
	s.end()
	for i := range s.shards {
		if pid := s.shards[i].shard.Swap(nil); pid != nil {
			stopped := s.root.StopFuture(pid)
			wait := make(chan struct{})
			go func() { _ = stopped.Wait(); close(wait) }()
			select {
			case <-wait:
			case <-ctx.Done():
			}
		}
	}
	s.EndWork(ctx)
	s.actors.Shutdown()
	s.dispatcher.end()
}

// newRequest is a command that counts against no limit.
func (s *System) newRequest(c entity.Command) *request {
	m := s.metrics.kinds[c.Kind]
	m.inFlight.Inc()
	return &request{command: c, arrived: time.Now(), reply: make(chan outcome, 1), metrics: m}
}

// Ask sends a command to the entity that it names, in a partition that is led here, and waits for its reply.
// Errors: *entity.Error, ErrRetry, and ctx's.
func (s *System) Ask(ctx context.Context, p persistence.Partition, c entity.Command) (proto.Message, error) {
	if s.metrics.kinds[c.Kind] == nil {
		return nil, entity.Errorf(entity.InvalidRequest, "no entities of kind %q", c.Kind)
	}
	return s.deliver(ctx, p, s.newRequest(c))
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

// post admits a command and puts it into the mailbox of its entity, or of the shard that will activate it.
func (s *System) post(p persistence.Partition, r *request) error {
	if !s.admit(r, 0, s.inFlight[r.command.Kind], maxInFlightOfKind) {
		return busy(r)
	}
	host := s.hosts[r.command.Kind]
	if found, ok := s.directory.Load(key(host.name, r.command.Identity)); ok {
		e := found.(*entry)
		if !s.admit(r, 1, &e.inFlight, maxInFlight) {
			return busy(r)
		}
		e.used.Store(s.clock().UnixNano())
		s.root.Send(e.pid, r)
		return nil
	}
	pid := s.shards[p].shard.Load()
	if pid == nil {
		return ErrRetry
	}
	s.root.Send(pid, r)
	return nil
}

// admit counts a command in, unless there are too many.
func (s *System) admit(r *request, slot int, inFlight *atomic.Int64, limit int64) bool {
	r.admitted[slot] = inFlight
	return inFlight.Add(1) <= limit
}

func busy(r *request) error {
	r.metrics.refused.Inc()
	return unavailable("too many commands are under way")
}

// Settle waits until everything that a partition recorded so far has been reacted to. Errors: ErrRetry, and ctx's.
func (s *System) Settle(ctx context.Context, p persistence.Partition) error {
	pid := s.shards[p].shard.Load()
	if pid == nil {
		return ErrRetry
	}
	m := &settle{done: make(chan error, 1)}
	s.root.Send(pid, m)
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sweep has every shard look for idle entities now.
func (s *System) Sweep() {
	for i := range s.shards {
		if pid := s.shards[i].shard.Load(); pid != nil {
			s.root.Send(pid, sweep{})
		}
	}
}

// Identities are the entities that an index says have something open, over all partitions; see activity.OpenIntents.
func (s *System) Identities(index string) ([]string, error) {
	var all []string
	for p := range s.shards {
		found, err := s.identities(persistence.Partition(p), index)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Active are the identities of a kind's entities that are in memory, in no order.
func (s *System) Active(kind string) []string {
	var all []string
	s.directory.Range(func(k, _ any) bool {
		if identity, is := strings.CutPrefix(k.(string), kind+"/"); is {
			all = append(all, identity)
		}
		return true
	})
	return all
}

func (s *System) sequence(p persistence.Partition) uint64 { return s.shards[p].sequence.Load() }

const shardKind = "shard"

// notice runs in the journal's goroutine: it hands over and returns.
func (s *System) notice(n persistence.Notice) {
	l := &s.shards[n.Partition]
	l.sequence.Store(n.Sequence)
	l.epoch.Store(n.Epoch)
	pid := l.shard.Load()
	switch {
	case n.Owned && pid == nil:
		l.shard.Store(s.startShard(n.Partition, n.Epoch))
	case !n.Owned && pid != nil:
		l.shard.Store(nil)
		s.root.Stop(pid)
	case pid != nil && l.told.CompareAndSwap(false, true):
		s.root.Send(pid, advanced{})
	}
}

// startShard names the actor by partition and epoch, so that what is sent to one of an earlier term dead-letters.
func (s *System) startShard(p persistence.Partition, epoch uint64) *actor.PID {
	box := newMailbox(s.metrics.kinds[shardKind])
	props := actor.PropsFromProducer(func() actor.Actor {
		return &shard{node: s, partition: p, epoch: epoch, mailbox: box}
	}, actor.WithMailbox(func() actor.Mailbox { return box }), actor.WithDispatcher(s.dispatcher),
		actor.WithGuardian(tireless(s.childFailed)), actor.WithSupervisor(s.supervision()))
	pid, err := s.root.SpawnNamed(props, shardName(p, epoch))
	if err != nil {
		s.log.Error("a shard cannot be started", slog.Int("partition", int(p)), slog.Any("error", err))
		return nil
	}
	return pid
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
