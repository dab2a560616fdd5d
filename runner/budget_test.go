package runner_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/runnertest"
)

const budgetQuestion = "ask The session has used its budget of tokens or time. Go on? continue|stop"

// spend is an agent that reports tokens and works until it is cancelled, or ends if its prompt says so.
func spend(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
	text := textOf(r)
	p.Say(ctx, r, text)
	if strings.HasPrefix(text, "end") {
		return done, nil
	}
	p.UpdateMeta(ctx, r, acp.UpdateAgentThoughtText("Hm."), map[string]any{meta.Usage: meta.TokenUsage{InputTokens: 80, OutputTokens: 30}})
	<-ctx.Done()
	return acp.PromptResponse{StopReason: acp.StopReasonCancelled, Meta: map[string]any{meta.Usage: meta.TokenUsage{InputTokens: 80, OutputTokens: 30}}}, nil
}

func withBudgets(b runner.Budgets) func(*runner.Options) {
	return func(o *runner.Options) { o.Config.Budgets = b }
}

func (f *fixture) last(t *testing.T, n int, want ...string) {
	t.Helper()
	got := f.world.Timeline(sessionID)
	if got = got[max(len(got)-n, 0):]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the timeline ends with %q, want %q", got, want)
	}
}

func TestBudgetOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: spend}, withBudgets(runner.Budgets{SessionTokens: 100}))
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.last(t, 2, budgetQuestion, "terminal ask")
		f.answer("continue")
		f.mustRun()
		f.expect("input go", "text go", "thought Hm.", budgetQuestion, "terminal ask", "input budget.session.continue.begun",
			"text "+meta.Continue, "thought Hm.", budgetQuestion, "terminal ask")
		// A turn that begins without budget asks at once, and the answer gives the agent its input.
		f.send("end it")
		f.mustRun()
		f.last(t, 3, "input end it", budgetQuestion, "terminal ask")
		f.answer("continue")
		f.mustRun()
		f.last(t, 3, "input budget.session.continue.unbegun", "text end it", "terminal complete")
	})
}

func TestBudgetThatIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: spend}, withBudgets(runner.Budgets{SessionTokens: 100}))
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.must(alice, &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, Text: " Stop "}})
		f.mustRun()
		f.last(t, 2, "input  Stop ", "terminal interrupted budget")
	})
}

func TestBudgetOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, withBudgets(runner.Budgets{SessionTime: time.Minute}))
		defer f.end()
		f.start("go", auto)
		began := time.Now()
		f.mustRun()
		f.last(t, 2, budgetQuestion, "terminal ask")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

func TestBudgetOfAWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: spend}, withBudgets(runner.Budgets{WorkspaceTokens: 100}))
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		if used := f.world.Usage().GetUsed(); used.GetInputTokens() != 80 || used.GetOutputTokens() != 30 {
			t.Errorf("used %v", used)
		}
		f.last(t, 1, "terminal ask")
		f.answer("continue")
		f.mustRun()
		if u := f.world.Usage(); u.GetAllowed().GetInputTokens() != 80 || u.GetUsed().GetInputTokens() != 160 {
			t.Errorf("usage %v", u)
		}
	})
}

// TestUsageOfAPromptOverTurns has an agent report the total of a prompt that a request for permission divides into two turns. Each
// token counts once.
func TestUsageOfAPromptOverTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			report := func(input, output int64) map[string]any {
				return map[string]any{meta.Usage: meta.TokenUsage{InputTokens: input, OutputTokens: output}}
			}
			p.UpdateMeta(ctx, r, acp.UpdateAgentThoughtText("Hm."), report(80, 30))
			response, err := askPermission(ctx, p, r)
			response.Meta = report(90, 35)
			return response, err
		}}, nil)
		defer f.end()
		f.start("go", confirm)
		f.mustRun()
		f.answer("Yes")
		f.mustRun()
		if used := f.world.Session(sessionID).GetUsage(); used.GetInputTokens() != 90 || used.GetOutputTokens() != 35 {
			t.Errorf("the session has used %v", used)
		}
		f.send("again") // the next prompt counts from zero
		f.mustRun()
		f.answer("Yes")
		f.mustRun()
		if used := f.world.Session(sessionID).GetUsage(); used.GetInputTokens() != 180 || used.GetOutputTokens() != 70 {
			t.Errorf("the session has used %v", used)
		}
	})
}

// TestBudgetThatIsUsedUpAtTheEnd has an agent ask a question with its last tokens. It has many rounds, because the runner may see the
// tokens or the end of the turn first.
func TestBudgetThatIsUsedUpAtTheEnd(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var f *fixture
			f = newFixture(t, &runnertest.Agent{Extended: true, Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
				_ = f.tools.sessions[0].Ask(ctx, "Which?", nil)
				p.UpdateMeta(ctx, r, acp.UpdateAgentThoughtText("Hm."), map[string]any{meta.Usage: meta.TokenUsage{InputTokens: 110}})
				return done, nil
			}}, withBudgets(runner.Budgets{SessionTokens: 100}))
			defer f.end()
			f.start("go", auto)
			f.mustRun()
			f.last(t, 2, "ask Which? ", "terminal ask")
		})
		if t.Failed() {
			return
		}
	}
}

// TestMessageAfterTheQuestionOfABudget sends another message in place of an answer, or before there is a question. The agent gets both.
func TestMessageAfterTheQuestionOfABudget(t *testing.T) {
	for name, isEarly := range map[string]bool{"another message": false, "two messages at once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: spend}, withBudgets(runner.Budgets{SessionTokens: 100}))
				defer f.end()
				f.start("go", auto)
				f.mustRun()
				f.send("end one")
				if isEarly {
					f.send("end two")
				}
				f.mustRun()
				if !isEarly {
					f.send("end two")
				}
				f.mustRun()
				f.answer("continue")
				f.mustRun()
				f.last(t, 3, "input budget.session.continue.unbegun", "text end one\nend two", "terminal complete")
				f.send("end three")
				f.mustRun()
				f.last(t, 2, "text end three", "terminal complete")
			})
		})
	}
}
