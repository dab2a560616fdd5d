package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
)

const (
	// roundTime is the time between two rounds of the watcher, which makes another one after Forget, and maxAge the greatest age of what it
	// decides by: together they are less than the second in which what lasts must end.
	roundTime = 400 * time.Millisecond
	maxAge    = 300 * time.Millisecond
	// graceTime is the time for which requests last although it cannot be verified that their access does.
	graceTime = 15 * time.Second
	// checkers is the number of concurrent checks in a round.
	checkers = 16
	shards   = 16
)

var (
	errEnded = errors.New("the server shuts down")
	errIdle  = errors.New("the connection was idle for too long")
)

// registry has the requests that are passed to apps. A round over it costs a goroutine or a timer for none of them.
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

func (g registry) endAll(cause error) {
	for _, x := range g.before(time.Now().Add(time.Hour)) {
		x.stop(cause)
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

// subject is what the access of an exchange depends on.
type subject struct{ name, appID, visitID string }

// round verifies the access of each request that has started before a time and that concerns selects, once for those of one visit to one
// app, and ends those that have lost it.
func (e *Edge) round(before time.Time, concerns func(*exchange) bool) {
	e.upstreams.sweep(time.Now(), int64(e.o.Limits.Connections))
	now := time.Now()
	subjects := map[subject][]*exchange{}
	for _, x := range e.lasting.before(before) {
		if idle := now.Sub(x.started) - time.Duration(x.used.Load()); idle > e.o.Limits.IdleTime {
			x.stop(errIdle)
			continue
		}
		if !concerns(x) {
			continue
		}
		of := subject{x.target.name, x.target.appID, x.visitID}
		subjects[of] = append(subjects[of], x)
	}
	slots := make(chan struct{}, checkers)
	var checks sync.WaitGroup
	for of, all := range subjects {
		slots <- struct{}{}
		checks.Go(func() {
			defer func() { <-slots }()
			e.recheck(of, all)
		})
	}
	checks.Wait()
}

// recheck ends the requests of a subject whose access has ended. If that cannot be verified, they last for a while.
func (e *Edge) recheck(of subject, all []*exchange) {
	ctx, cancel := context.WithTimeout(e.ending, graceTime/3)
	defer cancel()
	err := e.stillOpen(ctx, of)
	now := time.Now()
	for _, x := range all {
		switch {
		case err == nil:
			x.confirmed = now
		case hasCode(err, entity.NotFound, entity.Unauthorized):
			x.stop(err)
		case now.Sub(later(x.confirmed, x.started)) > graceTime:
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
