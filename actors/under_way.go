package actors

import (
	"sync"

	"github.com/atelier-run/atelier/persistence"
)

// underWay counts the proposals of each stream whose outcome is not known. It outlives the actors that made them.
type underWay struct {
	mu     sync.Mutex
	counts map[persistence.Stream]int
}

func (u *underWay) add(s persistence.Stream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts == nil {
		u.counts = map[persistence.Stream]int{}
	}
	u.counts[s]++
}

func (u *underWay) done(s persistence.Stream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts[s]--; u.counts[s] == 0 {
		delete(u.counts, s)
	}
}

func (u *underWay) has(s persistence.Stream) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts[s] > 0
}
