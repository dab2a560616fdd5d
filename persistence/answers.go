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

type answer struct {
	done   func(Result)
	result Result
}

func (a *answers) committed(batch []pending, results []Result) {
	a.calling.Lock()
	defer a.calling.Unlock()
	next := 0
	for i := range batch {
		if batch[i].save != nil {
			continue
		}
		batch[i].done(results[next])
		next++
	}
}

// later answers soon, and returns at once.
func (a *answers) later(done func(Result), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, answer{done, Result{Err: err}})
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
			w.done(w.result)
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
