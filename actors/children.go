package actors

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity"
)

// children are the active entities that one actor supervises. A shard supervises the entities without an owner, and an entity supervises the
// entities that it owns. The first request for an entity activates the entity, and an idle entity is passivated. While an entity passivates,
// its requests wait here, so that no request is sent to a stopped actor. All methods run in the supervising actor.
type children struct {
	term *term
	ctx  actor.Context
	// owner is the entry of the supervising entity; nil under a shard.
	owner *entry
	byKey map[string]*child
	byPID map[string]*child
	// outgoing are the children with requests that flush sends; collected is the number of these requests.
	outgoing  []*child
	collected int
}

// A child is an active entity from the view of its supervisor.
type child struct {
	key, identity string
	pid           *actor.PID
	kind          *kind
	// entry stays the same while the child is active: the entries of the entities that it owns refer to it.
	entry *entry
	// passivating is set after the child was asked to passivate; requests for it then wait.
	passivating bool
	waiting     []*request
	// outgoing are the requests that the next flush sends.
	outgoing requests
}

// requests are requests for one entity, in order, in one message. The receiver owns the slice.
type requests []*request

// maxCollected limits the requests that a supervisor collects before it sends them.
const maxCollected = 64

type (
	// passivate asks an entity to leave memory if it is idle.
	passivate struct{}
	// stayActive answers passivate: the entity is not idle.
	stayActive struct{ key string }
	// blank notifies the supervisor of an entity that nothing was ever written to, so that queries for entities that do not
	// exist leave nothing in memory.
	blank struct{ key string }
)

func newChildren(ctx actor.Context, t *term, owner *entry) *children {
	return &children{term: t, ctx: ctx, owner: owner, byKey: map[string]*child{}, byPID: map[string]*child{}}
}

// receive handles a message about children, and reports whether the message is one.
func (c *children) receive(message any) bool {
	switch m := message.(type) {
	case stayActive:
		c.readmit(m.key)
	case blank:
		if found := c.byKey[m.key]; found != nil && !found.passivating {
			c.askToPassivate(found)
		}
	case *actor.Terminated:
		c.handleTerminated(m.Who)
	default:
		return false
	}
	return true
}

// deliver collects a request for its entity, and activates the entity if necessary. The supervisor calls flush before it waits
// for its next message.
func (c *children) deliver(k *kind, r *request) {
	to := c.byKey[r.key]
	if to == nil {
		to = c.activate(k, r.command.Identity)
	}
	c.deliverTo(to, r)
}

// deliverTo collects a request for a child, or lets it wait if the child passivates.
func (c *children) deliverTo(to *child, r *request) {
	if to.passivating {
		to.waiting = append(to.waiting, r)
		return
	}
	if len(to.outgoing) == 0 {
		c.outgoing = append(c.outgoing, to)
		if to.outgoing == nil {
			to.outgoing = make(requests, 0, maxCollected/4)
		}
	}
	to.outgoing = append(to.outgoing, r)
	c.collected++
}

// flush sends the collected requests. A supervisor with more messages in its mailbox may call it later, until maxCollected
// requests are collected: all requests for one child are one message.
func (c *children) flush() {
	for _, to := range c.outgoing {
		c.send(to)
	}
	clear(c.outgoing)
	c.outgoing, c.collected = c.outgoing[:0], 0
}

// send sends the requests that are collected for a child.
func (c *children) send(to *child) {
	switch len(to.outgoing) {
	case 0:
	case 1:
		c.ctx.Send(to.pid, to.outgoing[0])
		to.outgoing[0] = nil
		to.outgoing = to.outgoing[:0]
	default:
		c.ctx.Send(to.pid, to.outgoing)
		to.outgoing = nil
	}
}

// activate returns the child for an entity, and starts its actor if it is not active.
func (c *children) activate(k *kind, identity string) *child {
	id := key(k.Name, identity)
	if found := c.byKey[id]; found != nil {
		return found
	}
	found := &entry{owner: c.owner}
	found.touch(c.term.system.clock())
	m := k.metrics
	found.pid = spawn(c.ctx, c.term.system, childName(k.Name, identity), m, func(box *mailbox) actor.Actor {
		return &entityActor{term: c.term, kind: k, identity: identity, entry: found, mailbox: box, parent: c.ctx.Self()}
	})
	one := &child{key: id, identity: identity, pid: found.pid, kind: k, entry: found}
	c.byKey[id], c.byPID[one.pid.Id] = one, one
	c.term.directory.Store(id, found)
	m.activations.Inc()
	m.active.Inc()
	return one
}

// spawn starts an actor as a child of the actor of ctx. It panics if the name is in use. A name is free again when the Terminated message of the
// previous actor with this name has arrived.
func spawn(ctx actor.Context, system *System, name string, m *kindMetrics, produce func(*mailbox) actor.Actor) *actor.PID {
	box := newMailbox(m)
	props := actor.PropsFromProducer(func() actor.Actor { return produce(box) },
		actor.WithMailbox(func() actor.Mailbox { return box }), actor.WithDispatcher(system.dispatcher),
		actor.WithSupervisor(system.supervision))
	pid, err := ctx.SpawnNamed(props, name)
	if err != nil {
		panic(fmt.Errorf("actor %s: %w", name, err))
	}
	return pid
}

// sweep passivates the children that were last used at or before a time, and lets the others sweep their own children.
func (c *children) sweep(unusedSince time.Time) {
	for _, one := range c.byKey {
		if one.passivating {
			continue
		}
		if e := c.term.find(one.key); e != nil && !e.lastUsed().After(unusedSince) {
			c.askToPassivate(one)
		} else if len(one.kind.owned) > 0 {
			c.ctx.Send(one.pid, sweep{})
		}
	}
}

// passivateAll asks all children to passivate.
func (c *children) passivateAll() {
	for _, one := range c.byKey {
		if !one.passivating {
			c.askToPassivate(one)
		}
	}
}

// askToPassivate sends a child its collected requests, removes it from the directory and asks it to passivate. The child
// answers with stayActive, or stops.
func (c *children) askToPassivate(one *child) {
	c.send(one) // these requests come before passivate
	one.passivating = true
	c.term.directory.Delete(one.key)
	c.ctx.Send(one.pid, passivate{})
}

// readmit takes back a child that did not passivate, and sends it the requests that waited.
func (c *children) readmit(id string) {
	one := c.byKey[id]
	if one == nil || !one.passivating {
		return
	}
	one.passivating = false
	one.entry.touch(c.term.system.clock())
	c.term.directory.Store(id, one.entry)
	for _, r := range one.waiting {
		c.ctx.Send(one.pid, r)
	}
	one.waiting = nil
}

// handleTerminated forgets a child that has stopped, and activates it again if requests wait for it.
func (c *children) handleTerminated(who *actor.PID) {
	one := c.byPID[who.Id]
	if one == nil {
		return
	}
	c.forget(one)
	for _, r := range one.unsent() {
		c.deliverTo(c.activate(one.kind, one.identity), r)
	}
}

// forget removes a child from the tables and the directory.
func (c *children) forget(one *child) {
	delete(c.byPID, one.pid.Id)
	delete(c.byKey, one.key)
	c.term.directory.Delete(one.key)
	one.kind.metrics.active.Dec()
}

// end forgets all children when their supervisor ends, which stops them, and answers the waiting requests with ErrRetry.
func (c *children) end() {
	for _, one := range c.byKey {
		c.forget(one)
		for _, r := range one.unsent() {
			r.answer(nil, ErrRetry)
		}
	}
}

// unsent removes and returns the requests that were not sent to the child.
func (one *child) unsent() []*request {
	all := append(one.outgoing, one.waiting...)
	one.outgoing, one.waiting = nil, nil
	return all
}

func (c *children) isEmpty() bool { return len(c.byKey) == 0 }

// hasActive reports whether a child was not asked to passivate.
func (c *children) hasActive() bool {
	for _, one := range c.byKey {
		if !one.passivating {
			return true
		}
	}
	return false
}

// An entry is the address of an active entity in the directory of a term. Its fields may be used concurrently.
type entry struct {
	pid *actor.PID
	// owner is the entry of the entity that authorizes each command for this entity; nil: this entity has no owner.
	owner    *entry
	used     atomic.Int64
	inFlight atomic.Int64
}

// touch records that the entity is used. Within a millisecond only the first call writes, because many callers share the entry.
func (e *entry) touch(now time.Time) {
	at := now.UnixNano()
	if since := at - e.used.Load(); since < 0 || since >= int64(time.Millisecond) {
		e.used.Store(at)
	}
}

func (e *entry) lastUsed() time.Time { return time.Unix(0, e.used.Load()) }

// key returns the key of an entity, which is also the name of its stream.
func key(kind, identity string) string { return kind + "/" + identity }

// childName returns the name of an entity's actor below its supervisor. Slashes of the identity are escaped, because a slash
// separates the names in an actor's id; see kindOf.
func childName(kind, identity string) string {
	return kind + "/" + strings.ReplaceAll(identity, "/", "%2F")
}

// ownerOf returns the identity of the entity that owns an entity; see entity.Rules.Owner.
func ownerOf(identity string) string {
	owner, _, _ := strings.Cut(identity, "/")
	return owner
}

// A kind is a kind of entities that the system runs.
type kind struct {
	entity.Kind
	metrics *kindMetrics
	// root is the kind that a shard supervises: the kind itself, or its owner's.
	root *kind
	// owned are the kinds of entities that this kind owns.
	owned []*kind
	// inFlight counts the requests that are admitted and not answered.
	inFlight atomic.Int64
	// held counts the queries that wait for a change of their entity.
	held atomic.Int64
	// machine returns the machine of one entity, which loads its state later.
	machine func(identity string) machine
}
