// Package actors runs entities as supervised actors over a journal.
//
//	Ask ──► directory ──► entity actor ── decide ──► pipeline ── Append ──► journal
//	           │ (not active)   ▲                        ▲                     │
//	           └──► shard ──────┘ activates              └─── outcomes ────────┤
//	                   └──► reactor ◄── feed ──────────────────────────────────┘
//
// A System runs a shard actor for each partition that its process owns, from the beginning of a term to its end. A shard
// supervises the entity actors without an owner, a reactor, and the actors of timers and tasks (effects.go); an entity actor
// supervises the actors of the entities that it owns.
//
// # The way of a command
//
//  1. System.Ask makes a request and counts it against the limit of its kind. term.post looks up the entity in the directory
//     of the partition's term, counts the request against the limit of the entity, and sends it to the entity's actor; to
//     its owner's actor if it has an owner; to the shard if the actor to send it to is not active.
//  2. shard.deliver activates the entity's actor, or its owner's, by children.activate, and forwards the request.
//  3. If the request is for an owned entity, the owner's actor authorizes it by its own rules (entityActor.forward) and
//     determines the role of its sender, which is in the calls of the owned entity's rules. children.deliver forwards the
//     request to the owned entity's actor, which is a child of the owner's actor.
//  4. entityActor.handle calls pipeline.handle. If the state is not loaded, pipeline.ensureLoaded reads the snapshot and the
//     events after it (machine.load).
//  5. pipeline.answerRepeated answers a command that was applied before. Otherwise machine.decide authorizes and decides the
//     command, and applies the events to the state in memory at once.
//  6. pipeline.propose appends the events and index entries to the journal as one proposal. The actor continues with the next
//     request; up to maxInFlight requests of one entity wait at the same time.
//  7. When the outcome is known, the journal calls pipeline.outcome, which sends the actor outcomesReady.
//     pipeline.processOutcomes answers the requests, in the order of their proposals, now that the changes they report are
//     durable.
//  8. If the proposal failed, processOutcomes answers the request and all later requests with retryable errors, and the state
//     is dropped. The next request loads the state again, once no proposal is in flight.
//
// Queries of activity, lists and pages of timelines leave this way at step 4: entityActor.answerFromView reads a view of the
// journal in another goroutine. Commands that Timeline.Passes reports true for leave it there too: entityActor.pass passes them
// to the streams of the timeline.
//
// # The way of a waiting query
//
//  1. If Kind.Waits reports true before step 5 of "The way of a command", pipeline.hold holds the request. From then on it
//     counts against the limits of held queries, and not against the limits of requests in flight, so that no command is
//     refused because queries wait. The entity stays active.
//  2. pipeline.hold sends the owner's actor watch. If the sender's access or role changes, entityActor.reauthorizeDependents
//     makes the entity drop the query with ErrRetry; the router then sends it again, and the owner decides anew.
//  3. After outcomes, entityActor.decideHeld asks Waits again for each held query, if the version has changed. A query that
//     need not wait goes on at step 5 of "The way of a command".
//  4. If the sender gives up, System.deliver makes the entity drop the query (request.giveUp). If a proposal fails or the actor
//     ends, pipeline.endHeld answers all held queries with ErrRetry.
//
// # The way of an activity stream
//
//  1. System.Subscribe starts an actor for the stream (connection), and sends a request for it the way of a command. The
//     workspace authorizes it in entityActor.forward and remembers the connection as a follower.
//  2. entityActor.subscribe adds the connection to the hub of the workspace's activity (hub.add). From then on no row is
//     lost: a row is in the hub's ring, or in the journal.
//  3. When rows are durable, activityMachine.committed calls hub.publish, which appends their frames to the ring
//     (ring.append) once for all connections, and signals hub.wakeConnections. That goroutine sends proceed to the
//     connections that had caught up.
//  4. connection.pump sends contiguous frames from the ring (ring.read) until the connection has caught up. If the ring no
//     longer has the next row, connection.replay sends rows from the journal instead, until the ring has the next row.
//  5. When the principal loses access, entityActor.reauthorizeDependents stops the connection. When the activity's actor
//     ends, entityActor.endStreams stops it with ErrRetry, and the router subscribes again after the last row that was sent.
//
// # The way of a timeline's stream
//
//  1. System.FollowTimeline creates a timelineReader. Its request takes the way of a command: the owner authorizes it in
//     entityActor.forward and remembers the reader as a dependent.
//  2. entityActor.addReader asks Timeline.Visible, and adds the reader to the readers of the entity. The reader may send the
//     rows up to the last durable version; it reads them from the journal in the goroutine of the caller (timelineReader.run).
//  3. After outcomes, entityActor.wakeReaders asks Visible again, lets each reader send the rows that have become durable, and
//     wakes it. A slow reader needs no memory for them.
//  4. entityActor.pass adds messages that are passed on to a bounded buffer of each reader, with the last decided
//     version: timelineReader.collect returns the messages after the rows up to this version and before later rows.
//  5. If the principal's access or role changes, Visible refuses, a proposal fails or the entity's actor ends, the reader ends
//     with ErrRetry. The router subscribes again after the last row that was sent; the subscription is refused if the access was
//     lost.
//
// # The way of a reaction
//
//  1. The journal notifies System.handleNotice of new events, which sends feedGrew to the partition's reactor.
//  2. reactor.readFeed reads the feed from its position on. reactor.dispatch assigns each event that has reactions to the
//     lane of its stream, and reactor.startLanes starts a goroutine for each lane that may run now.
//  3. run.reactToBatch reads the lane's events from their stream. For each, run.react asks the kind's React for the
//     commands, and run.sendAll sends them: in order to each target, concurrently to different targets.
//  4. The target's pipeline stores a mark for the source stream in the same proposal as the command's effect
//     (pipeline.advanceMark). If the command is sent again, pipeline.answerMarked recognizes it.
//  5. reactor.handleLaneEnded records the progress of the lane. A failed reaction is retried after a pause; after too many
//     attempts reactor.park suspends the reactions to its stream durably (park.go).
//  6. reactor.writeCursor stores the low-water mark of all lanes. After a crash, the reactor of the next term begins there.
//  7. System.Settle waits until the reactions to the events that an entity has recorded so far are done (settle.go).
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

// maxInFlight limits the requests of one entity that are admitted and not answered. maxInFlightOfKind limits these requests of all entities of
// a kind together.
const (
	maxInFlight       = 4096
	maxInFlightOfKind = 65536
)

// Options are the arguments of New. Journal, Partitions, Kinds, Ask, Clock, Log and IdleAfter are required.
type Options struct {
	Journal    persistence.Journal
	Partitions int
	// Kinds are the kinds of entities that the system runs.
	Kinds []entity.Kind
	// Secret is the key that signs the cursors in the frames of streams.
	Secret []byte
	// Urgency returns whether a command is accepted although the disk is nearly full. nil: all commands are ordinary.
	Urgency func(entity.Command) persistence.Urgency
	// Admit returns an error if a command that would change something is refused, because its workspace has no room in the journal. It must
	// not block. nil: no command is refused.
	Admit func(entity.Command) error
	// Trail has the reactions to activity; the zero value has none.
	Trail Trail
	// Ask sends the commands of reactions, timers and tasks to entities of any partition.
	Ask        func(context.Context, entity.Command) (proto.Message, error)
	Clock      func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// IdleAfter is the time after its last use at which an entity leaves memory.
	IdleAfter time.Duration
	// ReactionAttempts is the number of failed attempts of a reaction after which its stream is parked; 0:
	// DefaultReactionAttempts.
	ReactionAttempts int
	// ExpireEvery is the pause between two searches for expired rows; 0: 10 minutes. See Expire.
	ExpireEvery time.Duration
	// Progress returns the durable progress of the reactor of any partition; nil: this system owns all partitions.
	Progress func(context.Context, persistence.Partition) (Progress, error)
	// Executors run the tasks of entities, by the kind of the task.
	Executors map[string]Executor
	// Observe, if set, is called with the events of each command when they are durable, and before the command is answered, so that a
	// client that has the answer does not read an old value from a cache that Observe invalidates. The calls for one entity are in the
	// order of its events; the calls for different entities are concurrent. Observe must not block. It is not called with events if the
	// outcome was unknown to the process, nor with events of other members; therefore it may only shorten the time until a change is seen.
	Observe func(kind, identity string, events []persistence.Event)
	// Follow, if set, is called in its own goroutine for each term of a partition that this process owns. ctx is canceled
	// when the term ends; Follow then drops the state that it keeps for the partition, and returns.
	Follow func(ctx context.Context, p OwnedPartition)
}

// DefaultReactionAttempts is the default of Options.ReactionAttempts. With the pauses between them, the attempts take about
// half a minute.
const DefaultReactionAttempts = 12

// A System runs the actors of one process. Its methods are safe for concurrent use.
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
	// commands limits the commands of reactions in flight. lanes counts the goroutines of reactors; none starts after running
	// has been canceled, which starting guards.
	commands chan struct{}
	starting sync.Mutex
	lanes    sync.WaitGroup

	executors map[string]*executor
	runs      runs
	follow    func(context.Context, OwnedPartition)
	observe   func(kind, identity string, events []persistence.Event)
	urgency   func(entity.Command) persistence.Urgency
	admit     func(entity.Command) error
	// work counts the goroutines that run beside the actors: tasks, deliveries of timers, Options.Follow.
	work sync.WaitGroup
	// working is canceled by EndWork, before running.
	working context.Context
	endWork context.CancelFunc

	actors      *actor.ActorSystem
	root        *actor.RootContext
	dispatcher  *dispatcher
	supervision actor.SupervisorStrategy
	guardian    actor.SupervisorStrategy
	// terms has the current term of each partition; nil: this process does not own the partition.
	terms   []atomic.Pointer[term]
	streams atomic.Uint64
	// ownership is locked while terms begin and end.
	ownership sync.Mutex
	// reporting guards reporters. For each partition, reporters has the term with the reactor that sets the partition's
	// metrics, so that a term that ends late does not reset the metrics of its successor.
	reporting sync.Mutex
	reporters []*term
	// stopping counts the shards of ended terms that have not stopped yet.
	stopping sync.WaitGroup
	// running is canceled by Stop.
	running context.Context
	end     context.CancelFunc
}

// New returns a System that runs nothing until Start. It panics if a kind names an owner that is not one of the kinds.
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
	s.follow, s.observe, s.urgency, s.admit = o.Follow, o.Observe, o.Urgency, o.Admit
	if s.admit == nil {
		s.admit = func(entity.Command) error { return nil }
	}
	s.executors = map[string]*executor{}
	for kind, e := range o.Executors {
		s.executors[kind] = &executor{Executor: e.complete(), system: s, kind: kind}
	}
	names := []string{reactorKind, shardKind, timersKind, tasksKind}
	for _, k := range o.Kinds {
		names = append(names, k.Name)
	}
	s.metrics = newMetrics(o.Registerer, names)
	s.metrics.observeTasks(o.Registerer, s)
	for _, k := range o.Kinds {
		s.kinds[k.Name] = s.newKind(k, o.Secret)
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
		return slog.New(warningsOnly{o.Log.Handler()})
	})))
	s.root = s.actors.Root
	s.supervision, s.guardian = newSupervision(s.recordFailure), newUnlimitedBackoff(s.recordFailure)
	s.working, s.endWork = context.WithCancel(context.Background())
	s.running, s.end = context.WithCancel(context.Background())
	s.dispatcher = newDispatcher()
	s.actors.EventStream.Subscribe(func(event any) {
		if dead, ok := event.(*actor.DeadLetterEvent); ok {
			answerDeadLetter(dead.Message)
		}
	})
	return s
}

// newKind returns a kind with its metrics and its machine.
func (s *System) newKind(k entity.Kind, secret []byte) *kind {
	hosted := &kind{Kind: k, metrics: s.metrics.kinds[k.Name]}
	hosted.machine = func(identity string) machine { return newRuled(k, identity) }
	if k.Name == entity.KindActivity {
		hosted.machine = func(identity string) machine { return newActivityMachine(s.journal, secret, identity) }
	}
	return hosted
}

// Start runs a shard for each partition that the process owns, now and whenever the journal assigns it one. It returns at once.
func (s *System) Start() {
	s.journal.Watch(s.running, s.handleNotice)
}

// EndWork cancels tasks, deliveries of timers and calls of Options.Follow, and waits for them until ctx ends. Entities still
// answer.
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

// Stop stops all actors and waits for them until ctx ends. The caller stops calling Ask first: a command that is in flight is
// answered with an unknown outcome. Stop does not close the journal.
func (s *System) Stop(ctx context.Context) {
	s.starting.Lock()
	s.endWork()
	s.end()
	s.starting.Unlock()
	s.ownership.Lock()
	for i := range s.terms {
		s.endTerm(s.terms[i].Swap(nil))
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

// Leads reports whether this system owns a partition.
func (s *System) Leads(p persistence.Partition) bool { return s.terms[p].Load() != nil }

// idleBefore returns the time of last use at or before which an entity is idle.
func (s *System) idleBefore() time.Time { return s.clock().Add(-s.idleAfter) }

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

// handleNotice begins and ends terms, and notifies a reactor of new events. The journal calls it in a goroutine of its own, so
// it must not block.
func (s *System) handleNotice(n persistence.Notice) {
	s.ownership.Lock()
	defer s.ownership.Unlock()
	if s.running.Err() != nil {
		return
	}
	t := s.terms[n.Partition].Load()
	if t != nil && (!n.Owned || t.epoch != n.Epoch) {
		s.terms[n.Partition].Store(nil)
		s.endTerm(t)
		t = nil
	}
	switch {
	case n.Owned && t == nil:
		s.terms[n.Partition].Store(s.startTerm(n))
	case n.Owned:
		t.sequence.Store(n.Sequence)
		if t.notified.CompareAndSwap(false, true) {
			s.root.Send(t.shard, feedGrew{})
		}
	}
}

// endTerm stops the shard of a term and everything below it. Proposals in flight are refused by the journal if a later epoch
// has begun.
func (s *System) endTerm(t *term) {
	if t == nil {
		return
	}
	stopped := s.root.StopFuture(t.shard)
	s.stopping.Go(func() { _ = stopped.Wait() })
}

// recordFailure logs and counts a failure of a supervised actor, which its supervisor restarts, or stops for good if stopped is
// set.
func (s *System) recordFailure(child *actor.PID, reason any, stopped bool) {
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
