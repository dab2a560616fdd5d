package actors

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

type (
	// settled tells an entity that outcomes of its proposals wait in a pipeline.
	settled struct{ pipeline *pipeline }
	// passivate asks an idle entity to leave memory.
	passivate struct{}
	// blank tells the shard of an entity to which nothing ever happened, so that asking for what is not there leaves
	// nothing in memory.
	blank struct{ key string }
	// stay answers passivate when the entity is not idle after all.
	stay struct{ key string }
)

// entityActor hosts one entity: its own pipeline, and those of the parts that live with it.
type entityActor struct {
	node      *System
	kind      Kind
	identity  string
	partition persistence.Partition
	epoch     uint64
	mailbox   *mailbox
	metrics   *kindMetrics
	effects   *effects

	self  *actor.PID
	own   *pipeline
	parts map[string]*pipeline
}

func (e *entityActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		e.start(ctx)
	case *request:
		e.handle(m)
		if e.blank() {
			ctx.Send(ctx.Parent(), blank{key(e.kind.name, e.identity)})
		}
	case settled:
		e.settle(m.pipeline)
	case passivate:
		e.passivate(ctx)
	case *actor.Restarting:
		e.end()
	case *actor.Stopping:
		e.mailbox.closed.Store(true)
		e.end()
	}
}

func (e *entityActor) start(ctx actor.Context) {
	e.self = ctx.Self()
	e.parts = map[string]*pipeline{}
	e.own = e.pipeline(e.kind.name, e.kind.machine(e.identity))
}

func (e *entityActor) pipeline(kind string, m machine) *pipeline {
	p := &pipeline{
		node: e.node, partition: e.partition, epoch: e.epoch,
		stream: persistence.Stream(kind + "/" + e.identity), machine: m, metrics: e.node.metrics.kinds[kind],
		effects: e.effects,
	}
	self := e.self
	p.wake = func() { e.node.root.Send(self, settled{p}) }
	return p
}

// part is the pipeline of a part, made when it is first used.
func (e *entityActor) part(name string) *pipeline {
	if p := e.parts[name]; p != nil {
		return p
	}
	p := e.pipeline(name, e.kind.parts[name].machine(e.identity))
	e.parts[name] = p
	return p
}

// handle carries a command out. One that panics is answered, and then fails the actor, whose state is not to be trusted.
func (e *entityActor) handle(r *request) {
	defer func() {
		if reason := recover(); reason != nil {
			e.node.log.Error("a rule panicked", slog.String("kind", r.command.Kind), slog.String("identity", e.identity),
				slog.String("request_id", r.command.RequestID), slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
			r.answer(nil, entity.Errorf(entity.Internal, "the command failed"))
			panic(reason)
		}
	}()
	if l, ok := r.command.Message.(*wirev1.List); ok {
		e.list(r, l)
		return
	}
	if r.command.Kind == e.kind.name {
		e.own.handle(r)
		return
	}
	if err := e.allow(r); err != nil {
		e.own.refuse(r, err)
		return
	}
	if r.connection != nil {
		e.subscribe(r)
		return
	}
	p := e.part(r.command.Kind)
	if e.kind.parts[r.command.Kind].reads(r.command.Message) {
		e.query(p, r)
		return
	}
	p.handle(r)
}

// allow lets the entity's own rules decide who may use what belongs to it.
func (e *entityActor) allow(r *request) error {
	part, ok := e.kind.parts[r.command.Kind]
	if !ok {
		return fmt.Errorf("a %s has no %s", e.kind.name, r.command.Kind)
	}
	need, ok := follows, true
	if r.connection == nil {
		need, ok = part.need(r.command.Message)
	}
	if !ok && !entity.IsPlatform(r.command.Principal) {
		return errPlatformOnly
	}
	return e.guard(r.command.Principal, need)
}

var errPlatformOnly = entity.Errorf(entity.Forbidden, "only the platform may do this")

// guard asks the entity's rules, of its speculative state.
func (e *entityActor) guard(p *wirev1.Principal, need entity.Need) error {
	if entity.IsPlatform(p) {
		return nil
	}
	if err := e.own.learn(); err != nil {
		return err
	}
	if e.kind.guard == nil {
		return errPlatformOnly
	}
	return e.kind.guard(e.own.machine, entity.Call{Now: now(e.node.clock), Identity: e.identity, Principal: p}, need)
}

func (e *entityActor) settle(p *pipeline) {
	p.settle()
	if p == e.own {
		e.recheck()
	}
}

func (e *entityActor) blank() bool {
	for _, p := range e.parts {
		if p.known && !p.blank() {
			return false
		}
	}
	return e.own.blank() && e.idle()
}

func (e *entityActor) idle() bool {
	if !e.own.idle() {
		return false
	}
	for _, p := range e.parts {
		if !p.idle() || e.listened(p) {
			return false
		}
	}
	return true
}

func (e *entityActor) passivate(ctx actor.Context) {
	if !e.idle() {
		ctx.Send(ctx.Parent(), stay{key(e.kind.name, e.identity)})
		return
	}
	e.metrics.passivations.Inc()
	ctx.Stop(ctx.Self())
}

func (e *entityActor) end() {
	if e.own != nil {
		e.own.abandon()
	}
	for _, p := range e.parts {
		p.abandon()
		e.disconnect(p)
	}
}

func key(kind, identity string) string { return kind + "/" + identity }
