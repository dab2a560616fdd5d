package actors

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/persistence"
)

// A term is the time, of one epoch, in which this process owns a partition. Its directory and its actors begin and end with the term,
// so that a term cannot change the state of a later term.
type term struct {
	system    *System
	partition persistence.Partition
	epoch     uint64
	shard     *actor.PID
	// directory has the entry of each active entity by its key, so that requests are sent to its actor directly.
	directory sync.Map
	// sequence is the sequence of the last durable event in the partition's feed.
	sequence atomic.Uint64
	// notified is set while a feedGrew message is on its way to the reactor, so that at most one such message is.
	notified atomic.Bool
	// reactorWrites counts the proposals of the term's reactors with an unknown outcome: the cursor and the rows of parked streams. A
	// restarted reactor reads its state when no such proposal is left, because it does not get the outcomes of the proposals of its predecessor.
	reactorWrites atomic.Int64
	// effects has the actors of timers and tasks. The shard sets it before it activates an entity.
	effects *effects
}

// find returns the entry of an active entity, or nil.
func (t *term) find(key string) *entry {
	if found, ok := t.directory.Load(key); ok {
		return found.(*entry)
	}
	return nil
}

type (
	// sweep makes a supervisor passivate its idle entities.
	sweep struct{}
	// feedGrew notifies the reactor of new events in the partition's feed.
	feedGrew struct{}
)

// A shard is the actor of one partition in one term. It activates the entities without an owner as its children, supervises
// them, and passivates idle entities.
type shard struct {
	term    *term
	mailbox *mailbox

	self     *actor.PID
	reactor  *actor.PID
	entities *children
	timer    *time.Timer
}

func (s *shard) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.start(ctx)
	case *request:
		s.deliver(m)
	case feedGrew:
		ctx.Send(s.reactor, m)
	case *settleRequest, *resumption:
		ctx.Send(s.reactor, m)
	case tick:
		ctx.Send(s.term.effects.timers, m)
	case sweep:
		s.entities.sweep(s.term.system.idleBefore())
		s.scheduleSweep()
	case *actor.Restarting:
		s.stop()
	case *actor.Stopping:
		s.mailbox.closed.Store(true)
		s.stop()
	default:
		s.entities.receive(m)
	}
	s.entities.flush()
}

func (s *shard) start(ctx actor.Context) {
	s.self = ctx.Self()
	s.entities = newChildren(ctx, s.term, nil)
	system := s.term.system
	s.reactor = spawn(ctx, system, reactorKind, system.metrics.kinds[reactorKind], func(box *mailbox) actor.Actor {
		return &reactor{system: system, term: s.term, mailbox: box}
	})
	s.startEffects(ctx)
	s.scheduleSweep()
}

func (s *shard) scheduleSweep() {
	if s.timer != nil {
		s.timer.Stop()
	}
	self, root := s.self, s.term.system.root
	s.timer = time.AfterFunc(s.term.system.sweepEvery, func() { root.Send(self, sweep{}) })
}

// deliver forwards a request to its entity or, if the entity has an owner, to the owner, and activates that actor if necessary:
// step 2 of "The way of a command" in the package comment.
func (s *shard) deliver(r *request) {
	k := s.term.system.kinds[r.command.Kind]
	if k.root == k {
		s.entities.deliver(k, r)
		return
	}
	s.entities.deliverTo(s.entities.activate(k.root, ownerOf(r.command.Identity)), r)
}

func (s *shard) stop() {
	if s.term.effects != nil {
		s.term.effects.end()
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.entities != nil {
		s.entities.end()
	}
}

// startTerm starts the shard of a new term. The partition and the epoch are part of the shard's name, so that messages to the
// shard of an earlier term become dead letters. It returns nil, and logs, if the shard cannot be started.
func (s *System) startTerm(n persistence.Notice) *term {
	t := &term{system: s, partition: n.Partition, epoch: n.Epoch}
	t.sequence.Store(n.Sequence)
	box := newMailbox(s.metrics.kinds[shardKind])
	props := actor.PropsFromProducer(func() actor.Actor { return &shard{term: t, mailbox: box} },
		actor.WithMailbox(func() actor.Mailbox { return box }), actor.WithDispatcher(s.dispatcher),
		actor.WithGuardian(s.guardian), actor.WithSupervisor(s.supervision))
	pid, err := s.root.SpawnNamed(props, shardName(n.Partition, n.Epoch))
	if err != nil {
		s.log.Error("cannot start the shard of a partition", slog.Int("partition", int(n.Partition)), slog.Uint64("epoch", n.Epoch), slog.Any("error", err))
		return nil
	}
	t.shard = pid
	return t
}
