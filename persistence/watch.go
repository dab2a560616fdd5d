package persistence

import (
	"context"
	"slices"
	"sync"
)

// watchers tells who asked what is owned and how far the feeds are.
type watchers struct {
	mu    sync.Mutex
	all   []*watcher
	state []Notice
}

type watcher struct {
	ctx context.Context
	fn  func(Notice)
}

func (w *watchers) tell(one *watcher, n Notice) {
	if one.ctx.Err() == nil {
		one.fn(n)
	}
}

// add tells fn what is owned before it returns.
func (w *watchers) add(ctx context.Context, fn func(Notice)) {
	one := &watcher{ctx, fn}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.state {
		w.tell(one, n)
	}
	w.all = append(w.all, one)
	context.AfterFunc(ctx, func() { w.remove(one) })
}

func (w *watchers) remove(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(other *watcher) bool { return other == one })
}

// advance is one notice a partition and commit, however many events it had.
func (w *watchers) advance(partitions []Partition, sequence func(Partition) uint64) {
	if len(partitions) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range partitions {
		w.state[p].Sequence = sequence(p)
		for _, one := range w.all {
			w.tell(one, w.state[p])
		}
	}
}
