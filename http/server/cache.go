package server

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/atelier-run/atelier/entity"
)

const (
	// freshness is how long an answer is used without asking again: within it, a change made elsewhere takes effect.
	freshTime = time.Second
	// idleness is how long an answer that nobody wants is kept for what it carries on to the next.
	idleTime = time.Minute
	// lookupTime bounds one question.
	lookupTime = 5 * time.Second
	// strangers bounds the questions under way about keys that were not known before.
	maxUnknownLookups = 256
)

// cache remembers what entities answered for a moment. A fresh answer is found without a lock; of the requests that
// find none, one asks. Keys that turn out unknown take a fixed amount of memory, however many a client thinks up.
type cache[V any] struct {
	now func() time.Time
	// fetch asks; old is the answer before, or zero. Unknown keys are not_found.
	fetch func(ctx context.Context, key string, old V) (V, error)
	// counted tells whether a look-up was answered from memory.
	countLookup func(hit bool)
	// bound is how many answers are kept.
	bound int64

	entries        sync.Map // string → *remembered[V]
	size           atomic.Int64
	lastSweep      atomic.Int64
	epoch          atomic.Uint64
	flights        singleflight.Group
	unknownLookups atomic.Int64
	misses         [1024]atomic.Pointer[miss]
	hashSeed       maphash.Seed
}

type cacheEntry[V any] struct {
	value     V
	fetchedAt time.Time
}

type miss struct {
	key       string
	fetchedAt time.Time
	err       error
}

func newCache[V any](now func() time.Time, bound int64, counted func(bool),
	fetch func(context.Context, string, V) (V, error)) *cache[V] {
	return &cache[V]{now: now, fetch: fetch, bound: bound, countLookup: counted, hashSeed: maphash.MakeSeed()}
}

// lookup is the answer for a key, at most a second old.
func (c *cache[V]) lookup(ctx context.Context, key string) (V, error) {
	known := c.load(key)
	if known != nil && c.now().Sub(known.fetchedAt) < freshTime {
		c.countLookup(true)
		return known.value, nil
	}
	if m := c.missSlot(key).Load(); m != nil && m.key == key && c.now().Sub(m.fetchedAt) < freshTime {
		var none V
		c.countLookup(true)
		return none, m.err
	}
	c.countLookup(false)
	return c.join(ctx, key, known)
}

func (c *cache[V]) load(key string) *cacheEntry[V] {
	if found, ok := c.entries.Load(key); ok {
		return found.(*cacheEntry[V])
	}
	return nil
}

func (c *cache[V]) missSlot(key string) *atomic.Pointer[miss] {
	return &c.misses[maphash.String(c.hashSeed, key)%uint64(len(c.misses))]
}

// wait joins the question under way, or asks. The question outlives the request that began it.
func (c *cache[V]) join(ctx context.Context, key string, known *cacheEntry[V]) (V, error) {
	var none V
	flight := c.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		return c.refresh(ctx, key, known)
	})
	select {
	case result := <-flight:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(V), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (c *cache[V]) refresh(ctx context.Context, key string, known *cacheEntry[V]) (value V, err error) {
	defer func() {
		if p := recover(); p != nil { // singleflight would end the process
			err = fmt.Errorf("look-up panicked: %v", p)
		}
	}()
	var old V
	if known != nil {
		old = known.value
	} else {
		defer c.unknownLookups.Add(-1)
		if c.unknownLookups.Add(1) > maxUnknownLookups {
			return value, ErrOverloaded
		}
	}
	epoch, asked := c.epoch.Load(), c.now()
	value, err = c.fetch(ctx, key, old)
	var refused *entity.Error
	switch {
	case err == nil:
		c.store(key, &cacheEntry[V]{value, asked})
	case errors.As(err, &refused) && refused.Code == entity.NotFound:
		c.remove(key)
		c.missSlot(key).Store(&miss{key, asked, err})
	}
	if c.epoch.Load() != epoch { // forgotten meanwhile: the answer may be from before
		c.evict(key)
	}
	return value, err
}

// forget makes the next look-up ask, whatever is under way.
func (c *cache[V]) invalidate(key string) {
	c.epoch.Add(1)
	c.flights.Forget(key)
	c.evict(key)
}

// forgetUnknown makes the next look-up of each key that was not known ask.
func (c *cache[V]) invalidateMisses() {
	c.epoch.Add(1)
	for i := range c.misses {
		c.misses[i].Store(nil)
	}
}

func (c *cache[V]) evict(key string) {
	c.remove(key)
	if m := c.missSlot(key).Load(); m != nil && m.key == key {
		c.missSlot(key).CompareAndSwap(m, nil)
	}
}

func (c *cache[V]) remove(key string) {
	if _, was := c.entries.LoadAndDelete(key); was {
		c.size.Add(-1)
	}
}

func (c *cache[V]) store(key string, r *cacheEntry[V]) {
	if _, was := c.entries.Swap(key, r); !was {
		c.size.Add(1)
	}
	last := c.lastSweep.Load()
	if c.size.Load() <= c.bound && r.fetchedAt.UnixNano()-last < int64(idleTime) {
		return
	}
	if c.lastSweep.CompareAndSwap(last, r.fetchedAt.UnixNano()) {
		c.sweep(r.fetchedAt)
	}
}

// sweep drops what is idle, and beyond the bound whatever comes first.
func (c *cache[V]) sweep(now time.Time) {
	c.entries.Range(func(key, value any) bool {
		if now.Sub(value.(*cacheEntry[V]).fetchedAt) > idleTime || c.size.Load() > c.bound {
			c.remove(key.(string))
		}
		return true
	})
}
