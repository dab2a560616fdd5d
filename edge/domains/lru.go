package domains

import (
	"container/list"
	"sync"
)

// An lru caches a bounded number of values. Each new one beyond the limit replaces the one that was not used for the longest time.
type lru[V any] struct {
	limit int

	mu    sync.Mutex
	order list.List // of entry[V], the last used one first
	byKey map[string]*list.Element
}

type entry[V any] struct {
	key   string
	value V
}

func newLRU[V any](limit int) *lru[V] {
	return &lru[V]{limit: limit, byKey: map[string]*list.Element{}}
}

func (l *lru[V]) get(key string) (value V, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	element := l.byKey[key]
	if element == nil {
		return value, false
	}
	l.order.MoveToFront(element)
	return element.Value.(entry[V]).value, true
}

func (l *lru[V]) put(key string, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if element := l.byKey[key]; element != nil {
		element.Value = entry[V]{key, value}
		l.order.MoveToFront(element)
		return
	}
	if l.order.Len() >= l.limit {
		last := l.order.Back()
		l.order.Remove(last)
		delete(l.byKey, last.Value.(entry[V]).key)
	}
	l.byKey[key] = l.order.PushFront(entry[V]{key, value})
}
