package lru_test

import (
	"testing"

	"github.com/atelier-run/atelier/lru"
)

func TestCache(t *testing.T) {
	c := lru.New[string, int](2)
	expect := func(key string, want int, isFound bool) {
		t.Helper()
		if value, found := c.Get(key); value != want || found != isFound {
			t.Errorf("%s is %d, %v", key, value, found)
		}
	}
	c.Put("a", 1)
	c.Put("b", 2)
	expect("a", 1, true)
	c.Put("c", 3)
	expect("b", 0, false)
	c.Put("a", 4)
	expect("a", 4, true)
	if c.Len() != 2 {
		t.Errorf("%d values", c.Len())
	}
	c.DeleteFunc(func(key string) bool { return key == "a" })
	expect("a", 0, false)
	expect("c", 3, true)
	c.Put("d", 5)
	expect("c", 3, true)
	if c.Len() != 2 {
		t.Errorf("%d values", c.Len())
	}
}
