package persistence

import "sync"

// answers calls done callbacks, one at a time. Those of a commit run on the writer's goroutine; those that owe nothing
// to a commit (refusals) run on another, since the caller may hold what its callback needs, and the disk may be slow.
type answers struct {
	calling sync.Mutex

	mu      sync.Mutex
	waiting []answer
	running bool
}

// answer is a call of done with result, or of call.
type answer struct {
	done   func(Result)
	result Result
	call   func()
}

// committed answers a round with its results.
func (a *answers) committed(r *round) {
	a.calling.Lock()
	defer a.calling.Unlock()
	next := 0
	for i := range r.pending {
		if r.pending[i].save != nil {
			continue
		}
		r.pending[i].done(r.results[next])
		next++
	}
}

// later answers soon, and returns at once.
func (a *answers) later(done func(Result), err error) {
	a.add(answer{done: done, result: Result{Err: err}})
}

// before calls fn soon, before the answers that are added later, and returns at once.
func (a *answers) before(fn func()) { a.add(answer{call: fn}) }

func (a *answers) add(one answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, one)
	if !a.running {
		a.running = true
		go a.drain()
	}
}

func (a *answers) all(batch []pending, err error) {
	for i := range batch {
		if batch[i].save == nil {
			a.later(batch[i].done, err)
		}
	}
}

func (a *answers) drain() {
	for {
		batch := a.next()
		if batch == nil {
			return
		}
		a.calling.Lock()
		for _, w := range batch {
			if w.call != nil {
				w.call()
			} else {
				w.done(w.result)
			}
		}
		a.calling.Unlock()
	}
}

func (a *answers) next() []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	batch := a.waiting
	a.waiting = nil
	a.running = batch != nil
	return batch
}
