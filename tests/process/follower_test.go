package process

import (
	"context"
	"sync"
)

type manner int

const (
	streaming manner = iota
	paging
)

// follower reads the sequence across the node's lives, and resumes where the last one ended.
type follower struct {
	site   *site
	manner manner
	ended  context.CancelFunc

	mu   sync.Mutex
	rows []row
	last string // the id or cursor after the last row
	come chan struct{}
}

func newFollower(s *site, m manner) *follower {
	return &follower{site: s, manner: m, come: make(chan struct{}, 1)}
}

func (f *follower) work(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	f.mu.Lock()
	f.ended = end
	f.mu.Unlock()
	for {
		address, life := f.site.current()
		c := newClient(address, f.site.key)
		if f.manner == streaming {
			_ = c.follow(ctx, f.last, func() {}, f.take) // ends when the node does
		} else {
			f.page(ctx, c)
		}
		c.close()
		if !f.site.again(ctx, life) {
			return
		}
	}
}

func (f *follower) take(id string, data []byte) {
	r, _ := parseRow(data)
	f.mu.Lock()
	f.rows = append(f.rows, r)
	f.last = id
	f.mu.Unlock()
	select {
	case f.come <- struct{}{}:
	default:
	}
}

// page walks the feed in pages of one row and of many, again from the start when the walk has reached its end.
func (f *follower) page(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		cursor, seen := "", uint64(0)
		for {
			rows, next, err := c.page(ctx, cursor, 1+int(seen%100))
			if err != nil {
				return
			}
			for _, r := range rows {
				f.check(r, &seen)
			}
			if next == "" {
				break
			}
			cursor = next
		}
	}
}

// check keeps a row that breaks the sequence, for the verdict.
func (f *follower) check(r row, seen *uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Seq != *seen+1 {
		f.rows = append(f.rows, r)
	}
	*seen = r.Seq
}

func (f *follower) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended()
}

func (f *follower) seen() []row {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows
}
