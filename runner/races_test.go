package runner_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// whileItBegins calls act when a run has taken the turn, before its agent gets the inputs.
func (f *fixture) whileItBegins(act func()) {
	var isTaken atomic.Bool
	f.world.Intercept(func(c entity.Command) error {
		switch c.Message.(type) {
		case *sessionv1.ClaimTurn:
			isTaken.Store(true)
		case *wirev1.ReadTimeline:
			if isTaken.CompareAndSwap(true, false) {
				act()
			}
		}
		return nil
	})
}

// TestInterruptWhileTheTurnBegins has many rounds, because the agent handles messages at the same time.
func TestInterruptWhileTheTurnBegins(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
			defer f.end()
			f.start("go", auto)
			f.whileItBegins(func() { f.must(alice, &sessionv1.Interrupt{}) })
			began := time.Now()
			f.mustRun()
			if took := time.Since(began); took > time.Second {
				t.Fatalf("took %s", took)
			}
			f.last(t, 1, "terminal interrupted")
		})
	}
}

// TestSteerWhileTheAgentBegins has an agent that begins with the prompt after it has refused the input.
func TestSteerWhileTheAgentBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steered, n := make(chan struct{}), 0
		f := newFixture(t, &runnertest.Agent{
			Extended: true,
			Steer: func(*runnertest.Process, meta.SteerRequest[acp.ContentBlock]) bool {
				if n++; n == 2 {
					close(steered)
				}
				return n > 1
			},
			Prompt: func(ctx context.Context, _ *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
				select {
				case <-steered:
				case <-time.After(time.Hour):
				case <-ctx.Done():
				}
				return done, nil
			},
		}, nil)
		defer f.end()
		f.start("go", auto)
		f.whileItBegins(func() { f.send("left") })
		f.mustRun()
		f.expect("input go", "input left", "terminal complete", "terminal complete")
	})
}

// TestManyInputsWhileTheTurnBegins has more inputs arrive than the turn takes at once.
func TestManyInputsWhileTheTurnBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 100
		steered, n := make(chan struct{}), 0
		f := newFixture(t, &runnertest.Agent{
			Extended: true,
			Steer: func(_ *runnertest.Process, r meta.SteerRequest[acp.ContentBlock]) bool {
				if n += len(r.Prompt); n == count {
					close(steered)
				}
				return true
			},
			Prompt: func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
				select {
				case <-steered:
				case <-time.After(time.Minute):
				}
				return done, nil
			},
		}, nil)
		defer f.end()
		f.start("go", auto)
		f.whileItBegins(func() {
			for range count {
				f.send("left")
			}
		})
		f.mustRun()
		if s := f.world.Session(sessionID); n != count || s.GetTurn() != nil {
			t.Errorf("the agent got %d inputs, and the next turn is %v", n, s.GetTurn())
		}
	})
}

// askWhenCancelled requests a permission when it has been cancelled, as an agent does if its request and its cancellation meet. It
// does not end its turn before the request is answered.
func askWhenCancelled(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
	<-ctx.Done()
	return askPermission(context.WithoutCancel(ctx), p, r)
}

func TestPermissionThatMeetsACancellation(t *testing.T) {
	t.Run("by an interruption", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: askWhenCancelled}, nil)
			defer f.end()
			f.start("go", confirm)
			go func() {
				time.Sleep(time.Second)
				f.must(alice, &sessionv1.Interrupt{})
			}()
			began := time.Now()
			f.mustRun()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("took %s", took)
			}
		})
	})
	t.Run("by another message", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: thenEcho(askWhenCancelled)}, nil)
			defer f.end()
			f.start("go", confirm)
			go f.sendLater("left")
			f.mustRun()
			f.expect("input go", "input left", "text left", "terminal complete", "terminal complete")
		})
	})
}

// TestLostTurnIsRepeatedWithAnInputThatWaits loses the computer when an input has arrived that the agent has not taken. The input
// precedes the input of the system that continues the session.
func TestLostTurnIsRepeatedWithAnInputThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = newFixture(t, &runnertest.Agent{Extended: true, Prompt: thenEcho(func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			f.send("left")
			p.Exit(137, "lost")
			return done, nil
		})}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.mustRun()
		f.last(t, 3, "text go\nleft", "terminal complete", "terminal complete")
	})
}

// TestAnswerToAnAgentThatHasGivenUp answers a request for permission after the agent has stopped waiting.
func TestAnswerToAnAgentThatHasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: thenEcho(func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			go func() { _, _ = askPermission(ctx, p, r) }()
			time.Sleep(time.Minute)
			return acp.PromptResponse{}, acp.NewInternalError(nil)
		})}, nil)
		defer f.end()
		f.start("go", confirm)
		f.mustRun()
		time.Sleep(2 * time.Minute)
		f.answer("Yes")
		f.mustRun()
		f.last(t, 3, "input permission.2", "text The answer to your question: Yes", "terminal complete")
	})
}

// TestComputerIsLostWhileATurnBegins loses the computer of an agent that waits for a permission when the next turn has taken it. That
// turn ends as any other turn that loses its computer, and the session goes on.
func TestComputerIsLostWhileATurnBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: thenEcho(askPermission)}, nil)
		defer f.end()
		f.start("go", confirm)
		f.mustRun()
		f.send("never mind")
		f.whileItBegins(func() {
			f.computers.Started()[0].Exit(137, "lost")
			synctest.Wait()
		})
		f.mustRun()
		f.last(t, 2, "terminal interrupted computer_lost", "input The computer was lost and is back. The agent begins again.")
		f.mustRun()
		f.last(t, 2, "text never mind", "terminal complete")
	})
}

// lateComputers know the end of a process some time after its streams have ended, as computers do that record its last changes.
type lateComputers struct{ *runnertest.Computers }

type lateProcess struct{ runner.Process }

func (c lateComputers) Launch(ctx context.Context, l runner.Launch) (runner.Process, error) {
	p, err := c.Computers.Launch(ctx, l)
	return lateProcess{p}, err
}

func (p lateProcess) Wait(ctx context.Context) (status int, reason string, err error) {
	status, reason, err = p.Process.Wait(ctx)
	if ctx.Err() != nil {
		return 0, "", ctx.Err()
	}
	time.Sleep(30 * time.Second)
	return status, reason, err
}

func TestComputerWhoseLossIsKnownLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(_ context.Context, p *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
			p.Exit(137, "stopped")
			return done, nil
		}}, func(o *runner.Options) { o.Computers = lateComputers{o.Computers.(*runnertest.Computers)} })
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "terminal interrupted computer_lost", "input "+meta.Continue)
	})
}

// replacedComputers know the ends of their processes. The streams of the processes have not ended yet, as after
// the replacement of a computer.
type replacedComputers struct {
	*runnertest.Computers
	replaced chan struct{}
}

type replacedProcess struct {
	runner.Process
	replaced chan struct{}
}

func (c *replacedComputers) Launch(ctx context.Context, l runner.Launch) (runner.Process, error) {
	p, err := c.Computers.Launch(ctx, l)
	return replacedProcess{p, c.replaced}, err
}

func (p replacedProcess) Wait(ctx context.Context) (status int, reason string, err error) {
	select {
	case <-p.replaced:
		return 137, "stopped", nil
	default:
	}
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.replaced:
			cancel()
		case <-over.Done():
		}
	}()
	if status, reason, err = p.Process.Wait(over); err != nil && ctx.Err() == nil {
		return 137, "stopped", nil
	}
	return status, reason, err
}

// TestTurnAfterAReplacement sends a message right after the computer of an idle agent was replaced. The turn gets an agent of the new
// computer.
func TestTurnAfterAReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var computers *replacedComputers
		f := newFixture(t, &runnertest.Agent{Prompt: thenEcho(func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
			return done, nil
		})}, func(o *runner.Options) {
			computers = &replacedComputers{o.Computers.(*runnertest.Computers), make(chan struct{})}
			o.Computers = computers
		})
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		old := computers.replaced
		computers.replaced = make(chan struct{})
		close(old)
		computers.StopListening(runnertest.WorkspaceID)
		f.send("again")
		f.mustRun()
		f.last(t, 1, "terminal complete")
		if n := len(f.computers.Started()); n != 2 {
			t.Errorf("%d agents were started, want another one in the new computer", n)
		}
	})
}

// TestAgentThatTakesAnInputLate answers the request to take it after the time in which the runner waits for it.
func TestAgentThatTakesAnInputLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{
			Extended: true,
			Steer: func(*runnertest.Process, meta.SteerRequest[acp.ContentBlock]) bool {
				time.Sleep(10 * time.Second)
				return true
			},
			Prompt: func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
				time.Sleep(10 * time.Second)
				return done, nil
			},
		}, nil)
		defer f.end()
		f.start("go", auto)
		go f.sendLater("left")
		f.mustRun()
		f.expect("input go", "input left", "terminal complete", "terminal complete")
	})
}

func TestComputerWhoseLossInAStartIsKnownLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{New: func(p *runnertest.Process, _ acp.NewSessionRequest) {
			p.Exit(137, "stopped")
		}}, func(o *runner.Options) { o.Computers = lateComputers{o.Computers.(*runnertest.Computers)} })
		defer f.end()
		f.start("go", auto)
		if err := f.run(t.Context()); err == nil || f.world.Session(sessionID).GetTurn() == nil {
			t.Errorf("the turn does not wait for the computer: %v, %q", err, f.world.Timeline(sessionID))
		}
	})
}

// TestServerThatStopsAtTheEnd stops the server when the agent, which has requested a sleep, ends its prompt.
func TestServerThatStopsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var f *fixture
		f = newFixture(t, &runnertest.Agent{Prompt: func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
			err := f.tools.sessions[0].SleepUntil(ctx, time.Now().Add(time.Hour))
			cancel()
			return done, err
		}}, nil)
		defer f.end()
		f.start("go", auto)
		_ = f.run(ctx)
		f.expect("input go", "terminal sleep")
	})
}

// TestSuspensionThatMeetsTheEnd suspends the workspace when the agent, which has requested a sleep, ends its prompt.
func TestSuspensionThatMeetsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, _ *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
			err := f.tools.sessions[0].SleepUntil(ctx, time.Now().Add(time.Hour))
			f.must(entity.Platform(), &sessionv1.Interrupt{Reason: &sessionv1.Failure{Code: "workspace_suspended"}})
			synctest.Wait()
			return done, err
		}}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "terminal sleep")
	})
}
