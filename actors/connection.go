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
	// proceed makes a connection send the rows that it has not sent.
	proceed struct{}
	// finish ends a connection.
	finish struct{ err error }
)

// A connection is the actor of one open stream. It sends contiguous frames from the workspace's ring or, if the ring no longer
// has the next row, makes frames of the rows in the journal, until it has caught up. It has no queue, so that a slow client
// needs no memory here. See "The way of an activity stream" in the package comment.
type connection struct {
	system    *System
	pid       *actor.PID
	principal *wirev1.Principal
	// access is the access that the principal needs while the stream is open.
	access entity.Access
	reads  bool
	// send and trySend are the functions of the subscription.
	send    func([]byte) error
	trySend func([]byte) bool

	hub       atomic.Pointer[hub]
	ring      *ring
	partition persistence.Partition
	stream    persistence.Stream
	// next is the seq of the next row to send.
	next uint64
	// armed is set while the connection has caught up and waits for new rows. Either a round of the hub or the actor clears armed, and
	// then sends until it sets armed again: next and unsent belong to the one of the two that has cleared armed.
	armed atomic.Bool
	// unsent has frames that a round has sent in part. The actor sends the rest.
	unsent []byte
	// forwarding is held while a round sends, so that no frames are sent after the actor has stopped.
	forwarding sync.Mutex
	ended      atomic.Bool
	// done is closed when the actor has stopped; err is the reason.
	done chan struct{}
	err  error
}

// A Follow sends the rows of a subscription. It returns nil when ctx ends, the refusal when the principal loses access, the
// error of Send, or ErrRetry when the workspace's actor has ended; a new subscription after next-1 then continues the stream.
// next is the seq of the first row that was not sent.
type Follow func(ctx context.Context) (next uint64, err error)

// Subscribe opens a stream of a workspace's rows after a position. No row after the position is lost, even if it is recorded
// before the caller calls Follow. A caller that does not call Follow cancels ctx. Subscribe returns not_found, forbidden,
// unavailable, invalid_cursor for a position after the last row, ErrRetry, and ctx's error.
func (s *System) Subscribe(ctx context.Context, p persistence.Partition, sub activity.Subscription) (Follow, error) {
	c := &connection{
		system: s, principal: sub.Principal, access: entity.Requires(activity.Reading), reads: sub.Reads, send: sub.Send,
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

// stopOnFailure is shared by all connections, because protoactor stores every strategy that it is given.
var stopOnFailure = actor.NewOneForOneStrategy(0, 0, func(any) actor.Directive { return actor.StopDirective })

// spawn starts the connection's actor, which has no supervisor among the actors.
func (c *connection) spawn() error {
	props := actor.PropsFromProducer(func() actor.Actor { return c }, actor.WithGuardian(stopOnFailure))
	pid, err := c.system.root.SpawnNamed(props, "stream/"+strconv.FormatUint(c.system.streams.Add(1), 10))
	c.pid = pid
	return err
}

// follow starts sending and waits until the actor has stopped.
func (c *connection) follow(ctx context.Context) error {
	c.system.metrics.connections.Inc()
	defer c.system.metrics.connections.Dec()
	c.system.root.Send(c.pid, proceed{})
	select {
	case <-c.done:
	case <-ctx.Done():
		c.stop(nil)
		<-c.done
	}
	return c.err
}

// stop stops the connection, from any goroutine. A send in progress is not interrupted.
func (c *connection) stop(err error) {
	c.ended.Store(true)
	c.system.root.Send(c.pid, finish{err})
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
		c.forwarding.Lock() // waits for a round that sends; a later round sees that the connection has ended
		c.forwarding.Unlock()
		if err := c.sendUnsent(); err != nil && c.err == nil {
			c.err = err
		}
		close(c.done)
	}
}

// wake sends the new rows to a connection that has caught up: at once if the client takes them without waiting, and otherwise
// through the connection's actor, which waits for the client and reads the journal.
func (c *connection) wake(sent *roundCounts) {
	if !c.armed.CompareAndSwap(true, false) {
		return
	}
	sent.wakes++
	if c.trySend == nil || !c.forward(sent) {
		c.system.root.Send(c.pid, proceed{})
	}
}

// forward sends rows of the ring without waiting, and reports whether it has sent all rows that were durable when it began. The next round
// sends the rows that became durable since.
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

// pump sends until the stream has caught up and is armed: step 4 of "The way of an activity stream". A round may begin as soon
// as the connection is armed, so pump looks for new rows once more after that.
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
			c.system.metrics.ringHits.Inc()
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
			return nil // there are no new rows, or a round has seen the new rows
		}
	}
	return nil
}

// sendUnsent sends the rest of the frames that a round has sent in part.
func (c *connection) sendUnsent() error {
	unsent := c.unsent
	if c.unsent = nil; unsent == nil {
		return nil
	}
	return c.send(unsent)
}

func (c *connection) transmit(frames []byte) error {
	c.system.metrics.ringBytes.Add(float64(len(frames)))
	return c.send(frames)
}

var frameBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, sendBytes+4096)
	return &b
}}

// replay sends rows from the journal, at most one buffer, and reports whether it has reached the end.
func (c *connection) replay() (caughtUp bool, err error) {
	c.system.metrics.ringFallbacks.Inc()
	buffer := frameBuffers.Get().(*[]byte)
	defer frameBuffers.Put(buffer)
	frames, caughtUp, err := c.frames((*buffer)[:0])
	*buffer = frames[:0]
	if err != nil {
		c.system.log.Error("cannot read the rows of an activity stream", slog.String("stream", string(c.stream)), slog.Any("error", err))
		return false, unavailable("the journal cannot be read at the moment; try again")
	}
	if len(frames) == 0 {
		return caughtUp, nil
	}
	return caughtUp, c.transmit(frames)
}

// frames appends the frames of rows to b and advances next. It closes its view before it returns, so that a slow client does not hold a
// view open.
func (c *connection) frames(b []byte) (_ []byte, caughtUp bool, err error) {
	v, err := c.system.journal.View()
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

func (c *connection) authorization() authorization {
	return authorization{principal: c.principal, access: c.access}
}

func (c *connection) hasEnded() bool { return c.ended.Load() }

func (c *connection) revoke(err error) { c.stop(err) }

// subscribe adds a connection, which the owner has authorized, to the hub: step 2 of "The way of an activity stream".
func (e *entityActor) subscribe(r *request) {
	m, ok := e.own.machine.(*activityMachine)
	if !ok {
		r.answer(nil, entity.Errorf(entity.InvalidRequest, "kind %s has no streams", e.kind.Name))
		return
	}
	if err := e.own.ensureLoaded(); err != nil {
		e.own.fail(r, err)
		return
	}
	if r.connection.next > m.state.Seq+1 { // a cursor from rows that were lost since, for example by a restore
		e.own.fail(r, entity.Errorf(entity.InvalidCursor, ""))
		return
	}
	m.hub.add(r.connection)
	r.answer(nil, nil)
}

// hasFollowers reports whether streams follow the entity.
func (e *entityActor) hasFollowers() bool {
	m, ok := e.own.machine.(*activityMachine)
	return ok && m.hub.hasFollowers()
}

// endStreams stops the streams that follow the entity when its actor ends. The router subscribes them again, unless this
// process is stopping: then the clients reconnect.
func (e *entityActor) endStreams() {
	m, ok := e.own.machine.(*activityMachine)
	if !ok {
		return
	}
	reason := e.reasonOfEnd()
	m.hub.each(func(c *connection) { c.stop(reason) })
}

// reasonOfEnd returns the error of the streams that end with the entity's actor.
func (e *entityActor) reasonOfEnd() error {
	if e.term.system.running.Err() != nil {
		return nil
	}
	return ErrRetry
}
