package runner_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// askPermission requests a permission and says which option was chosen.
func askPermission(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
	title := "rm -r /"
	response, err := p.Connection.RequestPermission(ctx, acp.RequestPermissionRequest{
		SessionId: r.SessionId, ToolCall: acp.ToolCallUpdate{ToolCallId: "c1", Title: &title},
		Options: []acp.PermissionOption{
			{Kind: acp.PermissionOptionKindRejectOnce, Name: "No", OptionId: "no"},
			{Kind: acp.PermissionOptionKindAllowAlways, Name: "Always", OptionId: "always"}, // is neither chosen nor offered
			{Kind: acp.PermissionOptionKindAllowOnce, Name: "Yes", OptionId: "yes"},
		},
	})
	switch {
	case err != nil:
		return acp.PromptResponse{}, err
	case response.Outcome.Selected == nil:
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	}
	p.Say(ctx, r, string(response.Outcome.Selected.OptionId))
	return done, nil
}

func TestPermissions(t *testing.T) {
	const question = "ask The agent asks for permission: rm -r / No|Yes"
	t.Run("auto grants", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: askPermission}, nil)
			defer f.end()
			f.start("go", auto)
			f.mustRun()
			f.expect("input go", "text yes", "terminal complete")
		})
	})
	t.Run("confirm asks, and the same process goes on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: askPermission}, nil)
			defer f.end()
			f.start("go", confirm)
			f.mustRun()
			f.expect("input go", question, "terminal ask")
			f.answer("No")
			f.mustRun()
			f.expect("input go", question, "terminal ask", "input permission.1", "text no", "terminal complete")
			if n := len(f.computers.Started()); n != 1 {
				t.Errorf("%d processes were started", n)
			}
		})
	})
	t.Run("a lost process gets the answer as text", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{
				Capabilities: acp.AgentCapabilities{LoadSession: true}, Prompt: thenEcho(askPermission),
			}, nil)
			defer f.end()
			f.start("go", confirm)
			f.mustRun()
			time.Sleep(6 * time.Minute)
			<-f.computers.Started()[0].Ended()
			f.answer("Yes")
			f.mustRun()
			f.expect("input go", question, "terminal ask", "input permission.2", "text The answer to your question: Yes", "terminal complete")
		})
	})
	t.Run("another message cancels the request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, &runnertest.Agent{Prompt: thenEcho(askPermission)}, nil)
			defer f.end()
			f.start("go", confirm)
			f.mustRun()
			f.send("never mind")
			f.mustRun()
			f.expect("input go", question, "terminal ask", "input never mind", "text never mind", "terminal complete")
		})
	})
}

// TestTwoRequestsForPermissionAtOnce has both arrive while the runner waits for the agent to take an input.
func TestTwoRequestsForPermissionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		f := newFixture(t, &runnertest.Agent{
			Extended: true,
			Steer: func(*runnertest.Process, meta.SteerRequest[acp.ContentBlock]) bool {
				close(begin)
				synctest.Wait()
				return true
			},
			Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
				<-begin
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() { _, _ = askPermission(ctx, p, r) })
				}
				both.Wait()
				return done, nil
			},
		}, nil)
		defer f.end()
		f.start("go", confirm)
		go f.sendLater("left")
		began := time.Now()
		f.mustRun()
		f.answer("Yes")
		f.mustRun()
		f.answer("No")
		f.mustRun()
		if got := f.world.Timeline(sessionID); got[len(got)-1] != "terminal complete" || time.Since(began) > time.Minute {
			t.Errorf("after %s: %q", time.Since(began), got)
		}
	})
}

// TestQuestionBeforeARequestForPermission has an agent ask a question, and request a permission before it ends its prompt. The question
// is asked when it does.
func TestQuestionBeforeARequestForPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			if textOf(r) != "go" {
				return done, nil
			}
			if err := f.tools.sessions[0].Ask(ctx, "Which?", nil); err != nil {
				t.Error(err)
			}
			return askPermission(ctx, p, r)
		}}, nil)
		defer f.end()
		f.start("go", confirm)
		f.mustRun()
		f.answer("Yes")
		f.mustRun()
		f.last(t, 3, "text yes", "ask Which? ", "terminal ask")
		f.send("go")
		f.mustRun()
		f.send("never mind")
		f.mustRun()
		f.last(t, 2, "input never mind", "terminal complete")
	})
}
