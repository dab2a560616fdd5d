package actors

import (
	"errors"
	"log/slog"
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
			limit := b.pauses.Limit(i + 1)
			if got := (<-r.restarts).Sub(failed); got < limit/2 || got > limit {
				t.Errorf("restart %d comes after %v, not at most %v", i, got, limit)
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

// A supervisorFunc is a strategy that passes each failure to a function.
type supervisorFunc func(supervisor actor.Supervisor, child *actor.PID)

func (f supervisorFunc) HandleFailure(_ *actor.ActorSystem, supervisor actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, _, _ any) {
	f(supervisor, child)
}

// startFailing starts an actor with a mailbox. receive is called with each message, except Stopping, which closes the mailbox, as
// the actors of a shard do.
func startFailing(t *testing.T, handleFailure supervisorFunc, receive func(actor.Context)) (*actor.RootContext, *actor.PID) {
	t.Helper()
	system := actor.NewActorSystemWithConfig(actor.Configure(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.DiscardHandler)
	})))
	t.Cleanup(system.Shutdown)
	box := newMailbox(newMetrics(nil, []string{shardKind}).kinds[shardKind])
	guardian := &struct{ supervisorFunc }{handleFailure} // protoactor needs a strategy that can be compared
	pid := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if _, stopping := ctx.Message().(*actor.Stopping); stopping {
			box.closed.Store(true)
		}
		receive(ctx)
	}, actor.WithMailbox(func() actor.Mailbox { return box }), actor.WithGuardian(guardian)))
	return system.Root, pid
}

// TestMessagesOfActorThatFailsWhenStopped stops an actor while it handles a message in which it then fails. The message after it
// is answered.
func TestMessagesOfActorThatFailsWhenStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := &settleRequest{done: make(chan error, 1)}
		root, pid := startFailing(t, func(actor.Supervisor, *actor.PID) {}, func(ctx actor.Context) {
			if _, fails := ctx.Message().(feedGrew); fails {
				ctx.Send(ctx.Self(), waiting)
				ctx.Stop(ctx.Self())
				panic("failed")
			}
		})
		root.Send(pid, feedGrew{})
		select {
		case err := <-waiting.done:
			if !errors.Is(err, ErrRetry) {
				t.Error(err)
			}
		case <-time.After(time.Second):
			t.Error("the message was not answered")
		}
	})
}

// TestRestartOfStoppingActor restarts an actor that was stopped after its failure and waits for its child to stop. It stops.
func TestRestartOfStoppingActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, stopped := make(chan actor.Supervisor, 1), make(chan struct{})
		childStops, stopChild := make(chan struct{}), make(chan struct{})
		child := actor.PropsFromFunc(func(ctx actor.Context) {
			if _, stopping := ctx.Message().(*actor.Stopping); stopping {
				close(childStops)
				<-stopChild
			}
		})
		root, pid := startFailing(t, func(s actor.Supervisor, _ *actor.PID) { failed <- s }, func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case feedGrew:
				ctx.Spawn(child)
				panic("failed")
			case *actor.Stopped:
				close(stopped)
			}
		})
		root.Send(pid, feedGrew{})
		supervisor := <-failed
		root.Stop(pid)
		<-childStops
		supervisor.RestartChildren(pid)
		close(stopChild)
		select {
		case <-stopped:
		case <-time.After(time.Second):
			t.Error("the actor was restarted and not stopped")
		}
	})
}

// invoked records the messages that a mailbox delivers.
type invoked struct {
	actor.MessageInvoker
	all []any
}

func (i *invoked) InvokeSystemMessage(m any) { i.all = append(i.all, m) }
func (i *invoked) InvokeUserMessage(m any)   { i.all = append(i.all, m) }

// TestMessagesBeforeStart sends messages to an actor that is known by its name and not completely spawned. They come after Started.
func TestMessagesBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, got, scheduler := newMailbox(newMetrics(nil, []string{shardKind}).kinds[shardKind]), &invoked{}, newDispatcher()
		defer scheduler.end()
		for _, post := range []func(){
			func() { box.PostUserMessage(feedGrew{}) },
			func() { box.PostSystemMessage(&actor.Watch{}) },
		} {
			go post()
			synctest.Wait()
		}
		box.RegisterHandlers(got, scheduler)
		box.PostSystemMessage(&actor.Started{})
		synctest.Wait()
		if len(got.all) != 1 {
			t.Fatalf("before the start it gets %T", got.all)
		}
		box.Start()
		synctest.Wait()
		if len(got.all) != 3 {
			t.Errorf("it gets %T", got.all)
		}
	})
}
