package actors

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// A recorder is a supervisor that records restarts and stops of its child.
type recorder struct {
	actor.Supervisor
	restarts, stops chan time.Time
}

func newRecorder() *recorder {
	return &recorder{restarts: make(chan time.Time, 1), stops: make(chan time.Time, 1)}
}

func (r *recorder) RestartChildren(...*actor.PID) { r.restarts <- time.Now() }

func (r *recorder) StopChildren(...*actor.PID) { r.stops <- time.Now() }

func TestBackoffStopsChildAfterRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported int
		b := newBackoff(func(*actor.PID, any, bool) { reported++ })
		b.healthy = time.Hour
		r, stats := newRecorder(), actor.NewRestartStatistics()
		for i := range b.retries {
			failed := time.Now()
			b.HandleFailure(nil, r, nil, stats, "reason", nil)
			want := min(b.first<<i, b.longest)
			if got := (<-r.restarts).Sub(failed); got != want {
				t.Errorf("restart %d comes after %v, not %v", i, got, want)
			}
		}
		b.HandleFailure(nil, r, nil, stats, "reason", nil)
		if len(r.stops) != 1 || reported != b.retries+1 {
			t.Errorf("%d stops, reported %d times", len(r.stops), reported)
		}
	})
}

func TestBackoffCountsAnewAfterHealthyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff(func(*actor.PID, any, bool) {})
		r, stats := newRecorder(), actor.NewRestartStatistics()
		for range 3 * b.retries {
			b.HandleFailure(nil, r, nil, stats, "reason", nil)
			<-r.restarts
			<-time.After(b.healthy + time.Second)
		}
		if len(r.stops) != 0 {
			t.Error("the child was stopped")
		}
	})
}
