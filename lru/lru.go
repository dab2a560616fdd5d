// Package lru caches a bounded number of values by key, and evicts the least recently used value.
package lru

import (
	"container/list"
	"sync"
)

// A Cache has at most limit values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	limit int

	mu    sync.Mutex
	order list.List // of entry[K, V], the most recently used first
	byKey map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns an empty cache of at most limit values; limit is positive.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, byKey: map[K]*list.Element{}}
}

// Get returns the value of a key, and makes it the most recently used value.
func (c *Cache[K, V]) Get(key K) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.byKey[key]
	if element == nil {
		return value, false
	}
	c.order.MoveToFront(element)
	return element.Value.(entry[K, V]).value, true
}

// Put sets the value of a key, and makes it the most recently used value. If the cache is full, Put evicts the least recently used value.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element := c.byKey[key]; element != nil {
		element.Value = entry[K, V]{key, value}
		c.order.MoveToFront(element)
		return
	}
	if c.order.Len() >= c.limit {
		c.remove(c.order.Back())
	}
	c.byKey[key] = c.order.PushFront(entry[K, V]{key, value})
}

// DeleteFunc removes the values of the keys that remove selects.
func (c *Cache[K, V]) DeleteFunc(remove func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, element := range c.byKey {
		if remove(key) {
			c.remove(element)
		}
	}
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

// remove removes an element. The caller holds mu.
func (c *Cache[K, V]) remove(element *list.Element) {
	c.order.Remove(element)
	delete(c.byKey, element.Value.(entry[K, V]).key)
}
