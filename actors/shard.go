package actors

import (
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/persistence"
)

type (
	// sweep has a shard look for idle entities.
	sweep struct{}
	// advanced tells of new events in the partition's feed.
	advanced struct{}
)

// shard is the actor of one partition that is led here, under one epoch. It activates entities as its children by
// identity, supervises them, and puts those that are idle out of memory.
type shard struct {
	node      *System
	partition persistence.Partition
	epoch     uint64
	mailbox   *mailbox

	self     *actor.PID
	reactor  *actor.PID
	effects  *effects
	entities map[string]*handle
	byPID    map[string]*handle
	timer    *time.Timer
}

// handle is an active entity as those who ask it see it.
type handle struct {
	key  string
	pid  *actor.PID
	kind *kindMetrics
	// leaving entities are not handed out; what comes for them waits here.
	leaving bool
	waiting []*request
}

func (s *shard) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.start(ctx)
	case *request:
		s.deliver(ctx, m)
	case advanced:
		ctx.Send(s.reactor, m)
	case *settle:
		ctx.Send(s.reactor, m)
	case tick:
		ctx.Send(s.effects.timers, m)
	case sweep:
		s.sweep(ctx)
	case stay:
		s.stay(ctx, m.key)
	case blank:
		if h := s.entities[m.key]; h != nil && !h.leaving {
			s.dismiss(ctx, h)
		}
	case *actor.Terminated:
		s.ended(ctx, m.Who)
	case *actor.Restarting:
		s.stop()
	case *actor.Stopping:
		s.mailbox.closed.Store(true)
		s.stop()
	}
}

func (s *shard) start(ctx actor.Context) {
	s.self = ctx.Self()
	s.entities, s.byPID = map[string]*handle{}, map[string]*handle{}
	s.reactor = s.spawn(ctx, reactorKind, s.node.metrics.kinds[reactorKind], func(box *mailbox) actor.Actor {
		return &reactor{node: s.node, partition: s.partition, epoch: s.epoch, mailbox: box}
	})
	s.startEffects(ctx)
	s.scheduleSweep()
}

func (s *shard) scheduleSweep() {
	if s.timer != nil {
		s.timer.Stop()
	}
	self := s.self
	s.timer = time.AfterFunc(s.node.sweepEvery, func() { s.node.root.Send(self, sweep{}) })
}

func (s *shard) spawn(ctx actor.Context, name string, m *kindMetrics, produce func(*mailbox) actor.Actor) *actor.PID {
	box := newMailbox(m)
	props := actor.PropsFromProducer(func() actor.Actor { return produce(box) },
		actor.WithMailbox(func() actor.Mailbox { return box }), actor.WithDispatcher(s.node.dispatcher))
	pid, err := ctx.SpawnNamed(props, name)
	if err != nil {
		panic(fmt.Errorf("actor %s: %w", name, err)) // a name is given out once Terminated has told that it is free
	}
	return pid
}

// deliver hands a command to its entity, which is activated where it is not in memory.
func (s *shard) deliver(ctx actor.Context, r *request) {
	kind, ok := s.node.host(r.command.Kind)
	if !ok {
		r.answer(nil, entity.Errorf(entity.InvalidRequest, "no entities of kind %q", r.command.Kind))
		return
	}
	h := s.entities[key(kind.name, r.command.Identity)]
	if h == nil {
		h = s.activate(ctx, kind, r.command.Identity)
	}
	if h.leaving {
		h.waiting = append(h.waiting, r)
		return
	}
	ctx.Send(h.pid, r)
}

func (s *shard) activate(ctx actor.Context, kind Kind, identity string) *handle {
	k := key(kind.name, identity)
	if h := s.entities[k]; h != nil {
		return h
	}
	m := s.node.metrics.kinds[kind.name]
	pid := s.spawn(ctx, k, m, func(box *mailbox) actor.Actor {
		return &entityActor{
			node: s.node, kind: kind, identity: identity,
			partition: s.partition, epoch: s.epoch, mailbox: box, metrics: m, effects: s.effects,
		}
	})
	h := &handle{key: k, pid: pid, kind: m}
	s.entities[k], s.byPID[pid.Id] = h, h
	s.node.directory.Store(k, newEntry(pid, s.node.clock()))
	m.activations.Inc()
	m.active.Inc()
	return h
}

// sweep asks entities that nobody has used for a while to leave. They are not handed out from then on.
func (s *shard) sweep(ctx actor.Context) {
	oldest := s.node.clock().Add(-s.node.idleAfter)
	for _, h := range s.entities {
		found, ok := s.node.directory.Load(h.key)
		if h.leaving || !ok || found.(*entry).lastUsed().After(oldest) {
			continue
		}
		s.dismiss(ctx, h)
	}
	s.scheduleSweep()
}

func (s *shard) dismiss(ctx actor.Context, h *handle) {
	h.leaving = true
	s.node.directory.Delete(h.key)
	ctx.Send(h.pid, passivate{})
}

// stay takes back an entity that was not idle.
func (s *shard) stay(ctx actor.Context, k string) {
	h := s.entities[k]
	if h == nil || !h.leaving {
		return
	}
	h.leaving = false
	s.node.directory.Store(k, newEntry(h.pid, s.node.clock()))
	for _, r := range h.waiting {
		ctx.Send(h.pid, r)
	}
	h.waiting = nil
}

// ended forgets an entity whose actor is gone, and activates it anew for those who wait.
func (s *shard) ended(ctx actor.Context, who *actor.PID) {
	h := s.byPID[who.Id]
	if h == nil {
		return
	}
	delete(s.byPID, who.Id)
	delete(s.entities, h.key)
	s.node.directory.Delete(h.key)
	h.kind.active.Dec()
	for _, r := range h.waiting {
		s.deliver(ctx, r)
	}
}

func (s *shard) stop() {
	if s.effects != nil {
		s.effects.end()
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, h := range s.entities {
		s.node.directory.Delete(h.key)
		for _, r := range h.waiting {
			r.answer(nil, ErrRetry)
		}
		h.waiting = nil // a child's end must not bring it back
	}
}

// identities are the entities that have rows in an index whose values begin with an identity and a zero byte.
func (s *System) identities(p persistence.Partition, index string) ([]string, error) {
	v, err := s.journal.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	var found []string
	for row, err := range v.Index(p, persistence.Query{Index: index, Prefix: true}) {
		if err != nil {
			return nil, err
		}
		identity, _, _ := strings.Cut(row.Value, "\x00")
		if len(found) == 0 || found[len(found)-1] != identity {
			found = append(found, strings.Clone(identity))
		}
	}
	return found, nil
}
