package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/runnertest"
)

func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			p.Update(ctx, r, acp.UpdateAgentThoughtText("Hm."))
			for _, word := range []string{"I ", "list ", "files."} {
				p.Say(ctx, r, word)
				time.Sleep(20 * time.Millisecond)
			}
			p.Update(ctx, r, acp.StartToolCall("c1", "ls", acp.WithStartKind(acp.ToolKindExecute), acp.WithStartStatus(acp.ToolCallStatusInProgress),
				acp.WithStartLocations([]acp.ToolCallLocation{{Path: runnertest.Drive + "/src/a"}, {Path: "/etc/passwd"}})))
			p.Update(ctx, r, acp.UpdateToolCall("c1", acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolContent(acp.TextBlock("a b"))})))
			p.Update(ctx, r, acp.UpdateToolCall("c1", acp.WithUpdateStatus(acp.ToolCallStatusCompleted)))
			p.Update(ctx, r, acp.UpdatePlan(acp.PlanEntry{Content: "x", Status: acp.PlanEntryStatusPending, Priority: acp.PlanEntryPriorityLow}))
			p.Update(ctx, r, acp.StartToolCall("c2", "left open"))
			p.Say(ctx, r, textOf(r))
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "thought Hm.", "text I list files.", "tool ls in_progress [src/a]", "tool ls completed [src/a] a b", "plan 1",
			"tool left open pending []", "text go", "tool left open failed []", "terminal complete")
		var said, thought strings.Builder
		for _, d := range f.world.Deltas() {
			if d.GetThought() {
				thought.WriteString(d.GetText())
			} else {
				said.WriteString(d.GetText())
			}
		}
		// The last text may be recorded before a delta of it is due.
		if got := strings.TrimSuffix(said.String(), "go"); got != "I list files." || thought.String() != "Hm." {
			t.Errorf("deltas %q, thoughts %q", said.String(), thought.String())
		}
		p := f.computers.Started()[0]
		if got := p.Launch.Argv[len(p.Launch.Argv)-2:]; !slices.Equal(got, []string{"/.atelier/atelier", "agent"}) ||
			p.Launch.SessionID != sessionID || p.Launch.UserID != "alice" || len(p.Launch.Env) != 0 {
			t.Errorf("launched %+v", p.Launch)
		}
	})
}

func TestBatchesAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			for i := range 300 {
				p.Update(ctx, r, acp.StartToolCall(acp.ToolCallId(fmt.Sprint(i)), fmt.Sprint("t", i), acp.WithStartStatus(acp.ToolCallStatusCompleted)))
			}
			return done, nil
		}}, nil)
		defer f.end()
		n := 0
		f.world.Intercept(func(c entity.Command) error {
			switch c.Message.(type) {
			case *sessionv1.RecordRows, *sessionv1.ClaimTurn:
			default:
				return nil
			}
			if n++; n%3 == 0 {
				return nil
			}
			if n%3 == 1 { // it has an effect, and its reply is lost
				f.world.Intercept(nil)
				_, _ = f.world.Ask(context.Background(), c)
			}
			return errors.New("unreachable")
		})
		f.start("go", auto)
		f.mustRun()
		want := []string{"input go"}
		for i := range 300 {
			want = append(want, fmt.Sprintf("tool t%d completed []", i))
		}
		f.expect(append(want, "terminal complete")...)
	})
}

func TestAgentIsReusedAndExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{
			Capabilities: acp.AgentCapabilities{LoadSession: true},
			Load: func(p *runnertest.Process, r acp.LoadSessionRequest) error {
				_ = p.Connection.SessionUpdate(context.Background(), acp.SessionNotification{
					SessionId: r.SessionId, Update: acp.UpdateAgentMessageText("repeated"),
				})
				return nil
			},
			Prompt: sayText,
		}, nil)
		defer f.end()
		f.start("one", auto)
		f.mustRun()
		f.send("two")
		f.mustRun()
		if n := len(f.computers.Started()); n != 1 {
			t.Fatalf("%d processes were started", n)
		}
		time.Sleep(5*time.Minute + time.Second)
		<-f.computers.Started()[0].Ended()
		synctest.Wait()
		if f.computers.IsListening(runnertest.WorkspaceID) {
			t.Error("the gateway is open without agents")
		}
		f.send("three")
		f.mustRun()
		f.expect("input one", "text one", "terminal complete", "input two", "text two", "terminal complete",
			"input three", "text three", "terminal complete")
	})
}

func TestHistoryForANewProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{
			Capabilities: acp.AgentCapabilities{LoadSession: true},
			Load: func(*runnertest.Process, acp.LoadSessionRequest) error {
				return acp.NewInvalidParams(nil)
			},
			Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
				p.Say(ctx, r, fmt.Sprint(len(r.Prompt)))
				if len(r.Prompt) > 1 {
					p.Say(ctx, r, r.Prompt[0].Text.Text)
				}
				return done, nil
			},
		}, nil)
		defer f.end()
		f.start("one", auto)
		f.mustRun()
		time.Sleep(6 * time.Minute)
		f.send("two")
		f.mustRun()
		got := f.world.Timeline(sessionID)
		if text := got[len(got)-2]; !strings.HasPrefix(text, "text 2") || !strings.Contains(text, "User: one") || !strings.Contains(text, "You: 1") || strings.Contains(text, "two") {
			t.Errorf("the agent was told %q", text)
		}
	})
}

// TestHistoryForAFollowUp has a process that starts for an input that waited while the turn before went on writing.
func TestHistoryForAFollowUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = newFixture(t, &runnertest.Agent{Prompt: thenEcho(func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			f.must(alice, &sessionv1.SendInput{Input: &sessionv1.Input{
				Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: "two", Behavior: sessionv1.Behavior_BEHAVIOR_FOLLOW_UP,
			}})
			p.Say(ctx, r, "The first answer.")
			return done, nil
		})}, nil)
		defer f.end()
		f.start("one", auto)
		f.mustRun()
		time.Sleep(6 * time.Minute) // the process expires
		f.mustRun()
		got := f.world.Timeline(sessionID)
		if text := got[len(got)-2]; !strings.Contains(text, "User: one\n\nYou: The first answer.") || strings.Count(text, "two") != 1 {
			t.Errorf("the agent was told %q", text)
		}
	})
}

func TestExtendedAgentGetsItsStateBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var about []map[string]any
		f := newFixture(t, &runnertest.Agent{
			Extended: true,
			New:      func(_ *runnertest.Process, r acp.NewSessionRequest) { about = append(about, r.Meta) },
			Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
				p.Say(ctx, r, textOf(r))
				return acp.PromptResponse{StopReason: acp.StopReasonEndTurn, Meta: map[string]any{
					meta.State: map[string]any{"line": 3}, meta.Title: "A title", meta.Usage: meta.TokenUsage{InputTokens: 5, OutputTokens: 2},
				}}, nil
			},
		}, nil)
		defer f.end()
		f.start("one", confirm)
		f.mustRun()
		s := f.world.Session(sessionID)
		if s.GetTitle() != "A title" || s.GetUsage().GetInputTokens() != 5 || s.GetUsage().GetOutputTokens() != 2 {
			t.Errorf("session %v", s)
		}
		if used := f.world.Usage().GetUsed(); used.GetInputTokens() != 5 || used.GetOutputTokens() != 2 {
			t.Errorf("the workspace has used %v", used)
		}
		time.Sleep(6 * time.Minute)
		f.send("two")
		f.mustRun()
		if state, _ := json.Marshal(about[1][meta.State]); len(about) != 2 || string(state) != `{"line":3}` || about[0][meta.Mode] != meta.ModeConfirm {
			t.Errorf("the agent learned %v", about)
		}
	})
}

func TestFailureOfAnExtendedAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
			return acp.PromptResponse{StopReason: acp.StopReasonEndTurn, Meta: map[string]any{
				meta.Error: meta.TurnError{Code: meta.CodeRunbookFailed, Message: "line 3"},
			}}, nil
		}}, nil)
		defer f.end()
		f.start("one", auto)
		f.mustRun()
		f.expect("input one", "terminal interrupted runbook_failed")
	})
}

func TestEffectsOfTools(t *testing.T) {
	for name, c := range map[string]struct {
		call func(ctx context.Context, s runner.Session) error
		want string
	}{
		"ask":   {func(ctx context.Context, s runner.Session) error { return s.Ask(ctx, "Which?", []string{"a", "b"}) }, "terminal ask"},
		"sleep": {func(ctx context.Context, s runner.Session) error { return s.SleepUntil(ctx, time.Now().Add(time.Hour)) }, "terminal sleep"},
		"steps": {func(ctx context.Context, s runner.Session) error {
			return errors.Join(s.Progress(ctx, "half", 1, 2), s.Progress(ctx, "more", 0, 0))
		}, "terminal complete"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *fixture
				f = newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, _ *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
					return done, c.call(ctx, f.tools.sessions[0])
				}}, nil)
				defer f.end()
				f.start("go", auto)
				f.mustRun()
				f.last(t, 1, c.want)
				s := f.world.Session(sessionID)
				if name == "steps" && (s.GetMachine().GetStep() != "more" || s.GetMachine().GetTotal() != 2) || name == "sleep" && s.GetWakeAt() == 0 ||
					name == "ask" && s.GetAsk().GetOptions()[1].GetLabel() != "b" {
					t.Errorf("session %v", s)
				}
				if err := c.call(t.Context(), f.tools.sessions[0]); err == nil {
					t.Error("a call between turns was accepted")
				}
			})
		})
	}
}

func TestContentOfPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{
			Capabilities: acp.AgentCapabilities{PromptCapabilities: acp.PromptCapabilities{Image: true}},
			Prompt:       sayText,
		}, nil)
		defer f.end()
		f.images.Put(sessionID, []byte("sum"), []byte("pixels"))
		// A session of a version that stored images in the journal.
		f.world.Put(session.ImageList, session.Key(sessionID, "old"), &sessionv1.StoredImage{MediaType: "image/gif", Content: []byte("dots")})
		f.must(alice, &sessionv1.StartSession{DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{
			Text: "look", Images: []*sessionv1.Image{
				{Sha256: []byte("sum"), MediaType: "image/png"}, {Sha256: []byte("old"), MediaType: "image/gif"},
				{Sha256: []byte("gone"), MediaType: "image/png"},
			},
			Attachments: []*sessionv1.Attachment{{Path: "docs/a b.txt", Name: "a b.txt"}},
		}})
		f.must(alice, &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "by the way"}})
		f.mustRun()
		f.expect("input look", "input by the way",
			"text look\nimage/png:cGl4ZWxz\nimage/gif:ZG90cw==\n[an image, which the server has lost]\nfile:///home/drive/docs/a%20b.txt\nFor your information, without a request: by the way",
			"terminal complete")
	})
}

// TestInputsThatAreLongAsJSON gives an agent inputs that would all fit in a message if JSON did not make them longer.
func TestInputsThatAreLongAsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 13
		long, arrived := strings.Repeat("<", session.MaxText), 0
		f := newFixture(t, &runnertest.Agent{Prompt: func(_ context.Context, _ *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			for _, block := range r.Prompt {
				if block.Text != nil && strings.Contains(block.Text.Text, long) {
					arrived++
				}
			}
			return done, nil
		}}, nil)
		defer f.end()
		f.start("go", auto)
		for range count {
			f.send(long)
		}
		for f.world.Session(sessionID).GetTurn() != nil {
			f.mustRun()
		}
		if arrived != count {
			t.Errorf("%d of %d inputs have arrived", arrived, count)
		}
	})
}

func TestFloodOfUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			for i := range n {
				if i%100 == 0 {
					p.Update(ctx, r, acp.StartToolCall(acp.ToolCallId(fmt.Sprint(i)), fmt.Sprint(i), acp.WithStartStatus(acp.ToolCallStatusCompleted)))
					continue
				}
				p.Say(ctx, r, fmt.Sprintf("%07d %s\n", i, strings.Repeat("x", 200)))
			}
			return done, nil
		}}, nil)
		defer f.end()
		most := 0
		f.world.Intercept(func(c entity.Command) error {
			if m, is := c.Message.(*sessionv1.RecordRows); is {
				time.Sleep(10 * time.Millisecond)
				most = max(most, proto.Size(m))
			}
			return nil
		})
		f.start("go", auto)
		f.mustRun()
		var all strings.Builder
		tools := 0
		for _, l := range f.world.Timeline(sessionID) {
			if text, ok := strings.CutPrefix(l, "text "); ok {
				all.WriteString(text)
			}
			if strings.HasPrefix(l, "tool") {
				tools++
			}
		}
		if lines := strings.Count(all.String(), "\n"); lines != n-n/100 || tools != n/100 {
			t.Errorf("%d lines and %d tools were recorded", lines, tools)
		}
		if most > 512<<10 {
			t.Errorf("a batch had %d bytes", most)
		}
	})
}

func TestGatewayInTheComputer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		get := func(token string) string {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return f.computers.Dial(ctx, runnertest.WorkspaceID)
			}}}
			request, _ := http.NewRequest(http.MethodPost, "http://127.0.0.1:4791/mcp", nil)
			request.Header.Set("Authorization", "Bearer "+token)
			response, err := client.Do(request)
			if err != nil {
				return err.Error()
			}
			defer response.Body.Close()
			body, _ := io.ReadAll(response.Body)
			return fmt.Sprint(response.StatusCode, " ", string(body))
		}
		var token string
		f = newFixture(t, &runnertest.Agent{
			Capabilities: acp.AgentCapabilities{McpCapabilities: acp.McpCapabilities{Http: true}},
			New: func(_ *runnertest.Process, r acp.NewSessionRequest) {
				token = strings.TrimPrefix(r.McpServers[0].Http.Headers[0].Value, "Bearer ")
			},
			Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
				p.Say(ctx, r, get(token)+" "+get("wrong")[:3])
				return done, nil
			},
		}, nil)
		defer f.end()
		f.start("go", auto)
		f.mustRun()
		f.expect("input go", "text 200 ses_1 401", "terminal complete")
		if got := get(token); !strings.HasPrefix(got, "401") {
			t.Errorf("after the turn: %s", got)
		}
	})
}

// TestClaimOfATurnThatHasEnded expects that the turn which follows is left to its own run.
func TestClaimOfATurnThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{}, nil)
		defer f.end()
		f.start("go", auto)
		f.world.Intercept(func(c entity.Command) error {
			if _, is := c.Message.(*sessionv1.ClaimTurn); !is {
				return nil
			}
			f.world.Intercept(nil)
			turn := f.world.Session(sessionID).GetTurn().GetId()
			f.must(entity.Platform(), &sessionv1.ClaimTurn{TurnId: turn, RunId: "run_other"})
			f.must(entity.Platform(), &sessionv1.EndTurn{TurnId: turn, RunId: "run_other", Status: sessionv1.TurnStatus_TURN_STATUS_COMPLETE})
			f.send("next")
			f.must(entity.Platform(), &sessionv1.ClaimTurn{TurnId: f.world.Session(sessionID).GetTurn().GetId(), RunId: "run_next"})
			return entity.Errorf(entity.TurnTaken, "another run has taken the turn")
		})
		f.mustRun()
		f.expect("input go", "terminal complete", "input next")
	})
}

// TestServerThatStopsAtTheEndOfATurn expects that the end of the turn is not lost.
func TestServerThatStopsAtTheEndOfATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: sayNothing}, nil)
		defer f.end()
		f.start("go", auto)
		ctx, cancel := context.WithCancel(t.Context())
		f.world.Intercept(func(c entity.Command) error {
			if _, is := c.Message.(*workspacev1.AddAgentUsage); is {
				cancel()
			}
			return nil
		})
		_, _ = f.runner.RunTurn(ctx, identity, &sessionv1.TurnTask{TurnId: f.world.Session(sessionID).GetTurn().GetId()})
		f.expect("input go", "terminal complete")
	})
}
