package actors

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// recorder is a supervisor that tells when its child is restarted and stopped.
type recorder struct {
	actor.Supervisor
	restarts, stops chan time.Time
}

func newRecorder() *recorder {
	return &recorder{restarts: make(chan time.Time, 1), stops: make(chan time.Time, 1)}
}

func (r *recorder) RestartChildren(...*actor.PID) { r.restarts <- time.Now() }

func (r *recorder) StopChildren(...*actor.PID) { r.stops <- time.Now() }

func TestRestartsBackOffAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told int
		b := newBackoff(func(*actor.PID, any, bool) { told++ })
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
		if len(r.stops) != 1 || told != b.retries+1 {
			t.Errorf("%d stops, told %d times", len(r.stops), told)
		}
	})
}

func TestAChildThatWasHealthyIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff(func(*actor.PID, any, bool) {})
		r, stats := newRecorder(), actor.NewRestartStatistics()
		for range 3 * b.retries {
			b.HandleFailure(nil, r, nil, stats, "reason", nil)
			<-r.restarts
			<-time.After(b.healthy + time.Second)
		}
		if len(r.stops) != 0 {
			t.Error("it was stopped")
		}
	})
}
