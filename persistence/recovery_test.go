package persistence

import (
	"errors"
	"testing"
	"time"
)

// TestRecover fails a partition twice: each time its owner leads it again, under a new epoch, and the stream goes on.
func TestRecover(t *testing.T) {
	f := newFaulty(t, Options{})
	f.Recover(t.Context())
	led := make(chan Notice, 64)
	f.Watch(t.Context(), func(n Notice) {
		if n.Partition == 0 {
			led <- n
		}
	})
	next := func(owned bool) (n Notice) {
		for n = <-led; n.Owned != owned; n = <-led {
		}
		return n
	}
	epoch := next(true).Epoch
	f.must("a", 0)
	for i := range 2 {
		f.Fail(0, errors.New("no quorum"))
		next(false)
		now := next(true)
		if now.Epoch <= epoch {
			t.Fatalf("epoch %d after %d", now.Epoch, epoch)
		}
		epoch = now.Epoch
		if r := appendTo(f.local, 0, epoch, "a", uint64(i+1)); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if r := appendTo(f.local, 1, f.epoch, "b", 0); r.Err != nil {
		t.Errorf("another partition: %v", r.Err)
	}
	f.finish()
}

func TestRecoveryPauses(t *testing.T) {
	r := &recovery{attempts: make([]attempts, 1)}
	now := time.Now()
	for _, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		if got := r.pause(0, now); got != want {
			t.Errorf("a pause of %v, want %v", got, want)
		}
	}
	for range 20 {
		now = now.Add(time.Minute)
		r.pause(0, now)
	}
	if got := r.pause(0, now); got != longestRecovery {
		t.Errorf("the longest pause is %v", got)
	}
	if got := r.pause(0, now.Add(healthyAfter+1)); got != firstRecovery {
		t.Errorf("after a healthy time the pause is %v", got)
	}
}
