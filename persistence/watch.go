package persistence

import (
	"context"
	"slices"
	"sync"
)

// watchers tells members which partitions they lead and how far the feeds are.
//
// Its lock is held while watchers are called, and is taken before the queue's. That is what orders notices: a round is
// landed, and its advance told, within one hold of the lock, so that the end of a term, which comes after its lane has
// failed or its move has landed, is told after every advance of the term.
type watchers struct {
	mu  sync.Mutex
	all []*watcher
	// state is what the owners of the partitions have been told last.
	state  []Notice
	owners []*Member
	// recorder is told every state, whoever leads the partition.
	recorder func(Notice)
}

type watcher struct {
	member *Member
	ctx    context.Context
	fn     func(Notice)
}

func newWatchers(state []Notice, owner *Member) *watchers {
	return &watchers{state: state, owners: slices.Repeat([]*Member{owner}, len(state))}
}

func (w *watchers) tell(one *watcher, n Notice) {
	if one.ctx.Err() == nil {
		one.fn(n)
	}
}

// add tells fn the state of every partition, as the member sees it, before it returns.
func (w *watchers) add(ctx context.Context, m *Member, fn func(Notice)) {
	one := &watcher{m, ctx, fn}
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, n := range w.state {
		if w.owners[p] != m {
			n.Owned, n.Epoch = false, m.led[p]
		}
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

// record has fn called with the state of every partition, and with each later change.
func (w *watchers) record(fn func(Notice)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorder = fn
	for _, n := range w.state {
		fn(n)
	}
}

// tellOwner tells the owner of a partition its state.
func (w *watchers) tellOwner(p Partition) {
	if w.recorder != nil {
		w.recorder(w.state[p])
	}
	for _, one := range w.all {
		if one.member == w.owners[p] {
			w.tell(one, w.state[p])
		}
	}
}

// committed lands the lanes of a commit and tells what it changed: one notice for each partition, however many events
// it had. It returns the lanes that the caller answers.
func (w *watchers) committed(q *queue, staged []*lane) []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	landed := staged[:0]
	for _, l := range staged {
		if !q.land(l) {
			continue
		}
		landed = append(landed, l)
		switch {
		case l.round.isMove():
			w.grant(l.partition, l.round.pending[0].move, l.round.results[0].Version, l.committer.sequence())
		case l.round.advanced:
			w.state[l.partition].Sequence = l.committer.sequence()
			w.tellOwner(l.partition)
		}
	}
	return landed
}

// grant tells the old owner that its term has ended, and then the new one that its own begins. An owner whose term is
// renewed is told of the new term alone.
func (w *watchers) grant(p Partition, to *Member, epoch, sequence uint64) {
	if w.owners[p] != to {
		w.end(p)
	}
	w.owners[p].led[p] = w.state[p].Epoch
	w.owners[p] = to
	w.state[p] = Notice{Partition: p, Epoch: epoch, Owned: true, Sequence: sequence}
	w.tellOwner(p)
}

func (w *watchers) end(p Partition) {
	if w.state[p].Owned {
		w.state[p].Owned = false
		w.tellOwner(p)
	}
}

// lose tells the owner of a partition that its term has ended, unless a later one has begun.
func (w *watchers) lose(p Partition, epoch uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state[p].Epoch == epoch {
		w.end(p)
	}
}

// loseAll tells all owners that their terms have ended.
func (w *watchers) loseAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.state {
		w.end(Partition(p))
	}
}
