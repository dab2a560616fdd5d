package runner_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// waitForCancel works until the prompt is cancelled.
func waitForCancel(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
	p.Say(ctx, r, "working")
	<-ctx.Done()
	return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
}

func TestSteer(t *testing.T) {
	t.Run("with the extension", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			steered := make(chan string, 1)
			f := newFixture(t, &runnertest.Agent{
				Extended: true,
				Steer: func(_ *runnertest.Process, r meta.SteerRequest[acp.ContentBlock]) bool {
					steered <- r.Prompt[0].Text.Text + " " + r.Meta.Inputs[0].Sender.UserID
					return true
				},
				Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
					p.Say(ctx, r, "one")
					text := <-steered
					synctest.Wait() // the runner records that the input has joined
					p.Say(ctx, r, text)
					return done, nil
				},
			}, nil)
			defer f.end()
			f.start("go", auto)
			go f.sendLater("left")
			f.mustRun()
			f.expect("input go", "input left", "text one", "text left alice", "terminal complete", "terminal complete")
		})
	})
	t.Run("without it the prompt is cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: thenEcho(waitForCancel)}, nil)
			defer f.end()
			f.start("go", auto)
			go f.sendLater("left")
			f.mustRun()
			got := f.world.Timeline(sessionID)
			if joined := strings.Join(got, ", "); !strings.HasSuffix(joined, "text left, terminal complete, terminal complete") || !strings.Contains(joined, "text working") {
				t.Errorf("timeline %q", got)
			}
		})
	})
}

func TestInterrupt(t *testing.T) {
	for name, c := range map[string]struct {
		stubborn bool
		reason   *sessionv1.Failure
		want     string
		ends     bool
	}{
		"by a person":      {want: "terminal interrupted"},
		"by the platform":  {reason: &sessionv1.Failure{Code: "workspace_suspended"}, want: "terminal interrupted workspace_suspended", ends: true},
		"a stubborn agent": {stubborn: true, want: "terminal interrupted", ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
					if c.stubborn {
						<-p.Ended()
					}
					return waitForCancel(ctx, p, r)
				}}, nil)
				defer f.end()
				f.start("go", auto)
				go func() {
					time.Sleep(time.Second)
					by := alice
					if c.reason != nil {
						by = entity.Platform()
					}
					f.must(by, &sessionv1.Interrupt{Reason: c.reason})
				}()
				f.mustRun()
				if got := f.world.Timeline(sessionID); got[len(got)-1] != c.want {
					t.Errorf("timeline %q", got)
				}
				synctest.Wait()
				select {
				case <-f.computers.Started()[0].Ended():
					if !c.ends {
						t.Error("the process was ended")
					}
				default:
					if c.ends {
						t.Error("the process runs")
					}
				}
			})
		})
	}
}

func TestSilentAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(_ context.Context, p *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
			<-p.Ended()
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		began := time.Now()
		f.mustRun()
		f.expect("input go", "terminal interrupted agent_timeout")
		if took := time.Since(began); took < 15*time.Minute || took > 16*time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

func TestProcessThatEndsInATurn(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		reason, want string
		resumes      bool
	}{
		"crash":         {1, "", "terminal interrupted agent_failed", false},
		"out of memory": {137, "out_of_memory", "terminal interrupted out_of_memory", false},
		"disk full":     {137, "disk_full", "terminal interrupted agent_failed", false},
		"computer lost": {137, "lost", "terminal interrupted computer_lost", true},
		"stopped":       {137, "stopped", "terminal interrupted computer_lost", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
					p.Say(ctx, r, "half")
					p.Exit(c.status, c.reason)
					return done, nil
				}}, nil)
				defer f.end()
				f.start("go", auto)
				f.mustRun()
				want := []string{"input go", "text half", c.want}
				if c.resumes {
					want = append(want, "input "+meta.Continue)
				}
				f.expect(want...)
			})
		})
	}
}

func TestLostTurnWithoutStateIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			if n++; n < 3 {
				p.Exit(137, "lost")
				return done, nil
			}
			p.Say(ctx, r, textOf(r))
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		for range 3 {
			f.mustRun()
		}
		f.last(t, 2, "text go", "terminal complete")
	})
}

func TestBrokenAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Broken: 127}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "terminal interrupted agent_unavailable")
	})
}

func TestComputerThatIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
		defer f.end()
		f.start("go", auto)
		f.computers.Refuse = func() error { return &entity.Error{Code: entity.Unavailable, Message: "busy"} }
		if err := f.run(t.Context()); err == nil || f.world.Session(sessionID).GetTurn().GetRunId() != "" {
			t.Errorf("the turn was taken: %v", err)
		}
		f.computers.Refuse = func() error { return entity.Errorf(entity.LimitReached, "the drive is full") }
		f.mustRun()
		f.expect("input go", "terminal interrupted agent_unavailable")
	})
}

func TestSuspendedWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
		defer f.end()
		f.start("go", auto)
		f.world.ChangeWorkspace(func(w *workspacev1.Workspace) { w.Suspension = &workspacev1.Suspension{At: 1} })
		if err := f.run(t.Context()); err == nil || len(f.computers.Started()) != 0 {
			t.Errorf("the turn ran: %v", err)
		}
	})
}

func TestClaimAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
		defer f.end()
		f.start("go", auto)
		f.must(entity.Platform(), &sessionv1.ClaimTurn{TurnId: f.world.Session(sessionID).GetTurn().GetId(), RunId: "run_earlier"})
		f.mustRun()
		f.expect("input go", "terminal interrupted runner_lost")
		if len(f.computers.Started()) != 0 {
			t.Error("an agent was started")
		}
	})
}

func TestServerThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
		defer f.end()
		f.start("go", auto)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		_ = f.run(ctx)
		f.expect("input go", "text working", "terminal interrupted runner_lost")
	})
}

func TestDeletedSessionStopsItsAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
		defer f.end()
		f.start("go", auto)
		go func() {
			time.Sleep(time.Second)
			f.must(alice, &sessionv1.DeleteSession{})
		}()
		f.mustRun()
		<-f.computers.Started()[0].Ended()
	})
}

// TestWorkspaceThatIsSuspendedMeanwhile suspends the workspace after the runner has first looked, so that the turn is not interrupted.
func TestWorkspaceThatIsSuspendedMeanwhile(t *testing.T) {
	suspend := func(f *fixture) {
		f.world.ChangeWorkspace(func(w *workspacev1.Workspace) { w.Suspension = &workspacev1.Suspension{At: 1} })
	}
	t.Run("before the run takes the turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
			defer f.end()
			f.start("go", auto)
			f.computers.Refuse = func() error { suspend(f); return nil }
			if err := f.run(t.Context()); err == nil || f.world.Session(sessionID).GetTurn().GetRunId() != "" {
				t.Errorf("the turn was taken: %v", err)
			}
		})
	})
	t.Run("when the run takes it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
			defer f.end()
			f.start("go", auto)
			f.world.Intercept(func(c entity.Command) error {
				if _, is := c.Message.(*sessionv1.ClaimTurn); is {
					suspend(f)
				}
				return nil
			})
			f.mustRun()
			f.expect("input go", "terminal interrupted workspace_suspended")
		})
	})
}

// TestCommandWithoutMemory has the kernel end a command of an agent, which then fails or goes on.
func TestCommandWithoutMemory(t *testing.T) {
	for name, c := range map[string]struct {
		fails bool
		want  string
	}{
		"the agent fails":   {true, "terminal interrupted out_of_memory"},
		"the agent goes on": {false, "terminal complete"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: func(_ context.Context, p *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
					p.KillDescendant()
					if c.fails {
						return acp.PromptResponse{}, errors.New("no result")
					}
					return done, nil
				}}, nil)
				defer f.end()
				f.start("go", auto)
				f.mustRun()
				f.expect("input go", c.want)
			})
		})
	}
}
