package actors

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

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
	// wake has a part carry out what was due; without a command, look for it again.
	wake struct {
		kind    string
		command proto.Message
	}
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

	self  *actor.PID
	own   *pipeline
	parts map[string]*pipeline
	wakes map[string]*time.Timer
	// leaving tells that the entity leaves memory once what its parts wrote down for that is durable.
	leaving bool
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
		if e.leaving {
			e.passivate(ctx)
		}
	case wake:
		e.wake(m)
	case passivate:
		e.passivate(ctx)
	case *actor.Restarting:
		e.end()
	case *actor.Stopping:
		e.mailbox.closed.Store(true)
		e.flushParts()
		e.end()
	}
}

func (e *entityActor) start(ctx actor.Context) {
	e.self = ctx.Self()
	e.parts, e.wakes = map[string]*pipeline{}, map[string]*time.Timer{}
	e.own = e.pipeline(e.kind.name, e.kind.machine(e.identity))
	// What a part left open when the entity last left memory is taken up without being asked for.
	for name, part := range e.kind.parts {
		if len(part.open) > 0 {
			e.takeUp(name, e.part(name))
		}
	}
}

func (e *entityActor) pipeline(kind string, m machine) *pipeline {
	p := &pipeline{
		node: e.node, partition: e.partition, epoch: e.epoch,
		stream: persistence.Stream(kind + "/" + e.identity), machine: m, metrics: e.node.metrics.kinds[kind],
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
		e.schedule(r.command.Kind, p)
		return
	}
	p.handle(r)
	e.schedule(r.command.Kind, p)
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
	for kind, part := range e.parts {
		if part == p {
			e.takeUp(kind, p)
		}
	}
}

// takeUp sees to it that what a part has open is carried out in time, also after a failure.
func (e *entityActor) takeUp(kind string, p *pipeline) {
	if p.known || !p.idle() {
		e.schedule(kind, p)
		return
	}
	if p.learn() == nil {
		e.schedule(kind, p)
		return
	}
	if e.wakes[kind] == nil {
		e.later(kind, relearnAfter, nil)
	}
}

const relearnAfter = time.Second

// schedule wakes a part that has something due later.
func (e *entityActor) schedule(kind string, p *pipeline) {
	m, ok := p.machine.(interface {
		due() (time.Time, proto.Message)
	})
	if !ok || e.wakes[kind] != nil || !p.known {
		return
	}
	at, command := m.due()
	if command == nil {
		return
	}
	e.later(kind, max(at.Sub(e.node.clock()), 0), command)
}

func (e *entityActor) later(kind string, pause time.Duration, command proto.Message) {
	self := e.self
	e.wakes[kind] = time.AfterFunc(pause, func() { e.node.root.Send(self, wake{kind, command}) })
}

func (e *entityActor) wake(w wake) {
	delete(e.wakes, w.kind)
	p := e.part(w.kind)
	if w.command != nil {
		p.handle(e.node.newRequest(entity.Command{
			Kind: w.kind, Identity: e.identity, Principal: entity.Platform(), Message: w.command,
		}))
	}
	e.takeUp(w.kind, p)
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
	for kind, p := range e.parts {
		if !p.idle() || e.wakes[kind] != nil || e.listened(p) {
			return false
		}
	}
	return true
}

// passivate leaves memory, where the entity is idle. What parts hold in memory alone is written first; what comes for the
// entity meanwhile waits in its shard.
func (e *entityActor) passivate(ctx actor.Context) {
	if e.leaving && !e.settled() {
		return
	}
	if !e.leaving && e.settled() && e.flushParts() && !e.settled() {
		e.leaving = true
		return
	}
	e.leaving = false
	if !e.idle() {
		ctx.Send(ctx.Parent(), stay{key(e.kind.name, e.identity)})
		return
	}
	e.metrics.passivations.Inc()
	ctx.Stop(ctx.Self())
}

// settled tells whether no proposal is under way.
func (e *entityActor) settled() bool {
	for _, p := range e.parts {
		if !p.idle() {
			return false
		}
	}
	return e.own.idle()
}

// flushParts has each part write what it holds in memory alone, and reports whether there was anything to write. Where the
// actor ends at once nobody waits for it: the journal has the proposal by then, and refuses it where the partition is
// led elsewhere.
func (e *entityActor) flushParts() bool {
	flushed := false
	for kind, p := range e.parts {
		m, ok := p.machine.(interface{ flushCommand() proto.Message })
		if !ok || !p.known {
			continue
		}
		command := m.flushCommand()
		if command == nil {
			continue
		}
		flushed = true
		if t := e.wakes[kind]; t != nil && t.Stop() {
			delete(e.wakes, kind)
		}
		p.handle(e.node.newRequest(entity.Command{
			Kind: kind, Identity: e.identity, Principal: entity.Platform(), Message: command,
		}))
	}
	return flushed
}

func (e *entityActor) end() {
	for _, t := range e.wakes {
		t.Stop()
	}
	if e.own != nil {
		e.own.abandon()
	}
	for _, p := range e.parts {
		p.abandon()
		e.disconnect(p)
	}
}

func key(kind, identity string) string { return kind + "/" + identity }
