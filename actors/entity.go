package actors

import (
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
	// settled tells an entity that outcomes of its proposals wait in its pipeline.
	settled struct{}
	// wake has an entity carry out what was due; without a command, it looks for that again.
	wake struct{ command proto.Message }
)

// entityActor hosts one entity. It carries out the entity's own commands in its pipeline, and authorizes those of the
// entities that it owns before they go on to their actors, which are its children. A command of an owned entity is thus
// decided after every change of the owner that was decided before it, and a busy owned entity delays nobody else.
type entityActor struct {
	term     *term
	kind     *kind
	identity string
	entry    *entry
	mailbox  *mailbox
	parent   *actor.PID

	self *actor.PID
	own  *pipeline
	// owned are the active entities that belong to this one.
	owned *children
	timer *time.Timer
	// followers are the streams that were let in by this entity's rules and have not been seen to end.
	followers map[*connection]struct{}
	// pruneAt is the number of followers at which those that have ended are forgotten.
	pruneAt int
	// leaving: the entity leaves memory once its owned entities have left and what it flushed is durable.
	leaving bool
}

func (e *entityActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		e.start(ctx)
	case *request:
		e.receive(ctx, m)
	case requests:
		e.receiveAll(ctx, m)
	case settled:
		e.own.settle()
		e.settled()
		if e.leaving {
			e.leave(ctx)
		}
	case wake:
		e.wake(m)
	case sweep:
		e.owned.sweep(e.term.node.idleSince())
	case passivate:
		e.passivate(ctx)
	case stay:
		e.owned.receive(m)
		e.stay(ctx)
	case *actor.Restarting:
		e.end()
		// The actor that starts knows nothing of having been asked to leave.
		ctx.Send(e.parent, stay{e.key()})
	case *actor.Stopping:
		e.mailbox.closed.Store(true)
		e.flush()
		e.end()
	default:
		if e.owned.receive(m) && e.leaving {
			e.leave(ctx)
		}
	}
	e.send()
}

// send sends what is collected for owned entities, unless more messages wait that may add to it.
func (e *entityActor) send() {
	if e.owned != nil && e.owned.collected > 0 && (e.owned.collected >= maxCollected || e.mailbox.UserMessageCount() <= 0) {
		e.owned.flush()
	}
}

func (e *entityActor) receive(ctx actor.Context, r *request) {
	e.stay(ctx)
	e.handle(r)
	if e.blank() {
		ctx.Send(e.parent, blank{e.key()})
	}
}

// receiveAll carries commands out in their order. Where one fails the actor, those behind it are answered with ErrRetry.
func (e *entityActor) receiveAll(ctx actor.Context, all requests) {
	done := 0
	defer func() {
		for _, r := range all[done:] {
			r.answer(nil, ErrRetry) // answered already, where it is the one that failed
		}
	}()
	for _, r := range all {
		e.receive(ctx, r)
		done++
	}
}

func (e *entityActor) key() string { return key(e.kind.Name, e.identity) }

func (e *entityActor) start(ctx actor.Context) {
	e.self = ctx.Self()
	e.owned = newChildren(ctx, e.term, e.entry)
	root, self := e.term.node.root, e.self
	e.own = &pipeline{
		term: e.term, kind: e.kind, stream: persistence.Stream(e.key()), machine: e.kind.machine(e.identity),
		effects: e.term.effects, wake: func() { root.Send(self, settled{}) },
	}
}

// handle carries a command out. One that panics is answered, and then fails the actor, whose state may be wrong.
func (e *entityActor) handle(r *request) {
	defer func() {
		if reason := recover(); reason != nil {
			e.term.node.log.Error("a rule panicked", slog.String("kind", r.command.Kind), slog.String("identity", e.identity),
				slog.String("request_id", r.command.RequestID), slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
			r.answer(nil, entity.Errorf(entity.Internal, "the command failed"))
			e.owned.flush() // these commands were authorized before the failure
			panic(reason)
		}
	}()
	switch {
	case r.command.Kind != e.kind.Name:
		e.forward(r)
	case r.connection != nil:
		e.subscribe(r)
	case isList(r):
		e.list(r)
	case e.isQuery(r):
		e.query(r)
		e.schedule()
	default:
		e.own.handle(r)
		e.schedule()
	}
}

// forward authorizes a command for an owned entity by the entity's own rules and passes it on. A sender's right that
// follows from a change that is not durable yet is one only once the change is. Commands of
// reactions come as the platform, which no owner refuses: a refusal here needs no mark.
func (e *entityActor) forward(r *request) {
	owned := e.term.node.kinds[r.command.Kind]
	access, err := accessTo(owned, r)
	if err == nil && !entity.IsPlatform(r.command.Principal) {
		if err = e.own.learn(); err == nil {
			err = access.Authorize(r.command.Principal, e.check(r.command.Principal))
		}
		if err != nil || !e.own.idle() {
			e.own.after(r, err, func() { e.passOn(owned, r) })
			return
		}
	}
	if err != nil {
		e.own.refuse(r, err)
		return
	}
	e.passOn(owned, r)
}

func (e *entityActor) passOn(owned *kind, r *request) {
	if r.connection != nil {
		if e.followers == nil {
			e.followers = map[*connection]struct{}{}
		}
		e.followers[r.connection] = struct{}{}
		e.prune()
	}
	e.owned.deliver(owned, r)
}

// leastPruned is the least number of followers at which ended ones are looked for.
const leastPruned = 32

// prune forgets followers that have ended, each time that there are twice as many as it has left: an entity that nothing
// happens to does not keep the streams that ever followed it.
func (e *entityActor) prune() {
	if len(e.followers) < max(e.pruneAt, leastPruned) {
		return
	}
	for c := range e.followers {
		if c.ended.Load() {
			delete(e.followers, c)
		}
	}
	e.pruneAt = 2 * len(e.followers)
}

// recheck ends the streams of followers that have lost their access.
func (e *entityActor) recheck() {
	if len(e.followers) == 0 || e.own.learn() != nil {
		return // after a failed proposal the state is not the journal's until all outcomes are there, the last of which calls again
	}
	for c := range e.followers {
		if c.ended.Load() {
			delete(e.followers, c)
			continue
		}
		if err := c.access.Authorize(c.principal, e.check(c.principal)); err != nil && entity.IsRefusal(err) {
			c.stop(err)
		}
	}
}

// accessTo returns what the sender of a request needs. Errors: invalid_request.
func accessTo(k *kind, r *request) (entity.Access, error) {
	if r.connection != nil {
		return r.connection.access, nil
	}
	if isDeclaration(r.command.Message) {
		return entity.PlatformOnly(), nil
	}
	asked, ok := r.command.Message.(*wirev1.List)
	if !ok {
		return k.Access(r.command.Message)
	}
	list, ok := k.Lists[asked.GetName()]
	if !ok || asked.GetSearch() != "" && list.Match == nil {
		return entity.Access{}, entity.Errorf(entity.InvalidRequest, "a %s has no such list %q", k.Name, asked.GetName())
	}
	return entity.Requires(list.Need), nil
}

// check returns how the entity's rules judge a principal, by its state with everything that has been decided.
func (e *entityActor) check(p *wirev1.Principal) func(entity.Need) error {
	return func(need entity.Need) error {
		return e.own.machine.check(entity.Call{Now: now(e.term.node.clock), Identity: e.identity, Principal: p}, need)
	}
}

// settled goes on with what depends on the outcomes of proposals.
func (e *entityActor) settled() {
	e.recheck()
	if e.own.known || !e.own.idle() {
		e.schedule()
		return
	}
	if _, ok := e.own.machine.(scheduled); !ok {
		return
	}
	// A failed proposal may have left something due, for which no command will come.
	if e.own.learn() == nil {
		e.schedule()
	} else if e.timer == nil {
		e.later(relearnAfter, nil)
	}
}

const relearnAfter = time.Second

// scheduled is a machine that has something to do later without being asked, which may be lost with the actor.
type scheduled interface {
	// due returns when and what; a nil command: nothing.
	due() (time.Time, proto.Message)
}

// schedule wakes the entity when its machine has something due.
func (e *entityActor) schedule() {
	m, ok := e.own.machine.(scheduled)
	if !ok || e.timer != nil || !e.own.known {
		return
	}
	at, command := m.due()
	if command == nil {
		return
	}
	e.later(max(at.Sub(e.term.node.clock()), 0), command)
}

func (e *entityActor) later(pause time.Duration, command proto.Message) {
	self, root := e.self, e.term.node.root
	e.timer = time.AfterFunc(pause, func() { root.Send(self, wake{command}) })
}

func (e *entityActor) wake(w wake) {
	e.timer = nil
	if w.command != nil {
		e.own.handle(e.term.node.newRequest(e.kind, entity.Command{
			Kind: e.kind.Name, Identity: e.identity, Principal: entity.Platform(), Message: w.command,
		}))
	}
	if e.own.known || !e.own.idle() || e.own.learn() == nil {
		e.schedule()
	} else {
		e.later(relearnAfter, nil)
	}
}

func (e *entityActor) blank() bool { return e.own.blank() && e.owned.none() && e.idle() }

// idle reports whether the entity itself has nothing under way; its owned entities may have.
func (e *entityActor) idle() bool {
	return e.own.idle() && e.timer == nil && !e.listened()
}

// passivate leaves memory if nothing is under way. What is in memory alone is flushed, and owned entities leave, before.
func (e *entityActor) passivate(ctx actor.Context) {
	if !e.own.idle() || e.listened() {
		ctx.Send(e.parent, stay{e.key()})
		return
	}
	e.leaving = true
	e.flush()
	e.owned.dismissAll()
	e.leave(ctx)
}

// stay gives up leaving when a command comes, or an owned entity is not idle.
func (e *entityActor) stay(ctx actor.Context) {
	if e.leaving {
		e.leaving = false
		ctx.Send(e.parent, stay{e.key()})
	}
}

// leave stops the actor, unless something is still waited for, or has become due meanwhile.
func (e *entityActor) leave(ctx actor.Context) {
	if e.owned.anyStays() { // a command waited for one that has left: it was activated anew
		e.stay(ctx)
		return
	}
	if !e.own.idle() || !e.owned.none() {
		return // the outcome, or the end of the last owned entity, calls leave again
	}
	if !e.idle() {
		e.stay(ctx)
		return
	}
	e.kind.metrics.passivations.Inc()
	ctx.Stop(ctx.Self())
}

// flushing is a machine that holds something in memory alone for a while.
type flushing interface {
	// flushCommand returns the command that writes it; nil: there is nothing.
	flushCommand() proto.Message
}

// flush writes what the machine holds in memory alone. When the actor ends at once nobody waits for the outcome: the
// journal has the proposal by then, and refuses it where the partition is led elsewhere.
func (e *entityActor) flush() {
	m, ok := e.own.machine.(flushing)
	if !ok || !e.own.known {
		return
	}
	command := m.flushCommand()
	if command == nil {
		return
	}
	if e.timer != nil && e.timer.Stop() {
		e.timer = nil
	}
	e.own.handle(e.term.node.newRequest(e.kind, entity.Command{
		Kind: e.kind.Name, Identity: e.identity, Principal: entity.Platform(), Message: command,
	}))
}

func (e *entityActor) end() {
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.own != nil {
		e.own.abandon()
		e.disconnect()
		e.owned.end()
	}
}

func isList(r *request) bool {
	_, ok := r.command.Message.(*wirev1.List)
	return ok
}

// list answers a page of a list from a view, off the actor. The owner has authorized a list of an owned entity.
func (e *entityActor) list(r *request) {
	access, err := accessTo(e.kind, r)
	if err == nil && e.kind.Owner == "" && !entity.IsPlatform(r.command.Principal) {
		if err = e.own.learn(); err == nil {
			err = access.Authorize(r.command.Principal, e.check(r.command.Principal))
		}
	}
	if err != nil {
		e.own.refuse(r, err)
		return
	}
	asked := r.command.Message.(*wirev1.List)
	e.answer(r, func(src source) (proto.Message, error) {
		return readListPage(src, e.kind.Lists[asked.GetName()], asked)
	})
}

// unknownKind refuses a command for a kind that the system does not run.
func unknownKind(name string) error {
	return entity.Errorf(entity.InvalidRequest, "no entities of kind %q", name)
}
