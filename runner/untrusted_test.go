package runner_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
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

// TestUpdatesWhileTheSessionOpens is for the race detector.
func TestUpdatesWhileTheSessionOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{
			Extended: true,
			New: func(p *runnertest.Process, _ acp.NewSessionRequest) {
				go func() {
					for range 100 {
						p.Say(context.Background(), acp.PromptRequest{SessionId: "another"}, "ready")
					}
				}()
			},
			Prompt: sayNothing,
		}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "terminal complete")
	})
}

// TestRequestsWhileTheAgentInitializes is for the race detector.
func TestRequestsWhileTheAgentInitializes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{
			Extended: true,
			Initialize: func(p *runnertest.Process) {
				for range 20 {
					go func() {
						_, _ = p.Connection.RequestPermission(context.Background(), acp.RequestPermissionRequest{
							SessionId: "inner", ToolCall: acp.ToolCallUpdate{ToolCallId: "1"},
							Options: []acp.PermissionOption{{OptionId: "yes", Kind: acp.PermissionOptionKindAllowOnce, Name: "Yes"}},
						})
					}()
				}
			},
			Prompt: sayNothing,
		}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "terminal complete")
	})
}

// TestRowsOfAnAgentAreBounded has an agent send a path and a status that are too long.
func TestRowsOfAnAgentAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 5000)
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			p.Update(ctx, r, acp.StartToolCall("1", "look", acp.WithStartLocations([]acp.ToolCallLocation{{Path: long}, {Path: "a"}})))
			p.Update(ctx, r, acp.UpdateToolCall("1", acp.WithUpdateStatus(acp.ToolCallStatus(long))))
			p.Update(ctx, r, acp.UpdateToolCall("1", acp.WithUpdateStatus(acp.ToolCallStatusCompleted)))
			p.Update(ctx, r, acp.StartToolCall("2", "odd", acp.WithStartStatus(acp.ToolCallStatus(long))))
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "tool look pending [a]", "tool look completed [a]", "tool odd pending []", "tool odd failed []", "terminal complete")
	})
}

// TestUpdateOfACallThatHasEnded has an agent that adds to a call after it has reported its end.
func TestUpdateOfACallThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			p.Update(ctx, r, acp.StartToolCall("1", "ls"))
			p.Update(ctx, r, acp.UpdateToolCall("1", acp.WithUpdateStatus(acp.ToolCallStatusCompleted)))
			p.Update(ctx, r, acp.UpdateToolCall("1", acp.WithUpdateTitle("list")))
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "tool ls pending []", "tool ls completed []", "terminal complete")
	})
}

func TestIDOfAnAgentIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{SessionID: acp.SessionId(strings.Repeat("x", 1<<20))}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "terminal interrupted agent_unavailable")
	})
}

// TestLostTurnThatHasActedIsNotRepeated is for agents with the extension that send no state, as the built-in one with a model.
func TestLostTurnThatHasActedIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			p.Update(ctx, r, acp.StartToolCall("1", "rm -r build"))
			p.Exit(137, "lost")
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.last(t, 2, "terminal interrupted computer_lost", "input "+meta.Continue)
	})
}

// TestInputsThatCannotBeRead expects that a turn does not try for ever, deaf to interruptions.
func TestInputsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true}, nil)
		defer f.end()
		f.start("go", auto)
		f.world.Intercept(func(c entity.Command) error {
			if read, is := c.Message.(*wirev1.ReadTimeline); is && !read.GetDescending() {
				return fmt.Errorf("the journal is broken")
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := f.run(ctx); err != nil || time.Since(began) > 5*time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		f.expect("input go", "terminal interrupted agent_failed")
	})
}

func TestReportedTokensAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
			return acp.PromptResponse{StopReason: acp.StopReasonEndTurn, Meta: map[string]any{
				meta.Usage: meta.TokenUsage{InputTokens: 1 << 62, OutputTokens: -1},
			}}, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		if used := f.world.Usage().GetUsed(); used.GetInputTokens() != entity.MaxTime || used.GetOutputTokens() != 0 {
			t.Errorf("the workspace refuses %v", used)
		}
	})
}

// TestTokenIsNotInErrors has agents with their token in errors and requests for permission, as an error with the headers of a request.
func TestTokenIsNotInErrors(t *testing.T) {
	for name, c := range map[string]struct {
		mode   sessionv1.Mode
		prompt func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest, token string) error
	}{
		"failure": {auto, func(_ context.Context, _ *runnertest.Process, _ acp.PromptRequest, token string) error {
			return acp.NewInternalError(map[string]any{"message": "refused: Bearer " + token})
		}},
		"question": {confirm, func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest, token string) error {
			title := "curl -H 'Authorization: Bearer " + token
			_, err := p.Connection.RequestPermission(ctx, acp.RequestPermissionRequest{
				SessionId: r.SessionId, ToolCall: acp.ToolCallUpdate{ToolCallId: "c1", Title: &title},
				Options: []acp.PermissionOption{{Kind: acp.PermissionOptionKindAllowOnce, Name: "Allow " + title, OptionId: "yes"}},
			})
			return err
		}},
		"plan and title": {auto, func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest, token string) error {
			p.Update(ctx, r, acp.UpdatePlan(acp.PlanEntry{Content: token, Status: acp.PlanEntryStatusPending, Priority: acp.PlanEntryPriorityLow}))
			p.Update(ctx, r, acp.SessionUpdate{SessionInfoUpdate: &acp.SessionSessionInfoUpdate{Title: &token}})
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var token string
				var log strings.Builder
				f := newFixture(t, &runnertest.Agent{
					Capabilities: acp.AgentCapabilities{McpCapabilities: acp.McpCapabilities{Http: true}},
					New: func(_ *runnertest.Process, r acp.NewSessionRequest) {
						token = strings.TrimPrefix(r.McpServers[0].Http.Headers[0].Value, "Bearer ")
					},
					Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
						return done, c.prompt(ctx, p, r, token)
					},
				}, func(o *runner.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
				defer f.end()
				f.start("go", c.mode)
				f.mustRun()
				if all := fmt.Sprint(f.world.Commands()); token == "" || !strings.Contains(all, "[token]") || strings.Contains(all+log.String(), token) {
					t.Errorf("the token %q is in %s\n%s", token, all, log.String())
				}
			})
		})
	}
}

func TestTokenIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var token string
		f := newFixture(t, &runnertest.Agent{
			Capabilities: acp.AgentCapabilities{McpCapabilities: acp.McpCapabilities{Http: true}},
			New: func(_ *runnertest.Process, r acp.NewSessionRequest) {
				token = strings.TrimPrefix(r.McpServers[0].Http.Headers[0].Value, "Bearer ")
			},
			Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
				p.Update(ctx, r, acp.StartToolCall("1", "echo "+token, acp.WithStartStatus(acp.ToolCallStatusCompleted),
					acp.WithStartContent([]acp.ToolCallContent{acp.ToolContent(acp.TextBlock("TOKEN=" + token))})))
				p.Say(ctx, r, "the token is "+token)
				return done, nil
			},
		}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "tool echo [token] completed [] TOKEN=[token]", "text the token is [token]", "terminal complete")
	})
}
