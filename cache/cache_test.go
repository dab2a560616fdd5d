package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity"
)

var errGone = entity.Errorf(entity.NotFound, "no such key")

// A source answers the look-ups of a cache. It has the version that each look-up of a key returns, and counts the look-ups.
type source struct {
	t     *testing.T
	cache *Cache[string]
	mu    sync.Mutex
	// values has the value of each key; a key without one does not exist.
	values map[string]string
	// failure, if set, is returned for every key.
	failure error
	// If gate is set, a look-up receives from it before it returns the fetched value.
	gate    chan struct{}
	fetched atomic.Int64
	hits    atomic.Int64
	olds    []string
}

// newSource returns a source with a cache of at most bound entries.
func newSource(t *testing.T, bound int64) *source {
	s := &source{t: t, values: map[string]string{}}
	s.cache = New(time.Now, bound, func(hit bool) {
		if hit {
			s.hits.Add(1)
		}
	}, s.fetch)
	return s
}

func (s *source) fetch(ctx context.Context, key, old string) (string, error) {
	s.fetched.Add(1)
	s.mu.Lock()
	value, exists := s.values[key]
	failure, gate := s.failure, s.gate
	s.olds = append(s.olds, old)
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	switch {
	case failure != nil:
		return "", failure
	case !exists:
		return "", errGone
	}
	return value, nil
}

func (s *source) set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
}

// expect looks a key up, and compares the value and the number of look-ups of the source so far.
func (s *source) expect(key, value string, fetched int64) {
	s.t.Helper()
	got, err := s.cache.Lookup(s.t.Context(), key)
	if err != nil || got != value || s.fetched.Load() != fetched {
		s.t.Errorf("%s is %q, %v after %d look-ups, want %q after %d", key, got, err, s.fetched.Load(), value, fetched)
	}
}

func (s *source) expectError(key string, want error, fetched int64) {
	s.t.Helper()
	if _, err := s.cache.Lookup(s.t.Context(), key); !errors.Is(err, want) || s.fetched.Load() != fetched {
		s.t.Errorf("%s: %v after %d look-ups, want %v after %d", key, err, s.fetched.Load(), want, fetched)
	}
}

func TestEntryServesForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		s.set("a", "1")
		s.expect("a", "1", 1)
		s.set("a", "2")
		time.Sleep(freshTime - time.Nanosecond)
		s.expect("a", "1", 1)
		time.Sleep(time.Nanosecond)
		s.expect("a", "2", 2)
		if s.hits.Load() != 1 {
			t.Errorf("%d hits, want 1", s.hits.Load())
		}
		if len(s.olds) != 2 || s.olds[1] != "1" {
			t.Errorf("the look-ups had the old values %q", s.olds)
		}
		time.Sleep(10 * freshTime)
		if got, err := s.cache.LookupWithin(t.Context(), "a", time.Minute); got != "2" || err != nil || s.fetched.Load() != 2 {
			t.Errorf("within a minute: %q, %v after %d look-ups", got, err, s.fetched.Load())
		}
	})
}

func TestMissingKeyIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		if s.cache.Knows("a") {
			t.Error("a key is known before its first look-up")
		}
		s.expectError("a", errGone, 1)
		s.expectError("a", errGone, 1)
		if !s.cache.Knows("a") || s.cache.Has("a") || s.cache.Size() != 0 {
			t.Error("a missing key is not known, or has an entry")
		}
		s.cache.InvalidateMisses()
		if !s.cache.Knows("a") {
			t.Error("a missing key is not known after an invalidation")
		}
		s.expectError("a", errGone, 2)
		s.set("a", "1")
		time.Sleep(freshTime)
		if !s.cache.Knows("a") {
			t.Error("a missing key is not known after its time")
		}
		s.expect("a", "1", 3)
		// A key that is gone loses its entry.
		delete(s.values, "a")
		time.Sleep(freshTime)
		s.expectError("a", errGone, 4)
		if s.cache.Has("a") || s.cache.Size() != 0 {
			t.Error("a key that is gone has an entry")
		}
	})
}

func TestFailureIsNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		s.set("a", "1")
		s.expect("a", "1", 1)
		s.failure = errors.New("broken")
		time.Sleep(freshTime)
		s.expectError("a", s.failure, 2)
		s.expectError("a", s.failure, 3)
		if !s.cache.Has("a") {
			t.Error("a failed look-up has removed the entry")
		}
		s.failure = nil
		s.expect("a", "1", 4)
	})
}

func TestConcurrentLookupsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		s.gate = make(chan struct{})
		s.set("a", "1")
		var waiting sync.WaitGroup
		for range 10 {
			waiting.Go(func() { s.expect("a", "1", 1) })
		}
		// A caller that leaves ends neither the look-up nor the other callers.
		ctx, cancel := context.WithCancel(t.Context())
		waiting.Go(func() {
			if _, err := s.cache.Lookup(ctx, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that has left got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(s.gate)
		waiting.Wait()
	})
}

func TestLookupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		s.gate = make(chan struct{})
		began := time.Now()
		s.expectError("a", context.DeadlineExceeded, 1)
		if took := time.Since(began); took != lookupTime {
			t.Errorf("the look-up took %s", took)
		}
	})
}

func TestUnknownLookupsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		s.set("known", "1")
		s.expect("known", "1", 1)
		time.Sleep(freshTime)
		s.gate = make(chan struct{})
		var waiting sync.WaitGroup
		for i := range maxUnknownLookups {
			waiting.Go(func() {
				if _, err := s.cache.Lookup(t.Context(), fmt.Sprint("unknown", i)); !errors.Is(err, errGone) {
					t.Errorf("an admitted look-up: %v", err)
				}
			})
		}
		synctest.Wait()
		s.expectError("one more", errOverloaded, 1+maxUnknownLookups)
		// A key with an entry is looked up all the same.
		waiting.Go(func() { s.expect("known", "1", 2+maxUnknownLookups) })
		synctest.Wait()
		close(s.gate)
		waiting.Wait()
		s.expectError("one more", errGone, 3+maxUnknownLookups)
	})
}

// TestInvalidateDuringLookup holds a look-up that has read the old value, changes it and invalidates the key. Neither the cache nor a
// caller that comes after the invalidation gets the old value.
func TestInvalidateDuringLookup(t *testing.T) {
	for name, invalidate := range map[string]func(*Cache[string]){
		"the key":    func(c *Cache[string]) { c.Invalidate("a") },
		"matching":   func(c *Cache[string]) { c.InvalidateAll(func(string) bool { return true }) },
		"the misses": func(c *Cache[string]) { c.InvalidateMisses() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource(t, 10)
				gate := make(chan struct{})
				s.gate = gate
				s.set("a", "old")
				go s.expect("a", "old", 2)
				synctest.Wait()
				s.set("a", "new")
				invalidate(s.cache)
				s.gate = nil
				s.expect("a", "new", 2)
				close(gate)
				synctest.Wait()
				s.expect("a", "new", 2)
			})
		})
	}
}

func TestInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		s.set("a", "1")
		s.set("b", "2")
		s.expect("a", "1", 1)
		s.expect("b", "2", 2)
		s.expectError("c", errGone, 3)
		s.cache.Invalidate("a")
		s.expect("a", "1", 4)
		s.expect("b", "2", 4)
		s.cache.InvalidateAll(func(value string) bool { return value == "2" })
		s.expect("a", "1", 4)
		s.expect("b", "2", 5)
		s.expectError("c", errGone, 6)
		s.cache.Invalidate("c")
		s.expectError("c", errGone, 7)
		s.cache.InvalidateMisses()
		s.expectError("c", errGone, 8)
		if s.cache.Size() != 2 {
			t.Errorf("%d entries, want 2", s.cache.Size())
		}
	})
}

func TestEntriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10
		s := newSource(t, bound)
		for i := range 100 {
			s.set(fmt.Sprint(i), "x")
			s.expect(fmt.Sprint(i), "x", int64(i+1))
			time.Sleep(time.Millisecond)
		}
		entries := int64(0)
		s.cache.Range(func(string, string) bool { entries++; return true })
		if s.cache.Size() > bound || entries != s.cache.Size() {
			t.Errorf("%d entries, and the size is %d, want at most %d", entries, s.cache.Size(), bound)
		}
	})
}

func TestIdleEntriesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, 10)
		s.set("idle", "1")
		s.set("used", "2")
		s.expect("idle", "1", 1)
		time.Sleep(idleTime / 2)
		s.expect("used", "2", 2)
		time.Sleep(idleTime/2 + time.Second)
		s.expect("used", "2", 3)
		if s.cache.Has("idle") || !s.cache.Has("used") || s.cache.Size() != 1 {
			t.Errorf("%d entries; idle: %t", s.cache.Size(), s.cache.Has("idle"))
		}
	})
}

func TestPanicOfALookupIsAnError(t *testing.T) {
	c := New(time.Now, 1, func(bool) {}, func(context.Context, string, string) (string, error) { panic("broken") })
	if _, err := c.Lookup(t.Context(), "a"); err == nil {
		t.Error("no error")
	}
}
