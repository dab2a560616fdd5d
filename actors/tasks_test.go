package actors_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/persistence"
)

// withChores registers an executor for the tasks of agendas.
func withChores(limit int, run func(context.Context, actors.Task) (proto.Message, error)) func(*bench) {
	return func(b *bench) {
		withAgenda(b)
		b.executors = map[string]actors.Executor{"chore": {
			Limit: limit, FirstPause: time.Millisecond, LongestPause: 5 * time.Millisecond, Run: run,
		}}
	}
}

func doChore(_ context.Context, task actors.Task) (proto.Message, error) { return task.Message, nil }

func TestTask(t *testing.T) {
	t.Run("is run and completed", func(t *testing.T) {
		b := newBench(t, withChores(2, func(_ context.Context, task actors.Task) (proto.Message, error) {
			if task.EntityKind != "agenda" || task.Identity != "a" || task.Kind != "chore" || task.ID != "1" || task.Attempt != 1 ||
				task.OpenedAt.UnixMilli() != 1_700_000_000_000 {
				return nil, fmt.Errorf("unexpected task %+v", task)
			}
			return task.Message, nil
		}))
		b.mustAsk(toAgenda("a", act("open", "1")))
		b.eventually(func() bool { return b.count("a", "done", "1") == 1 && b.rows("task") == 0 })
	})
	t.Run("is retried after an error and after a panic", func(t *testing.T) {
		var runs atomic.Int64
		b := newBench(t, withChores(1, func(_ context.Context, task actors.Task) (proto.Message, error) {
			switch runs.Add(1) {
			case 1:
				return nil, errors.New("not now")
			case 2:
				panic("not now")
			case 3:
				return nil, nil // completed without a command
			}
			return task.Message, nil
		}))
		b.mustAsk(toAgenda("a", act("open", "1")))
		b.eventually(func() bool { return b.count("a", "done", "1") == 1 })
		if runs.Load() != 4 {
			t.Errorf("it ran %d times", runs.Load())
		}
	})
	t.Run("limit applies to all partitions together", func(t *testing.T) {
		var running, most atomic.Int64
		b := newBench(t, withChores(3, func(_ context.Context, task actors.Task) (proto.Message, error) {
			defer running.Add(-1)
			now := running.Add(1)
			for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			}
			if task.ID[len(task.ID)-1] == '7' && task.Attempt == 1 {
				return nil, errors.New("not now")
			}
			return task.Message, nil
		}))
		for i := range 200 {
			b.mustAsk(toAgenda(fmt.Sprint(i%20), act("open", fmt.Sprint(i))))
		}
		b.eventually(func() bool { return b.rows("task") == 0 })
		if most.Load() > 3 {
			t.Errorf("%d ran at once", most.Load())
		}
		b.eventually(func() bool { return b.metric("atelier_task_attempts_total", "done") == 200 })
	})
}

// TestTaskIsOpenedAgain removes a task and opens it again at once, while its executor is still returning. Each time it runs again.
func TestTaskIsOpenedAgain(t *testing.T) {
	began := make(chan struct{}, 1)
	b := newBench(t, withChores(1, func(ctx context.Context, _ actors.Task) (proto.Message, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	const rounds = 500
	for i := range rounds {
		b.mustAsk(toAgenda("a", act("open", "1")))
		select {
		case <-began:
		case <-time.After(patience):
			t.Fatalf("in round %d it does not run", i)
		}
		b.mustAsk(toAgenda("a", act("drop", "1")))
	}
}

// TestTaskThatIsOpenedAgainRunsAtOnce removes a task and opens it again. It does not wait for the pause after the attempts before.
func TestTaskThatIsOpenedAgainRunsAtOnce(t *testing.T) {
	began, leave := make(chan struct{}, 1), make(chan struct{})
	reopened := func(run func(context.Context) error) *bench {
		return newBench(t, withChores(2, func(ctx context.Context, _ actors.Task) (proto.Message, error) {
			began <- struct{}{}
			return nil, run(ctx)
		}), pausing(time.Hour))
	}
	await := func(t *testing.T) {
		t.Helper()
		select {
		case <-began:
		case <-time.After(patience):
			t.Fatal("it does not run again")
		}
	}
	t.Run("after an attempt that was cancelled", func(t *testing.T) {
		b := reopened(func(ctx context.Context) error {
			<-ctx.Done()
			<-leave
			return ctx.Err()
		})
		for range 2 {
			b.mustAsk(toAgenda("a", act("open", "1")))
			await(t)
			b.mustAsk(toAgenda("a", act("drop", "1")))
			b.mustAsk(toAgenda("a", act("open", "1")))
			leave <- struct{}{}
			await(t)
			b.mustAsk(toAgenda("a", act("drop", "1")))
			leave <- struct{}{}
		}
	})
	t.Run("after an attempt that failed", func(t *testing.T) {
		b := reopened(func(context.Context) error { return errors.New("not now") })
		for i := range 5 {
			b.mustAsk(toAgenda("a", act("open", "1")))
			await(t)
			b.eventually(func() bool { return b.metric("atelier_task_attempts_total", "retried") == float64(i+1) })
			b.mustAsk(toAgenda("a", act("drop", "1")))
		}
	})
}

// TestFailedTaskWaits opens tasks that fail while others are opened. None runs again before its pause has passed.
func TestFailedTaskWaits(t *testing.T) {
	var seen sync.Map
	var runs, again atomic.Int64
	b := newBench(t, withChores(2, func(_ context.Context, task actors.Task) (proto.Message, error) {
		runs.Add(1)
		if _, ran := seen.LoadOrStore(task.Identity+task.ID, true); ran {
			again.Add(1)
		}
		return nil, errors.New("not now")
	}), pausing(time.Hour))
	const writers, each = 4, 50
	var opening sync.WaitGroup
	for w := range writers {
		opening.Go(func() {
			for i := range each {
				b.mustAsk(toAgenda(fmt.Sprint(w), act("open", fmt.Sprint(i))))
			}
		})
	}
	opening.Wait()
	b.eventually(func() bool { return b.metric("atelier_task_attempts_total", "retried") >= writers*each })
	if again.Load() > 0 {
		t.Errorf("%d of %d attempts did not wait", again.Load(), runs.Load())
	}
}

// pausing sets the pause after an attempt that has failed.
func pausing(pause time.Duration) func(*bench) {
	return func(b *bench) {
		chore := b.executors["chore"]
		chore.FirstPause, chore.LongestPause = pause, pause
		b.executors["chore"] = chore
	}
}

func TestTaskEnds(t *testing.T) {
	t.Run("is cancelled when it is removed", func(t *testing.T) {
		began := make(chan string, 1)
		b := newBench(t, withChores(1, func(ctx context.Context, task actors.Task) (proto.Message, error) {
			if task.ID == "long" {
				began <- task.ID
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return task.Message, nil
		}))
		b.mustAsk(toAgenda("a", act("open", "long")))
		<-began
		b.mustAsk(toAgenda("b", act("open", "next")))
		b.mustAsk(toAgenda("a", act("drop", "long")))
		b.eventually(func() bool { return b.count("b", "done", "next") == 1 })
		b.eventually(func() bool { return b.metric("atelier_task_attempts_total", "cancelled") == 1 })
		if b.count("a", "done", "long") != 0 || b.rows("task") != 0 {
			t.Error("a cancelled task was completed, or its row remains")
		}
	})
	t.Run("ends with the term and runs again in the next process", func(t *testing.T) {
		began, ended := make(chan struct{}, 1), make(chan error, 1)
		b := newBench(t, withChores(1, func(ctx context.Context, _ actors.Task) (proto.Message, error) {
			began <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}))
		b.mustAsk(toAgenda("a", act("open", "1")))
		<-began
		b.stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		b.executors["chore"] = actors.Executor{Run: doChore}
		b.start()
		b.eventually(func() bool { return b.count("a", "done", "1") == 1 })
	})
	t.Run("failing tasks delay no others", func(t *testing.T) {
		b := newBench(t, withChores(2, func(_ context.Context, task actors.Task) (proto.Message, error) {
			if task.Identity == "poisoned" {
				return nil, errors.New("never")
			}
			return task.Message, nil
		}))
		for i := range 50 {
			b.mustAsk(toAgenda("poisoned", act("open", fmt.Sprint(i))))
		}
		b.mustAsk(toAgenda("a", act("open", "1")))
		b.eventually(func() bool { return b.count("a", "done", "1") == 1 })
		if got := b.metric("atelier_tasks_open", "chore"); got != 50 {
			t.Errorf("%v are open", got)
		}
		for i := range 50 {
			b.mustAsk(toAgenda("poisoned", act("drop", fmt.Sprint(i))))
		}
		b.eventually(func() bool { return b.rows("task") == 0 })
	})
	t.Run("failing tasks without a pause leave slots for others", func(t *testing.T) {
		b := newBench(t, withChores(1, func(_ context.Context, task actors.Task) (proto.Message, error) {
			if task.ID != "good" {
				return nil, errors.New("never")
			}
			return task.Message, nil
		}))
		chore := b.executors["chore"]
		chore.FirstPause, chore.LongestPause = 1, 1
		b.executors["chore"] = chore
		b.restart()
		for i := range 3 {
			b.mustAsk(toAgenda("poisoned", act("open", fmt.Sprint(i))))
		}
		b.eventually(func() bool { return b.metric("atelier_task_attempts_total", "retried") >= 10 })
		b.mustAsk(toAgenda("poisoned", act("open", "good")))
		for i := range 2 * partitions {
			b.mustAsk(toAgenda(fmt.Sprint(i), act("open", "good")))
		}
		b.eventually(func() bool { return b.rows("task") == 3 })
	})
}

// TestTaskWithoutItsRow verifies that the next event of an entity writes the rows of tasks that its kind did not declare when
// the state was recorded.
func TestTaskWithoutItsRow(t *testing.T) {
	b := newBench(t, withAgenda)
	b.mustAsk(toAgenda("a", act("open", "1")))
	removed := make(chan persistence.Result, 1)
	b.journal.Append(persistence.Proposal{
		Partition: b.router.Partition("a"), Stream: "rows/test", Epoch: 1, Entries: []persistence.Change{{
			Entry: persistence.Entry{Index: "task", Value: "chore\x00agenda/a\x001"}, Remove: true,
		}},
	}, func(r persistence.Result) { removed <- r })
	if r := <-removed; r.Err != nil || b.rows("task") != 0 {
		t.Fatalf("the row is not removed: %v", r.Err)
	}
	b.executors = map[string]actors.Executor{"chore": {Run: doChore}}
	b.restart()
	b.mustAsk(toAgenda("a", act("note", "")))
	b.eventually(func() bool { return b.count("a", "done", "1") == 1 && b.rows("task") == 0 })
}

func TestFollowRunsForEachTerm(t *testing.T) {
	var mu sync.Mutex
	running := map[actors.OwnedPartition]int{}
	b := newBench(t, func(b *bench) {
		b.follower = func(ctx context.Context, p actors.OwnedPartition) {
			mu.Lock()
			running[p]++
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			running[p]--
		}
	})
	all := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(running)
	}
	b.eventually(func() bool { return all() == partitions })
	b.stop()
	for _, n := range running {
		if n != 0 {
			t.Errorf("%d calls of Follow for one partition run after the system has stopped", n)
		}
	}
	b.start()
}
