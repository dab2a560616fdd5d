package journaltest

import (
	"context"
	"testing"

	"github.com/atelier-run/atelier/persistence"
)

func testWatch(t *testing.T, h Harness) {
	c := open(t, h)
	defer c.close()
	c.must(c.proposal(0, "a", 0, "one", "two"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	notices := make(chan persistence.Notice, 10_000)
	c.Watch(ctx, func(n persistence.Notice) { notices <- n })
	last := make(map[persistence.Partition]uint64)
	for range len(c.epochs) {
		n := <-notices
		if _, twice := last[n.Partition]; twice || !n.Owned || n.Epoch != c.epochs[n.Partition] {
			t.Fatalf("got %+v", n)
		}
		last[n.Partition] = n.Sequence
	}
	if last[0] != 2 || last[1] != 0 {
		t.Fatalf("sequences %v", last)
	}
	c.must(c.change(0, put("i", "v", 1, ""))) // moves no feed
	c.must(c.proposal(0, "a", 2, "three"), c.proposal(0, "b", 0, "four"), c.proposal(1, "c", 0, "five"))
	for last[0] < 4 || last[1] < 1 {
		var n persistence.Notice
		select {
		case n = <-notices:
		default:
			t.Fatalf("answered before its notice: %v", last)
		}
		if n.Sequence <= last[n.Partition] || !n.Owned || n.Epoch != c.epochs[n.Partition] {
			t.Fatalf("got %+v after %v", n, last)
		}
		last[n.Partition] = n.Sequence
		c.look(func(v persistence.View) {
			if got := names(t, v.Feed(n.Partition, n.Sequence, nil)); len(got) == 0 {
				t.Fatalf("%+v is not in a view", n)
			}
		})
	}
}

func testWatchEnds(t *testing.T, h Harness) {
	c := open(t, h)
	defer c.close()
	ctx, cancel := context.WithCancel(context.Background())
	notices := make(chan persistence.Notice, 10_000)
	c.Watch(ctx, func(n persistence.Notice) { notices <- n })
	cancel()
	for len(notices) > 0 {
		<-notices
	}
	// Whoever watches longer is told after whoever watched before: this is the end of the commit's notices.
	still, end := context.WithCancel(context.Background())
	defer end()
	told := make(chan struct{}, 10_000)
	c.Watch(still, func(n persistence.Notice) {
		if n.Sequence > 0 {
			told <- struct{}{}
		}
	})
	c.must(c.proposal(0, "a", 0, "one"))
	<-told
	if len(notices) > 0 {
		t.Fatal("told after the end")
	}
}
