package process

import (
	"context"
	"sync"
)

type mode int

const (
	streaming mode = iota
	paging
)

// A follower reads the sequence of the workspace while the node is killed and started again. A streaming follower resumes
// after the last row that it has received.
type follower struct {
	site  *site
	mode  mode
	ended context.CancelFunc

	mu       sync.Mutex
	rows     []row
	last     string // the id of the last row
	received chan struct{}
}

func newFollower(s *site, m mode) *follower {
	return &follower{site: s, mode: m, received: make(chan struct{}, 1)}
}

func (f *follower) work(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	f.mu.Lock()
	f.ended = end
	f.mu.Unlock()
	for {
		address, generation := f.site.current()
		c := newClient(address, f.site.key)
		if f.mode == streaming {
			_ = c.follow(ctx, f.last, func() {}, f.add) // ends with the node
		} else {
			f.page(ctx, c)
		}
		c.close()
		if !f.site.waitForRetry(ctx, generation) {
			return
		}
	}
}

func (f *follower) add(id string, data []byte) {
	r, _ := parseRow(data)
	f.mu.Lock()
	f.rows = append(f.rows, r)
	f.last = id
	f.mu.Unlock()
	select {
	case f.received <- struct{}{}:
	default:
	}
}

// page reads the feed repeatedly from its beginning, in pages of 1 to 100 rows.
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

// check records a row that is out of sequence, which verifyFollower reports.
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
