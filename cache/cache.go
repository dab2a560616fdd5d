// Package cache holds the results of look-ups for a second, so that requests do not ask an entity each time. The API caches credentials
// and slugs with it; the edge caches hosts with their apps, and visits.
package cache

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/atelier-run/atelier/entity"
)

const (
	// freshTime is the time in which an entry is used without a look-up. A change on another member takes effect within it.
	freshTime = time.Second
	// idleTime is the time after which an unused entry is removed; until then it is retained, so that the next look-up can carry over a part of it (fetch's old).
	idleTime = time.Minute
	// lookupTime bounds one look-up.
	lookupTime = 5 * time.Second
	// maxUnknownLookups bounds the concurrent look-ups of keys that have no entry.
	maxUnknownLookups = 256
)

// A Cache holds the results of look-ups for a second. A fresh entry is read without a lock, and concurrent look-ups of one key
// are made once. Keys that do not exist take a fixed amount of memory, regardless of how many of them clients send.
type Cache[V any] struct {
	now func() time.Time
	// fetch looks a key up. old is the value of the previous look-up, or the zero value. Errors: not_found for a key that
	// does not exist, which is cached too.
	fetch func(ctx context.Context, key string, old V) (V, error)
	// countLookup counts a look-up; hit is true if the cache answered it.
	countLookup func(hit bool)
	// bound is the maximum number of entries.
	bound int64

	entries   sync.Map // string → *entry[V]
	size      atomic.Int64
	lastSweep atomic.Int64
	// epoch is the number of invalidations. A result is stored only if there was none since its look-up began: invalidating guards the
	// comparison against an invalidation at the same time.
	epoch          atomic.Uint64
	invalidating   sync.RWMutex
	flights        singleflight.Group
	unknownLookups atomic.Int64
	misses         [1024]atomic.Pointer[miss]
	hashSeed       maphash.Seed
}

var errOverloaded = &entity.Error{Code: entity.Unavailable, Message: "the server is busy", RetryAfter: time.Second}

type entry[V any] struct {
	value     V
	fetchedAt time.Time
}

// miss is a key that did not exist. fetchedAt is zero if that may have changed since.
type miss struct {
	key       string
	fetchedAt time.Time
	err       error
}

// New returns an empty cache of at most bound entries. counted counts its look-ups, with true for each look-up that it answers without
// fetch. fetch looks a key up; see Cache.
func New[V any](now func() time.Time, bound int64, counted func(hit bool),
	fetch func(context.Context, string, V) (V, error)) *Cache[V] {
	return &Cache[V]{now: now, fetch: fetch, bound: bound, countLookup: counted, hashSeed: maphash.MakeSeed()}
}

// Lookup returns the value of a key, at most a second old. Errors: the errors of fetch, unavailable.
func (c *Cache[V]) Lookup(ctx context.Context, key string) (V, error) {
	return c.LookupWithin(ctx, key, freshTime)
}

// LookupWithin is Lookup for a value that may be older than a time.
func (c *Cache[V]) LookupWithin(ctx context.Context, key string, age time.Duration) (V, error) {
	known, now := c.load(key), c.now()
	if known != nil && now.Sub(known.fetchedAt) < age {
		c.countLookup(true)
		return known.value, nil
	}
	if m := c.missSlot(key).Load(); m != nil && m.key == key && now.Sub(m.fetchedAt) < age {
		var none V
		c.countLookup(true)
		return none, m.err
	}
	c.countLookup(false)
	return c.join(ctx, key, known)
}

// Knows reports whether a key has an entry, or is one of the last keys that did not exist, regardless of the age of either: a look-up
// of another key would be the first.
func (c *Cache[V]) Knows(key string) bool {
	if c.load(key) != nil {
		return true
	}
	m := c.missSlot(key).Load()
	return m != nil && m.key == key
}

// Has reports whether a key has an entry, regardless of its age.
func (c *Cache[V]) Has(key string) bool { return c.load(key) != nil }

// Size returns the number of entries.
func (c *Cache[V]) Size() int64 { return c.size.Load() }

// Range calls fn for each entry until it returns false.
func (c *Cache[V]) Range(fn func(key string, value V) bool) {
	c.entries.Range(func(key, found any) bool { return fn(key.(string), found.(*entry[V]).value) })
}

func (c *Cache[V]) load(key string) *entry[V] {
	if found, ok := c.entries.Load(key); ok {
		return found.(*entry[V])
	}
	return nil
}

func (c *Cache[V]) missSlot(key string) *atomic.Pointer[miss] {
	return &c.misses[maphash.String(c.hashSeed, key)%uint64(len(c.misses))]
}

// join waits for the look-up of the key that is in flight, or starts one if that has begun before an invalidation. The look-up goes on if
// ctx ends.
func (c *Cache[V]) join(ctx context.Context, key string, known *entry[V]) (V, error) {
	var none V
	flight := c.flights.DoChan(strconv.FormatUint(c.epoch.Load(), 36)+" "+key, func() (any, error) {
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

func (c *Cache[V]) refresh(ctx context.Context, key string, known *entry[V]) (value V, err error) {
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
			return value, errOverloaded
		}
	}
	epoch, asked := c.epoch.Load(), c.now()
	value, err = c.fetch(ctx, key, old)
	c.invalidating.RLock()
	defer c.invalidating.RUnlock()
	switch {
	case c.epoch.Load() != epoch: // the result may be older than the change
	case err == nil:
		c.store(key, &entry[V]{value, asked})
	case entity.HasCode(err, entity.NotFound):
		c.remove(key)
		c.missSlot(key).Store(&miss{key, asked, err})
	}
	return value, err
}

// Invalidate removes an entry. Results of look-ups that are in flight are not stored.
func (c *Cache[V]) Invalidate(key string) {
	c.invalidating.Lock()
	defer c.invalidating.Unlock()
	c.epoch.Add(1)
	c.evict(key)
}

// InvalidateAll removes the entries with a value that matches accepts, and makes keys that did not exist be looked up again. Results of
// look-ups in flight are not stored.
func (c *Cache[V]) InvalidateAll(matches func(value V) bool) {
	c.InvalidateMisses()
	c.entries.Range(func(key, found any) bool {
		if e := found.(*entry[V]); matches(e.value) && c.entries.CompareAndDelete(key, e) {
			c.size.Add(-1)
		}
		return true
	})
}

// InvalidateMisses makes keys that did not exist be looked up again. Results of look-ups in flight are not stored.
func (c *Cache[V]) InvalidateMisses() {
	c.invalidating.Lock()
	defer c.invalidating.Unlock()
	c.epoch.Add(1)
	for i := range c.misses {
		if m := c.misses[i].Load(); m != nil && !m.fetchedAt.IsZero() {
			c.misses[i].Store(&miss{key: m.key})
		}
	}
}

func (c *Cache[V]) evict(key string) {
	c.remove(key)
	if m := c.missSlot(key).Load(); m != nil && m.key == key {
		c.missSlot(key).CompareAndSwap(m, nil)
	}
}

func (c *Cache[V]) remove(key string) {
	if _, was := c.entries.LoadAndDelete(key); was {
		c.size.Add(-1)
	}
}

func (c *Cache[V]) store(key string, r *entry[V]) {
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

// sweep removes idle entries, and arbitrary ones while there are more than bound.
func (c *Cache[V]) sweep(now time.Time) {
	c.entries.Range(func(key, value any) bool {
		if now.Sub(value.(*entry[V]).fetchedAt) > idleTime || c.size.Load() > c.bound {
			c.remove(key.(string))
		}
		return true
	})
}
