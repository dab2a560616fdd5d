package actors

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity"
)

// children are the active entities that one actor supervises: those without an owner under their shard, the others under
// their owner. A child is activated by the first command for it and leaves memory when it is idle. While it is leaving,
// what comes for it waits here, so that no command meets an actor that has stopped. All methods run in the supervising
// actor.
type children struct {
	term *term
	ctx  actor.Context
	// owner is the supervising entity's entry; nil under a shard.
	owner *entry
	byKey map[string]*child
	byPID map[string]*child
	// outgoing are the children with commands that flush sends, and collected counts these commands.
	outgoing  []*child
	collected int
}

// child is an active entity as its supervisor sees it.
type child struct {
	key, identity string
	pid           *actor.PID
	kind          *kind
	// entry stays the same as long as the child is active: those of the entities that it owns refer to it.
	entry *entry
	// leaving: the child was asked to leave memory, and what comes for it waits.
	leaving bool
	waiting []*request
	// outgoing are commands that the next flush sends.
	outgoing requests
}

// requests are commands for one entity, in order, as one message. Its receiver owns the slice.
type requests []*request

// maxCollected bounds the commands that a supervisor collects before it sends them.
const maxCollected = 64

type (
	// passivate asks an idle entity to leave memory.
	passivate struct{}
	// stay answers passivate when the entity is not idle after all.
	stay struct{ key string }
	// blank tells the supervisor of an entity to which nothing ever happened, so that asking for what does not exist
	// leaves nothing in memory.
	blank struct{ key string }
)

func newChildren(ctx actor.Context, t *term, owner *entry) *children {
	return &children{term: t, ctx: ctx, owner: owner, byKey: map[string]*child{}, byPID: map[string]*child{}}
}

// receive handles what concerns children, and reports whether the message was one of those.
func (c *children) receive(message any) bool {
	switch m := message.(type) {
	case stay:
		c.stay(m.key)
	case blank:
		if found := c.byKey[m.key]; found != nil && !found.leaving {
			c.dismiss(found)
		}
	case *actor.Terminated:
		c.ended(m.Who)
	default:
		return false
	}
	return true
}

// deliver collects a command for its entity, which is activated if it is not in memory. The supervisor calls flush
// before it waits for its next message.
func (c *children) deliver(k *kind, r *request) {
	to := c.byKey[r.key]
	if to == nil {
		to = c.activate(k, r.command.Identity)
	}
	c.deliverTo(to, r)
}

func (c *children) deliverTo(to *child, r *request) {
	if to.leaving {
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

// flush sends the commands that were delivered. A supervisor with more messages to receive at once may put it off until
// maxCollected commands are collected, which saves a message for each of them.
func (c *children) flush() {
	for _, to := range c.outgoing {
		c.send(to)
	}
	clear(c.outgoing)
	c.outgoing, c.collected = c.outgoing[:0], 0
}

// send sends a child what is collected for it.
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

func (c *children) activate(k *kind, identity string) *child {
	id := key(k.Name, identity)
	if found := c.byKey[id]; found != nil {
		return found
	}
	found := &entry{owner: c.owner}
	found.touch(c.term.node.clock())
	m := k.metrics
	found.pid = spawn(c.ctx, c.term.node, childName(k.Name, identity), m, func(box *mailbox) actor.Actor {
		return &entityActor{term: c.term, kind: k, identity: identity, entry: found, mailbox: box, parent: c.ctx.Self()}
	})
	one := &child{key: id, identity: identity, pid: found.pid, kind: k, entry: found}
	c.byKey[id], c.byPID[one.pid.Id] = one, one
	c.term.directory.Store(id, found)
	m.activations.Inc()
	m.active.Inc()
	return one
}

// spawn starts an actor below another one.
func spawn(ctx actor.Context, node *System, name string, m *kindMetrics, produce func(*mailbox) actor.Actor) *actor.PID {
	box := newMailbox(m)
	props := actor.PropsFromProducer(func() actor.Actor { return produce(box) },
		actor.WithMailbox(func() actor.Mailbox { return box }), actor.WithDispatcher(node.dispatcher),
		actor.WithSupervisor(node.supervision))
	pid, err := ctx.SpawnNamed(props, name)
	if err != nil {
		panic(fmt.Errorf("actor %s: %w", name, err)) // a name is free again once Terminated has arrived
	}
	return pid
}

// sweep asks the children that nobody has used since a time to leave, and the others to look through their own children.
func (c *children) sweep(unusedSince time.Time) {
	for _, one := range c.byKey {
		if one.leaving {
			continue
		}
		if e := c.term.find(one.key); e != nil && !e.lastUsed().After(unusedSince) {
			c.dismiss(one)
		} else if len(one.kind.owned) > 0 {
			c.ctx.Send(one.pid, sweep{})
		}
	}
}

// dismissAll asks all children to leave.
func (c *children) dismissAll() {
	for _, one := range c.byKey {
		if !one.leaving {
			c.dismiss(one)
		}
	}
}

func (c *children) dismiss(one *child) {
	c.send(one) // before it is asked to leave
	one.leaving = true
	c.term.directory.Delete(one.key)
	c.ctx.Send(one.pid, passivate{})
}

// stay takes a child back that was not idle.
func (c *children) stay(id string) {
	one := c.byKey[id]
	if one == nil || !one.leaving {
		return
	}
	one.leaving = false
	one.entry.touch(c.term.node.clock())
	c.term.directory.Store(id, one.entry)
	for _, r := range one.waiting {
		c.ctx.Send(one.pid, r)
	}
	one.waiting = nil
}

// ended forgets a child whose actor is gone, and activates it anew for the commands that wait.
func (c *children) ended(who *actor.PID) {
	one := c.byPID[who.Id]
	if one == nil {
		return
	}
	c.forget(one)
	for _, r := range one.unsent() {
		c.deliverTo(c.activate(one.kind, one.identity), r)
	}
}

func (c *children) forget(one *child) {
	delete(c.byPID, one.pid.Id)
	delete(c.byKey, one.key)
	c.term.directory.Delete(one.key)
	one.kind.metrics.active.Dec()
}

// end forgets all children when their supervisor ends, which stops them, and answers what waits for them.
func (c *children) end() {
	for _, one := range c.byKey {
		c.forget(one)
		for _, r := range one.unsent() {
			r.answer(nil, ErrRetry)
		}
	}
}

// unsent takes the commands that the child's actor has not got.
func (one *child) unsent() []*request {
	all := append(one.outgoing, one.waiting...)
	one.outgoing, one.waiting = nil, nil
	return all
}

func (c *children) none() bool { return len(c.byKey) == 0 }

// anyStays reports whether a child is active that was not asked to leave.
func (c *children) anyStays() bool {
	for _, one := range c.byKey {
		if !one.leaving {
			return true
		}
	}
	return false
}

// entry is where commands for an active entity go. It belongs to one term's directory.
type entry struct {
	pid *actor.PID
	// owner is the entry of the entity that authorizes each command for this one; nil: it has no owner.
	owner    *entry
	used     atomic.Int64
	inFlight atomic.Int64
}

// touch notes that the entity is in use. Times within a millisecond count as one, since many callers share the entry.
func (e *entry) touch(now time.Time) {
	at := now.UnixNano()
	if since := at - e.used.Load(); since < 0 || since >= int64(time.Millisecond) {
		e.used.Store(at)
	}
}

func (e *entry) lastUsed() time.Time { return time.Unix(0, e.used.Load()) }

func key(kind, identity string) string { return kind + "/" + identity }

// childName is an actor's name below its supervisor. A slash separates the names in an actor's id, so that identities
// have none in it; see kindOf.
func childName(kind, identity string) string {
	return kind + "/" + strings.ReplaceAll(identity, "/", "%2F")
}

// ownerOf is the identity of the entity that owns the one with an identity; see entity.Rules.Owner.
func ownerOf(identity string) string {
	owner, _, _ := strings.Cut(identity, "/")
	return owner
}

// kind is a kind of entity that the system runs.
type kind struct {
	entity.Kind
	metrics *kindMetrics
	// root is the kind whose actors the shards supervise: the kind itself, or its owner.
	root *kind
	// owned are the kinds that belong to this one.
	owned []*kind
	// inFlight counts the commands that are admitted and not answered.
	inFlight atomic.Int64
	// machine makes the rules' machine of one entity.
	machine func(identity string) machine
}
