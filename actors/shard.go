package actors

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/persistence"
)

// term is one epoch in which this process leads a partition. Its directory and its actors begin and end with it, so that
// nothing of an earlier term can touch those of a later one.
type term struct {
	node      *System
	partition persistence.Partition
	epoch     uint64
	shard     *actor.PID
	// directory finds the entry of an active entity by its key, so that commands go to it directly.
	directory sync.Map
	// sequence is the last durable one of the partition's feed.
	sequence atomic.Uint64
	// told is set while the reactor has a message that the feed has grown.
	told atomic.Bool
	// effects are the timers and tasks of the term; the shard sets them before it activates an entity.
	effects *effects
}

func (t *term) find(key string) *entry {
	if found, ok := t.directory.Load(key); ok {
		return found.(*entry)
	}
	return nil
}

// post puts a command into the mailbox of the actor that carries it out or authorizes it, or of the shard, which will
// activate that one.
func (t *term) post(k *kind, r *request) error {
	now := t.node.clock()
	to := t.shard
	if own := t.find(r.key); own != nil {
		if !r.admit(1, &own.inFlight, maxInFlight) {
			return busy(r)
		}
		own.touch(now)
		to = own.pid
		if own.owner != nil {
			own.owner.touch(now)
			to = own.owner.pid
		}
	} else if k.root != k {
		if owner := t.find(key(k.root.Name, ownerOf(r.command.Identity))); owner != nil {
			owner.touch(now)
			to = owner.pid
		}
	}
	t.node.root.Send(to, r)
	return nil
}

type (
	// sweep has a supervisor look for idle entities.
	sweep struct{}
	// advanced tells of new events in the partition's feed.
	advanced struct{}
)

// shard is the actor of one partition that is led here, under one epoch. It activates the entities that have no owner as
// its children by identity, supervises them, and puts those that are idle out of memory.
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
	case advanced:
		ctx.Send(s.reactor, m)
	case *settle, *resumption:
		ctx.Send(s.reactor, m)
	case tick:
		ctx.Send(s.term.effects.timers, m)
	case sweep:
		s.entities.sweep(s.term.node.idleSince())
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
	node := s.term.node
	s.reactor = spawn(ctx, node, reactorKind, node.metrics.kinds[reactorKind], func(box *mailbox) actor.Actor {
		return &reactor{node: node, term: s.term, mailbox: box}
	})
	s.startEffects(ctx)
	s.scheduleSweep()
}

func (s *shard) scheduleSweep() {
	if s.timer != nil {
		s.timer.Stop()
	}
	self, root := s.self, s.term.node.root
	s.timer = time.AfterFunc(s.term.node.sweepEvery, func() { root.Send(self, sweep{}) })
}

// deliver hands a command to its entity, or to the owner of its entity.
func (s *shard) deliver(r *request) {
	k := s.term.node.kinds[r.command.Kind]
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

// lead begins a term: it starts the partition's shard, whose name has the partition and the epoch in it, so that what is
// sent to the shard of an earlier term becomes a dead letter.
func (s *System) lead(n persistence.Notice) *term {
	t := &term{node: s, partition: n.Partition, epoch: n.Epoch}
	t.sequence.Store(n.Sequence)
	box := newMailbox(s.metrics.kinds[shardKind])
	props := actor.PropsFromProducer(func() actor.Actor { return &shard{term: t, mailbox: box} },
		actor.WithMailbox(func() actor.Mailbox { return box }), actor.WithDispatcher(s.dispatcher),
		actor.WithGuardian(s.guardian), actor.WithSupervisor(s.supervision))
	pid, err := s.root.SpawnNamed(props, shardName(n.Partition, n.Epoch))
	if err != nil {
		s.log.Error("a shard cannot be started", slog.Int("partition", int(n.Partition)), slog.Uint64("epoch", n.Epoch), slog.Any("error", err))
		return nil
	}
	t.shard = pid
	return t
}
