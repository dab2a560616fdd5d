package actors_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
)

// A ledger has the acknowledged commands between two crashes, by action (set or open) and id. acknowledged has the agenda of each
// timer that was set and each task that was opened, given the agenda of each timer that was cancelled and each task that was
// dropped.
type ledger struct {
	mu                  sync.Mutex
	acknowledged, given map[[2]string]string
	closed              bool
	// end stops the clients and waits for them.
	end func()
}

func (l *ledger) note(m map[[2]string]string, action, id, agenda string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		m[[2]string{action, id}] = agenda
	}
}

// close ignores later acknowledgements.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

var (
	crashes   = flag.Int("crashes", 40, "how often TestTimersAndTasksSurviveCrashes crashes the machine")
	crashSeed = flag.Uint64("seed", 1, "seed of the random choices of TestTimersAndTasksSurviveCrashes")
)

// TestTimersAndTasksSurviveCrashes crashes the machine at random moments, 1,000 times with -crashes=1000. Each timer and task
// that was acknowledged before a crash has its effect on the entity's state exactly once, before or after the crash.
func TestTimersAndTasksSurviveCrashes(t *testing.T) {
	rng := rand.New(rand.NewPCG(*crashSeed, 2))
	var mu sync.Mutex
	did := map[string]int{} // runs of tasks
	b := newBench(t, func(b *bench) {
		b.fs = vfs.NewCrashableMem()
		withChores(4, func(_ context.Context, task actors.Task) (proto.Message, error) {
			mu.Lock()
			defer mu.Unlock()
			did[task.ID]++
			if len(did)%5 == 0 && task.Attempt == 1 {
				return nil, fmt.Errorf("task %s fails once", task.ID)
			}
			return task.Message, nil
		})(b)
	})
	// kept and cancelled have the timers and tasks that were acknowledged before all crashes so far.
	kept, cancelled := map[[2]string]string{}, map[[2]string]string{}
	for life := range *crashes {
		l := b.live(rng, life)
		l.close() // the crash loses changes that are acknowledged after it
		left := b.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * rng.IntN(3), RNG: rng})
		maps.Copy(kept, l.acknowledged)
		maps.Copy(cancelled, l.given)
		b.stop()
		l.end()
		b.fs = left
		b.start()
		b.advance(time.Duration(rng.IntN(3)) * time.Second)
	}
	b.clock.Advance(time.Hour)
	b.eventually(func() bool {
		b.system.Tick()
		return b.rows("timer") == 0 && b.rows("task") == 0
	})
	for k, agenda := range kept {
		ended, given := map[string][2]string{"set": {"ring", "cancel"}, "open": {"done", "drop"}}[k[0]], cancelled[k] != ""
		done, dropped := b.count(agenda, ended[0], k[1]), b.count(agenda, ended[1], k[1])
		if done+dropped != 1 || given && dropped != 1 {
			t.Errorf("%s %s: %d times %s and %d times %s", k[0], k[1], done, ended[0], dropped, ended[1])
		}
		if k[0] == "open" && done == 1 && did[k[1]] == 0 {
			t.Errorf("task %s was completed and not run", k[1])
		}
	}
	if len(kept) < 2**crashes {
		t.Errorf("only %d timers and tasks were acknowledged", len(kept))
	}
}

// live sends commands from several clients until some were acknowledged, and returns while others are in flight.
func (b *bench) live(rng *rand.Rand, life int) *ledger {
	l := &ledger{acknowledged: map[[2]string]string{}, given: map[[2]string]string{}}
	enough := make(chan struct{}, 64)
	router := b.router // of this life
	living, end := context.WithCancel(context.Background())
	send := func(c entity.Command) (*structpb.Struct, bool) {
		ctx, cancel := context.WithTimeout(living, patience)
		defer cancel()
		m, err := router.Ask(ctx, c)
		reply, ok := m.(*structpb.Struct)
		return reply, err == nil && ok
	}
	var clients sync.WaitGroup
	for client := range 4 {
		seed := rng.Uint64()
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(client)))
			for i := range 4 {
				agenda, id := fmt.Sprintf("%d-%d", life/20, rng.IntN(10)), fmt.Sprintf("%d-%d-%d", life, client, i)
				action := [...]string{"set", "open"}[rng.IntN(2)]
				command := act(action, id)
				if action == "set" {
					command = timerOf(id, b.clock.Now().Add(time.Duration(rng.IntN(5000))*time.Millisecond))
				}
				if _, ok := send(toAgenda(agenda, command)); !ok {
					continue
				}
				l.note(l.acknowledged, action, id, agenda)
				enough <- struct{}{}
				if rng.IntN(4) == 0 {
					end := map[string]string{"set": "cancel", "open": "drop"}[action]
					reply, ok := send(toAgenda(agenda, act(end, id)))
					if n, _ := noted(reply, end, id); ok && n == 1 {
						l.note(l.given, action, id, agenda)
					}
				}
			}
		})
	}
	go func() { clients.Wait(); close(enough) }()
	l.end = func() { end(); clients.Wait() }
	for range 3 + rng.IntN(8) {
		<-enough
	}
	return l
}
