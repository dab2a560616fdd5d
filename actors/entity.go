package actors

import (
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

type (
	// outcomesReady notifies an entity that its pipeline has outcomes of proposals.
	outcomesReady struct{}
	// wake makes an entity apply a command that was due. Without a command, the entity looks for a due command again.
	wake struct{ command proto.Message }
)

// An entityActor runs one entity. It applies the entity's own commands in its pipeline. It authorizes the commands of the
// entities that it owns, and forwards them to their actors, which are its children. A command for an owned entity is therefore
// authorized after every earlier decision of the owner, and a busy owned entity delays no other owned entity.
type entityActor struct {
	term     *term
	kind     *kind
	identity string
	entry    *entry
	mailbox  *mailbox
	parent   *actor.PID

	self *actor.PID
	own  *pipeline
	// owned are the active entities that this entity owns.
	owned *children
	// timer sends wake; nil: no timer is armed.
	timer *time.Timer
	// dependents has the streams and held queries of owned entities that this entity has authorized. A dependent may stay in the table for
	// some time after it has ended.
	dependents map[dependent]struct{}
	// pruneAt is the number of dependents at which ended dependents are removed.
	pruneAt int
	// readers are the streams that follow the entity's timeline. They have the rows up to the version readable.
	readers  map[*timelineReader]struct{}
	readable uint64
	// passivating is set while the entity waits to stop: until its owned entities have stopped and the rows that it flushed are
	// durable.
	passivating bool
}

func (e *entityActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		e.start(ctx)
	case *request:
		e.receive(ctx, m)
	case requests:
		e.receiveAll(ctx, m)
	case outcomesReady:
		e.own.processOutcomes()
		e.afterOutcomes()
		if e.passivating {
			e.stopIfIdle(ctx)
		}
	case wake:
		e.wake(m)
	case watch:
		e.watch(m.dependent)
	case drop:
		e.drop(ctx, m)
	case readerLeft:
		e.removeReader(m.reader)
	case sweep:
		e.forgetEndedDependents()
		e.owned.sweep(e.term.system.idleBefore())
	case passivate:
		e.passivate(ctx)
	case stayActive:
		e.owned.receive(m)
		e.cancelPassivation(ctx)
	case *actor.Restarting:
		e.end()
		// The restarted actor does not know that it was asked to passivate.
		ctx.Send(e.parent, stayActive{e.key()})
	case *actor.Stopping:
		e.mailbox.closed.Store(true)
		e.flush()
		e.end()
	default:
		if e.owned.receive(m) && e.passivating {
			e.stopIfIdle(ctx)
		}
	}
	e.send()
}

// send sends the requests that are collected for owned entities, unless further messages wait that may add to them.
func (e *entityActor) send() {
	if e.owned != nil && e.owned.collected > 0 && (e.owned.collected >= maxCollected || e.mailbox.UserMessageCount() <= 0) {
		e.owned.flush()
	}
}

// receive handles a request.
func (e *entityActor) receive(ctx actor.Context, r *request) {
	e.cancelPassivation(ctx)
	e.handle(r)
	if e.isBlank() {
		ctx.Send(e.parent, blank{e.key()})
	}
}

// receiveAll handles requests in order. If the actor panics in a request, the later requests are answered with ErrRetry.
func (e *entityActor) receiveAll(ctx actor.Context, all requests) {
	done := 0
	defer func() {
		for _, r := range all[done:] {
			r.answer(nil, ErrRetry) // has no effect on the request that panicked: it is answered
		}
	}()
	for _, r := range all {
		e.receive(ctx, r)
		done++
	}
}

func (e *entityActor) key() string { return key(e.kind.Name, e.identity) }

// start makes the entity's pipeline, which loads the state with the first request.
func (e *entityActor) start(ctx actor.Context) {
	e.self = ctx.Self()
	e.owned = newChildren(ctx, e.term, e.entry)
	root, self := e.term.system.root, e.self
	e.own = &pipeline{
		term: e.term, kind: e.kind, stream: persistence.Stream(e.key()), machine: e.kind.machine(e.identity),
		effects: e.term.effects, wake: func() { root.Send(self, outcomesReady{}) }, self: self, parent: e.parent,
	}
}

// answerPanic is deferred around the rules. If one panics, the state may be wrong: answerPanic answers the request and panics
// again, so that the supervisor restarts the actor.
func (e *entityActor) answerPanic(r *request) {
	if reason := recover(); reason != nil {
		e.term.system.log.Error("a rule panicked", slog.String("kind", r.command.Kind), slog.String("identity", e.identity),
			slog.String("request_id", r.command.RequestID), slog.Any("panic", reason), slog.String("stack", string(debug.Stack())))
		r.answer(nil, entity.Errorf(entity.Internal, "the command failed"))
		e.owned.flush() // these requests were authorized before the panic
		panic(reason)
	}
}

// handle handles a request: steps 3 and 4 of "The way of a command" in the package comment.
func (e *entityActor) handle(r *request) {
	defer e.answerPanic(r)
	switch {
	case r.command.Kind != e.kind.Name:
		e.forward(r)
	case r.connection != nil:
		e.subscribe(r)
	case r.reader != nil:
		e.addReader(r)
	case isList(r):
		e.list(r)
	case isReadTimeline(r):
		e.readTimeline(r)
	case e.kind.passes(r.command.Message):
		e.pass(r)
	case e.isQuery(r):
		e.query(r)
		e.schedule()
	default:
		e.own.handle(r)
		e.schedule()
	}
}

// forward authorizes a command for an owned entity by the owner's rules, and forwards it with the role of its sender. If
// proposals of the owner are in flight, it waits for their outcome, because the authorization may depend on them. The commands
// of reactions have the platform as principal, which no owner refuses, so no mark is needed for a refusal here.
func (e *entityActor) forward(r *request) {
	owned := e.term.system.kinds[r.command.Kind]
	access, err := requiredAccess(owned, r)
	r.access = access
	if entity.IsPlatform(r.command.Principal) {
		r.role = e.roleOf(r.command.Principal)
	} else if err == nil {
		if err = e.own.ensureLoaded(); err == nil {
			err = access.Authorize(r.command.Principal, e.check(r.command.Principal))
		}
		if err == nil {
			r.role = e.roleOf(r.command.Principal)
		}
		if err != nil || !e.own.isIdle() {
			e.own.afterDurable(r, err, func() { e.deliverToOwned(owned, r) })
			return
		}
	}
	if err != nil {
		e.own.fail(r, err)
		return
	}
	e.deliverToOwned(owned, r)
}

// deliverToOwned forwards an authorized request to an owned entity, and remembers the stream that it may subscribe.
func (e *entityActor) deliverToOwned(owned *kind, r *request) {
	switch {
	case r.connection != nil:
		e.addDependent(r.connection)
	case r.reader != nil:
		r.reader.role = r.role
		e.addDependent(r.reader)
	}
	e.owned.deliver(owned, r)
}

// requiredAccess returns the access that a request requires. It returns InvalidRequest for a message or list that the kind does
// not have.
func requiredAccess(k *kind, r *request) (entity.Access, error) {
	if r.connection != nil {
		return r.connection.access, nil
	}
	if r.reader != nil {
		return k.timelineAccess()
	}
	switch m := r.command.Message.(type) {
	case *runtimev1.DeclareEffects:
		return entity.PlatformOnly(), nil
	case *wirev1.ReadTimeline:
		return k.timelineAccess()
	case *wirev1.List:
		list, ok := k.Lists[m.GetName()]
		if !ok || m.GetSearch() != "" && list.Match == nil || len(m.GetFilter()) > 0 && list.Visible == nil {
			return entity.Access{}, entity.Errorf(entity.InvalidRequest, "a %s has no such list %q", k.Name, m.GetName())
		}
		return entity.Requires(list.Need), nil
	default:
		if k.passes(m) {
			return entity.PlatformOnly(), nil
		}
		return k.Access(m)
	}
}

// afterOutcomes runs after outcomes of proposals: it authorizes dependents again, sends rows to the readers of the timeline,
// decides held queries, and arms the timer. After a failed proposal, readers and held queries begin again.
func (e *entityActor) afterOutcomes() {
	if !e.own.loaded { // a proposal has failed
		e.own.endHeld()
		e.endReaders(ErrRetry)
	}
	e.reauthorizeDependents()
	e.wakeReaders()
	e.decideHeld()
	if e.own.loaded || !e.own.isIdle() {
		e.schedule()
		return
	}
	if _, ok := e.own.machine.(deferring); !ok {
		return
	}
	// After a failed proposal a command may still be due, and no request would load the state for it.
	if e.own.ensureLoaded() == nil {
		e.schedule()
	} else if e.timer == nil {
		e.wakeAfter(reloadAfter, nil)
	}
}

const reloadAfter = time.Second

// A deferring machine has a command to apply later, without a request. It may be lost with the actor.
type deferring interface {
	// due returns the time and the command; nil: none is due.
	due() (time.Time, proto.Message)
}

// schedule arms the timer for the machine's due command.
func (e *entityActor) schedule() {
	m, ok := e.own.machine.(deferring)
	if !ok || e.timer != nil || !e.own.loaded {
		return
	}
	at, command := m.due()
	if command == nil {
		return
	}
	e.wakeAfter(max(at.Sub(e.term.system.clock()), 0), command)
}

// wakeAfter sends the entity wake after a pause.
func (e *entityActor) wakeAfter(pause time.Duration, command proto.Message) {
	self, root := e.self, e.term.system.root
	e.timer = time.AfterFunc(pause, func() { root.Send(self, wake{command}) })
}

// wake applies a due command and arms the timer for the next due command. If the state cannot be loaded, it tries again later.
func (e *entityActor) wake(w wake) {
	e.timer = nil
	if w.command != nil {
		e.own.handle(e.term.system.newRequest(e.kind, entity.Command{
			Kind: e.kind.Name, Identity: e.identity, Principal: entity.Platform(), Message: w.command,
		}))
	}
	if e.own.loaded || !e.own.isIdle() || e.own.ensureLoaded() == nil {
		e.schedule()
	} else {
		e.wakeAfter(reloadAfter, nil)
	}
}

func (e *entityActor) isBlank() bool { return e.own.isBlank() && e.owned.isEmpty() && e.isIdle() }

// isIdle reports whether the entity has no request, proposal, timer or stream. The entities that it owns may have.
func (e *entityActor) isIdle() bool {
	return e.own.isIdle() && e.timer == nil && !e.isAwaited()
}

// isAwaited reports whether streams follow the entity or queries wait for it.
func (e *entityActor) isAwaited() bool {
	return len(e.own.held) > 0 || len(e.readers) > 0 || e.hasFollowers()
}

// passivate stops the actor if it is idle: after the buffered changes are flushed and the owned entities have stopped.
func (e *entityActor) passivate(ctx actor.Context) {
	if !e.own.isIdle() || e.isAwaited() {
		ctx.Send(e.parent, stayActive{e.key()})
		return
	}
	e.passivating = true
	e.flush()
	e.owned.passivateAll()
	e.stopIfIdle(ctx)
}

// cancelPassivation makes the entity stay active, for a request that has arrived or an owned entity that is not idle.
func (e *entityActor) cancelPassivation(ctx actor.Context) {
	if e.passivating {
		e.passivating = false
		ctx.Send(e.parent, stayActive{e.key()})
	}
}

// stopIfIdle stops the passivating actor, or does nothing if it must wait for an outcome or an owned entity. If the entity is
// not idle any more, it cancels the passivation.
func (e *entityActor) stopIfIdle(ctx actor.Context) {
	if e.owned.hasActive() { // a waiting request has activated an owned entity again
		e.cancelPassivation(ctx)
		return
	}
	if !e.own.isIdle() || !e.owned.isEmpty() {
		return // the outcome, or the end of the last owned entity, calls stopIfIdle again
	}
	if !e.isIdle() {
		e.cancelPassivation(ctx)
		return
	}
	e.kind.metrics.passivations.Inc()
	ctx.Stop(ctx.Self())
}

// A buffering machine holds changes in memory for a while before it writes them.
type buffering interface {
	// flushCommand returns the command that writes the buffered changes; nil: there are none.
	flushCommand() proto.Message
}

// flush proposes the buffered changes. If the actor stops at once, no request waits for the outcome: the journal writes the
// proposal, or refuses it if another process owns the partition.
func (e *entityActor) flush() {
	m, ok := e.own.machine.(buffering)
	if !ok || !e.own.loaded {
		return
	}
	command := m.flushCommand()
	if command == nil {
		return
	}
	if e.timer != nil && e.timer.Stop() {
		e.timer = nil
	}
	e.own.handle(e.term.system.newRequest(e.kind, entity.Command{
		Kind: e.kind.Name, Identity: e.identity, Principal: entity.Platform(), Message: command,
	}))
}

// end stops the timer, the pipeline, the streams and the owned entities.
func (e *entityActor) end() {
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.own != nil {
		e.own.abandon()
		e.endStreams()
		e.endReaders(e.reasonOfEnd())
		e.owned.end()
	}
}

func isList(r *request) bool {
	_, ok := r.command.Message.(*wirev1.List)
	return ok
}

// list answers with a page of a list, from a view of the journal. The list of an owned entity was authorized by its owner.
func (e *entityActor) list(r *request) {
	access, err := requiredAccess(e.kind, r)
	var call entity.Call
	if err == nil {
		call, err = e.reader(r.command.Principal, access, r.role)
	}
	if err != nil {
		e.own.fail(r, err)
		return
	}
	asked := r.command.Message.(*wirev1.List)
	e.answerFromView(r, func(src source) (proto.Message, error) {
		return readListPage(src, e.kind.Lists[asked.GetName()], asked, call)
	})
}

// unknownKind returns the error for a command of a kind that the system does not run.
func unknownKind(name string) error {
	return entity.Errorf(entity.InvalidRequest, "there is no kind of entities %q", name)
}
