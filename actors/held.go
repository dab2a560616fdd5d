package actors

import (
	"errors"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity"
)

// If Kind.Waits reports true for a query, the actor of its entity holds the query: the query does not count against the limits of
// requests in flight, and the actor decides other commands meanwhile. See "The way of a waiting query" in the package comment.

// maxHeld limits the queries that one entity holds. maxHeldOfKind limits the queries that all entities of a kind hold together.
const (
	maxHeld       = 4096
	maxHeldOfKind = 65536
)

// errGivenUp answers a held query after its sender has stopped waiting. No sender receives the error.
var errGivenUp = errors.New("the sender has given up")

// drop makes an entity answer a held query with an error, because its sender does not wait any more or has lost its access.
type drop struct {
	request *request
	err     error
}

// giveUp makes the entity that holds a request drop it. A request that is not held is decided nevertheless.
func (r *request) giveUp() {
	r.givenUp.Store(true)
	// giveUp stores givenUp before it reads holder, and hold stores holder before it reads givenUp: at least one of them sees the other's value.
	if holder := r.holder.Load(); holder != nil {
		holder.askToDrop(r, errGivenUp)
	}
}

// askToDrop sends the entity's actor drop. It is safe for concurrent use.
func (p *pipeline) askToDrop(r *request, err error) { p.term.system.root.Send(p.self, drop{r, err}) }

// mustWait reports whether a request is a query that the state does not answer yet. It is false for a query that the entity
// does not authorize, so that apply refuses it.
func (p *pipeline) mustWait(call entity.Call, r *request) bool {
	m, ok := p.machine.(*ruled)
	if !ok || p.kind.Waits == nil || r.command.Source != nil {
		return false
	}
	if p.kind.Owner == "" && !p.isAuthorized(call, r) {
		return false
	}
	return p.kind.Waits(call, m.state, r.command.Message)
}

func (p *pipeline) isAuthorized(call entity.Call, r *request) bool {
	access, err := requiredAccess(p.kind, r)
	return err == nil && access.Authorize(call.Principal, func(need entity.Need) error { return p.machine.check(call, need) }) == nil
}

// hold holds a query until decideHeld applies it.
func (p *pipeline) hold(r *request) {
	if len(p.held) >= maxHeld || p.kind.held.Load() >= maxHeldOfKind {
		r.metrics.refused.Inc()
		r.answer(nil, unavailable("too many requests wait for this; try again"))
		return
	}
	for _, n := range r.admitted {
		if n != nil {
			n.Add(-1)
		}
	}
	p.kind.held.Add(1)
	r.admitted = [2]*atomic.Int64{&p.kind.held}
	r.wasHeld = true
	r.metrics.inFlight.Dec()
	r.metrics.held.Inc()
	r.holder.Store(p)
	if r.givenUp.Load() {
		r.answer(nil, errGivenUp)
		return
	}
	if p.held == nil {
		p.held = map[*request]struct{}{}
	}
	p.held[r] = struct{}{}
	if p.kind.Owner != "" && !entity.IsPlatform(r.command.Principal) {
		p.term.system.root.Send(p.parent, watch{r})
	}
}

// decideHeld applies the held queries that the state answers now. The version of the state was not decided for them before.
func (e *entityActor) decideHeld() {
	p := e.own
	if len(p.held) == 0 || p.decided == p.version {
		return
	}
	p.decided = p.version
	for r := range p.held {
		e.decideAgain(r)
	}
}

func (e *entityActor) decideAgain(r *request) {
	defer e.answerPanic(r)
	call := e.own.callOf(r)
	if e.own.mustWait(call, r) {
		return
	}
	delete(e.own.held, r)
	e.own.apply(call, r)
}

// drop answers a held query with an error, unless it has been decided.
func (e *entityActor) drop(ctx actor.Context, m drop) {
	if _, ok := e.own.held[m.request]; !ok {
		return
	}
	delete(e.own.held, m.request)
	m.request.answer(nil, m.err)
	if e.isBlank() {
		ctx.Send(e.parent, blank{e.key()})
	}
}

// endHeld answers all held queries with ErrRetry, so that the router sends them again.
func (p *pipeline) endHeld() {
	for r := range p.held {
		r.answer(nil, ErrRetry)
	}
	p.held = nil
}

func (r *request) authorization() authorization {
	return authorization{principal: r.command.Principal, access: r.access, role: r.role, byRole: true}
}

func (r *request) hasEnded() bool { return r.answered.Load() }

// revoke makes the sender of a held query send it again, so that the owner authorizes it as it is now.
func (r *request) revoke(error) { r.holder.Load().askToDrop(r, ErrRetry) }
