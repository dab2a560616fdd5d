package actors

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

type (
	// proceed has a connection send what is new.
	proceed struct{}
	// finish ends a connection.
	finish struct{ err error }
)

// connection is the actor of one open stream. It holds the seq that it sends next, takes contiguous frames from the
// workspace's ring, or makes them of the journal's rows where the ring no longer has them, and sends until it has caught
// up. It has no queue: a slow reader costs nobody anything.
type connection struct {
	node      *System
	pid       *actor.PID
	principal *wirev1.Principal
	// access is what the principal needs of the workspace, as long as the stream lasts.
	access entity.Access
	reads  bool
	// send and trySend are those of the subscription.
	send    func([]byte) error
	trySend func([]byte) bool

	hub       atomic.Pointer[hub]
	ring      *ring
	partition persistence.Partition
	stream    persistence.Stream
	next      uint64
	// armed is set while the connection has nothing to send and waits to be woken. What clears it, a round of the hub or the
	// actor, sends until it is set again: next and unsent belong to it.
	armed atomic.Bool
	// unsent is what a round has sent in part, for the actor to send.
	unsent []byte
	// forwarding is held while a round sends, so that nothing is sent after the actor has stopped.
	forwarding sync.Mutex
	ended      atomic.Bool
	done       chan struct{}
	err        error
}

// Follow sends the rows of a subscription until ctx ends (nil), access ends or Send fails. next is the seq that it would
// have sent next. With ErrRetry the workspace's actor has ended, and a new subscription after next-1 goes on.
type Follow func(ctx context.Context) (next uint64, err error)

// Subscribe opens a stream of a workspace's rows. It is registered when Subscribe returns, so that no row falls between
// history and live. Where the Follow is not called, cancelling the ctx of Subscribe frees it.
// Errors: not_found, forbidden, unavailable; invalid_cursor for a position beyond the last row; ErrRetry.
func (s *System) Subscribe(ctx context.Context, p persistence.Partition, sub activity.Subscription) (Follow, error) {
	c := &connection{
		node: s, principal: sub.Principal, access: entity.Requires(activity.Reading), reads: sub.Reads, send: sub.Send,
		trySend: sub.TrySend, next: sub.After + 1, done: make(chan struct{}), partition: p,
		stream: persistence.Stream(key(entity.KindActivity, sub.WorkspaceID)),
	}
	r := s.newRequest(s.kinds[entity.KindActivity], entity.Command{
		Kind: entity.KindActivity, Identity: sub.WorkspaceID, Principal: sub.Principal,
	})
	r.connection = c
	if err := c.spawn(); err != nil {
		return nil, err
	}
	if _, err := s.deliver(ctx, p, r); err != nil {
		c.stop(nil)
		return nil, err
	}
	release := context.AfterFunc(ctx, func() { c.stop(nil) })
	return func(ctx context.Context) (uint64, error) {
		defer release()
		err := c.follow(ctx)
		return c.next, err
	}, nil
}

// stopFailed is one for all connections: protoactor keeps every strategy that it is given.
var stopFailed = actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })

func (c *connection) spawn() error {
	props := actor.PropsFromProducer(func() actor.Actor { return c }, actor.WithGuardian(stopFailed))
	pid, err := c.node.root.SpawnNamed(props, "stream/"+strconv.FormatUint(c.node.streams.Add(1), 10))
	c.pid = pid
	return err
}

func (c *connection) follow(ctx context.Context) error {
	c.node.metrics.connections.Inc()
	defer c.node.metrics.connections.Dec()
	c.node.root.Send(c.pid, proceed{})
	select {
	case <-c.done:
	case <-ctx.Done():
		c.stop(nil)
		<-c.done
	}
	return c.err
}

// stop ends the connection from any goroutine; one that is sending ends when that returns.
func (c *connection) stop(err error) {
	c.ended.Store(true)
	c.node.root.Send(c.pid, finish{err})
}

func (c *connection) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case proceed:
		if err := c.pump(); err != nil {
			c.err = err
			ctx.Stop(ctx.Self())
		}
	case finish:
		c.err = m.err
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		c.ended.Store(true)
		if h := c.hub.Load(); h != nil {
			h.remove(c)
		}
		c.forwarding.Lock() // waits for a round that sends; later ones see that the connection has ended
		c.forwarding.Unlock()
		if err := c.sendUnsent(); err != nil && c.err == nil {
			c.err = err
		}
		close(c.done)
	}
}

// wake sends what is new to a connection that has caught up: at once if the client takes it without waiting, and else
// through the connection's actor, which waits for the client and reads the journal.
func (c *connection) wake(sent *roundCounts) {
	if !c.armed.CompareAndSwap(true, false) {
		return
	}
	sent.wakes++
	if c.trySend == nil || !c.forward(sent) {
		c.node.root.Send(c.pid, proceed{})
	}
}

// forward sends rows of the ring without waiting, and reports whether it has sent all that were durable when it began. Rows
// that became durable since are for the next round.
func (c *connection) forward(sent *roundCounts) bool {
	c.forwarding.Lock()
	defer c.forwarding.Unlock()
	head := c.hub.Load().head.Load()
	for !c.ended.Load() && c.next <= head {
		frames, next, ok := c.ring.read(c.next)
		if !ok {
			return false
		}
		c.next = next
		if len(frames) == 0 {
			continue
		}
		sent.reads++
		sent.bytes += len(frames)
		if !c.trySend(frames) {
			c.unsent = frames
			return false
		}
	}
	c.armed.Store(true)
	return true
}

// pump sends until the stream has caught up.
func (c *connection) pump() error {
	if err := c.sendUnsent(); err != nil {
		return err
	}
	h := c.hub.Load()
	for !c.ended.Load() {
		frames, next, ok := c.ring.read(c.next)
		if !ok {
			caughtUp, err := c.replay()
			if err != nil {
				return err
			}
			if !caughtUp {
				continue
			}
		} else if len(frames) > 0 {
			c.node.metrics.ringHits.Inc()
			if err := c.transmit(frames); err != nil {
				return err
			}
		}
		c.next = max(c.next, next)
		if h.head.Load() >= c.next {
			continue
		}
		next = c.next // once armed, a round may change it
		c.armed.Store(true)
		if h.head.Load() < next || !c.armed.CompareAndSwap(true, false) {
			return nil // either nothing is new, or a round has seen that something is
		}
	}
	return nil
}

// sendUnsent sends what a round has left of its frames.
func (c *connection) sendUnsent() error {
	unsent := c.unsent
	if c.unsent = nil; unsent == nil {
		return nil
	}
	return c.send(unsent)
}

func (c *connection) transmit(frames []byte) error {
	c.node.metrics.ringBytes.Add(float64(len(frames)))
	return c.send(frames)
}

var frameBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, sendBytes+4096)
	return &b
}}

// replay sends rows from the journal, one buffer at most, and tells whether it has reached the end.
func (c *connection) replay() (caughtUp bool, err error) {
	c.node.metrics.ringFallbacks.Inc()
	buffer := frameBuffers.Get().(*[]byte)
	defer frameBuffers.Put(buffer)
	frames, caughtUp, err := c.frames((*buffer)[:0])
	*buffer = frames[:0]
	if err != nil {
		c.node.log.Error("a stream cannot be read", slog.String("stream", string(c.stream)), slog.Any("error", err))
		return false, unavailable("the journal cannot be read for now")
	}
	if len(frames) == 0 {
		return caughtUp, nil
	}
	return caughtUp, c.transmit(frames)
}

// frames reads rows into b and moves next behind them. The iterator lives no longer than that.
func (c *connection) frames(b []byte) (_ []byte, caughtUp bool, err error) {
	v, err := c.node.journal.View()
	if err != nil {
		return b, false, err
	}
	defer v.Close()
	scanned := 0
	for event, err := range v.Payloads(c.partition, c.stream, c.next, persistence.Ascending) {
		if err != nil {
			return b, false, err
		}
		if len(b) >= sendBytes || scanned == scanBudget {
			return b, false, nil
		}
		scanned++
		if row := activity.Stored(event.Bytes); c.reads || !activity.Read(row.Kind()) {
			b = activity.AppendFrame(b, c.hub.Load().cursor, event.Version, row)
		}
		c.next = event.Version + 1
	}
	return b, true, nil
}

// subscribe registers a connection, which the owner has authorized, with the hub.
func (e *entityActor) subscribe(r *request) {
	m, ok := e.own.machine.(*activityMachine)
	if !ok {
		r.answer(nil, entity.Errorf(entity.InvalidRequest, "a %s cannot be followed", e.kind.Name))
		return
	}
	if err := e.own.learn(); err != nil {
		e.own.refuse(r, err)
		return
	}
	if r.connection.next > m.state.Seq+1 { // a cursor of a history that was lost since
		e.own.refuse(r, entity.Errorf(entity.InvalidCursor, ""))
		return
	}
	m.hub.add(r.connection)
	r.answer(nil, nil)
}

// listened reports whether streams follow the entity.
func (e *entityActor) listened() bool {
	m, ok := e.own.machine.(*activityMachine)
	return ok && m.hub.listened()
}

// disconnect ends the streams that follow the entity when its actor ends. They go on where the entity runs next, unless
// this process is ending: then their clients come back.
func (e *entityActor) disconnect() {
	m, ok := e.own.machine.(*activityMachine)
	if !ok {
		return
	}
	reason := ErrRetry
	if e.term.node.running.Err() != nil {
		reason = nil
	}
	m.hub.each(func(c *connection) { c.stop(reason) })
}
