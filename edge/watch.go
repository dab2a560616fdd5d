package edge

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
)

const (
	// roundTime is the time between two rounds of the watcher; Forget causes an additional round. maxAge is the maximum age of the cached
	// answers that a round uses. The sum of both is less than the second in which a request must end after it has lost its access.
	roundTime = 400 * time.Millisecond
	maxAge    = 300 * time.Millisecond
	// checkers is the maximum number of concurrent checks. A check that lasts longer than blockedTime waits for an entity, and is no longer
	// counted.
	checkers    = 16
	blockedTime = 50 * time.Millisecond
	shards      = 16
	// startMargin is added to the time that an app has to begin a response before the watcher ends the request (idleTime).
	startMargin = time.Minute
)

var (
	errEnded = errors.New("the server shuts down")
	errIdle  = errors.New("the connection was idle for too long")
)

// registry has the requests that are passed to apps. The watcher goes through them in rounds, so that a request needs no goroutine and no
// timer of its own.
type registry struct{ shards *[shards]shard }

type shard struct {
	mu    sync.Mutex
	first exchange // the head of the list; its next is the first element
	_     [64]byte // keeps the locks of two shards out of one cache line
}

func newRegistry() registry { return registry{new([shards]shard)} }

// shardOf returns the shard of an exchange, by its start.
func (g registry) shardOf(x *exchange) *shard {
	return &g.shards[uint64(x.started.UnixNano()>>4)%shards]
}

func (g registry) add(x *exchange) {
	s := g.shardOf(x)
	s.mu.Lock()
	defer s.mu.Unlock()
	x.prev, x.next = &s.first, s.first.next
	if x.next != nil {
		x.next.prev = x
	}
	s.first.next = x
}

// remove removes an exchange, if it was added.
func (g registry) remove(x *exchange) {
	s := g.shardOf(x)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.prev == nil {
		return
	}
	x.prev.next = x.next
	if x.next != nil {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
}

// before returns the exchanges that have started before a time.
func (g registry) before(t time.Time) (all []*exchange) {
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		for x := s.first.next; x != nil; x = x.next {
			if x.started.Before(t) {
				all = append(all, x)
			}
		}
		s.mu.Unlock()
	}
	return all
}

// end ends the exchanges that matches returns true for.
func (g registry) end(cause error, matches func(*exchange) bool) {
	for _, x := range g.before(time.Now().Add(time.Hour)) {
		if matches(x) {
			x.stop(cause)
		}
	}
}

// watch runs the rounds until the edge is closed.
func (e *Edge) watch() {
	ticker := time.NewTicker(roundTime)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			e.round(time.Now().Add(-maxAge), func(*exchange) bool { return true })
		case <-e.changes.signal:
			e.round(time.Now(), e.changes.take())
		case <-e.ending.Done():
			return
		}
	}
}

// subject identifies the access of an exchange: the visit (empty for a public app), the app, and the host name. Exchanges with the same subject
// are checked together.
type subject struct{ name, appID, visitID string }

// checks has the checks in flight.
type checks struct {
	// slots has an element for each check that is counted.
	slots chan struct{}

	mu sync.Mutex
	// again has an entry for each subject with a check in flight: the requests that a round has selected since the check began.
	again map[subject][]*exchange
}

func newChecks() *checks {
	return &checks{slots: make(chan struct{}, checkers), again: map[subject][]*exchange{}}
}

// begin reports whether the caller has to check the requests of a subject. If a check of the subject is in flight, begin returns false, and the
// requests are checked when the check in flight has ended.
func (c *checks) begin(of subject, all []*exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isChecked := c.again[of]; isChecked {
		c.again[of] = all
		return false
	}
	c.again[of] = nil
	return true
}

// next ends a check of a subject. It returns the requests for the next check. If it returns none, no check of the subject is in flight.
func (c *checks) next(of subject) []*exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.again[of]
	if c.again[of] = nil; len(all) == 0 {
		delete(c.again, of)
	}
	return all
}

// round ends the requests without traffic, and starts a check of the access of each request if it has started before a time and concerns
// returns true for it. There is one check for all requests of a subject. A check ends the requests that have lost their access. round
// does not wait for the checks, so that a look-up that blocks delays no other check.
func (e *Edge) round(before time.Time, concerns func(*exchange) bool) {
	e.upstreams.sweep(e.passed(), int64(e.o.Limits.Connections))
	now := time.Now()
	subjects := map[subject][]*exchange{}
	for _, x := range e.lasting.before(before) {
		isWriting := x.isWriting.Load() // read before the time: the end of a write is traffic
		switch idle := now.Sub(x.started) - time.Duration(x.used.Load()); {
		case idle > e.idleTime(x):
			x.stop(errIdle)
			continue
		case x.isHalfClosed.Load() && !isWriting && idle > e.o.Limits.HalfClosedTime:
			x.stop(errGone)
			continue
		}
		if !concerns(x) {
			continue
		}
		of := subject{x.target.name, x.target.appID, x.visitID}
		subjects[of] = append(subjects[of], x)
	}
	for of, all := range subjects {
		if e.checks.begin(of, all) {
			e.checks.slots <- struct{}{}
			e.rounds.Go(func() { e.check(of, all) })
		}
	}
}

// idleTime returns the time after which a request without traffic ends. Before the response has begun, it is at least the time that the app has
// to begin the response, the time that the request may wait for the start of the app, and startMargin together.
func (e *Edge) idleTime(x *exchange) time.Duration {
	l := e.o.Limits
	if x.hasBegun.Load() {
		return l.IdleTime
	}
	return max(l.IdleTime, cmp.Or(x.target.headerTime, l.HeaderTime)+l.StartWait+startMargin)
}

// check checks the requests of a subject, and then the requests of the subject that rounds have selected meanwhile.
func (e *Edge) check(of subject, all []*exchange) {
	release := sync.OnceFunc(func() { <-e.checks.slots })
	defer release()
	defer time.AfterFunc(blockedTime, release).Stop()
	for ; len(all) > 0; all = e.checks.next(of) {
		e.recheck(of, all)
	}
}

// recheck ends the requests of a subject if their access has ended. If the access cannot be verified, each request continues for
// Limits.GraceTime after its last successful check.
func (e *Edge) recheck(of subject, all []*exchange) {
	ctx, cancel := context.WithTimeout(e.ending, e.o.Limits.GraceTime/3)
	defer cancel()
	err := e.stillOpen(ctx, of)
	now := time.Now()
	for _, x := range all {
		switch {
		case err == nil:
			x.confirmed = now
		case entity.HasCode(err, entity.NotFound, entity.Unauthorized):
			x.stop(err)
		case now.Sub(later(x.confirmed, x.started)) > e.o.Limits.GraceTime:
			x.stop(err)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stillOpen returns an error unless the host still belongs to the app, the app serves, and the visit has access. Errors: not_found,
// unauthorized, unavailable.
func (e *Edge) stillOpen(ctx context.Context, of subject) error {
	t, err := e.hosts.LookupWithin(ctx, of.name, maxAge)
	switch {
	case err != nil:
		return err
	case t.appID != of.appID, t.state == stateDisabled, t.state == stateSuspended:
		return errNotFound
	case t.public:
		return nil
	case of.visitID == "":
		return errUnauthorized
	}
	found, err := e.visits.LookupWithin(ctx, of.visitID, maxAge)
	if err == nil && !found.opens(t, e.now().UnixMilli()) {
		return errUnauthorized
	}
	return err
}
