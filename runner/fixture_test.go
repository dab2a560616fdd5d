package runner_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/runnertest"
)

const sessionID = "ses_1"

var identity = session.Identity(runnertest.WorkspaceID, sessionID)

// fixture is a runner with one session and scripted agents.
type fixture struct {
	t         *testing.T
	world     *runnertest.World
	computers *runnertest.Computers
	runner    *runner.Runner
	images    *runnertest.Images
	tools     *tools
}

// tools has the sessions that got the platform's tools.
type tools struct{ sessions []runner.Session }

func (t *tools) Handler(s runner.Session) http.Handler {
	t.sessions = append(t.sessions, s)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s.SessionID()) })
}

func newFixture(t *testing.T, a *runnertest.Agent, change func(*runner.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, world: runnertest.New(), computers: &runnertest.Computers{Agent: a}, images: &runnertest.Images{}, tools: &tools{}}
	f.world.SetApp("app_1", appHaving(entity.AgentCapabilities()...))
	o := runner.Options{
		Asker: f.world, Computers: f.computers, Images: f.images, Builtin: []string{"/.atelier/atelier", "agent"}, Tools: f.tools, Version: "test",
	}
	if change != nil {
		change(&o)
	}
	f.runner = runner.New(o)
	return f
}

// end ends the runner and waits for its agents.
func (f *fixture) end() {
	f.runner.Close()
	for _, p := range f.computers.Started() {
		<-p.Ended()
	}
}

var alice = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "alice", CredentialId: "key_1"}

func (f *fixture) must(p *wirev1.Principal, m proto.Message) proto.Message {
	f.t.Helper()
	reply, err := f.world.Ask(f.t.Context(), entity.Command{Kind: entity.KindSession, Identity: identity, Principal: p, Message: m})
	if err != nil {
		f.t.Fatalf("%T: %v", m, err)
	}
	return reply
}

func (f *fixture) start(prompt string, mode sessionv1.Mode) {
	f.t.Helper()
	f.must(alice, &sessionv1.StartSession{
		Mode: mode, DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{Text: prompt}, Cwd: "src",
	})
}

func (f *fixture) send(text string) {
	f.t.Helper()
	f.must(alice, &sessionv1.SendInput{
		DefaultTier: workspacev1.Tier_TIER_BALANCED, Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: text},
	})
}

// sendLater is send when the turn has begun, in the time of a bubble.
func (f *fixture) sendLater(text string) {
	f.t.Helper()
	time.Sleep(time.Second)
	f.send(text)
}

func (f *fixture) answer(option string) {
	f.t.Helper()
	for _, o := range f.world.Session(sessionID).GetAsk().GetOptions() {
		if o.GetLabel() == option {
			f.must(alice, &sessionv1.SendInput{
				DefaultTier: workspacev1.Tier_TIER_BALANCED,
				Input:       &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, OptionId: o.GetId()},
			})
			return
		}
	}
	f.t.Fatalf("the question has no option %q: %v", option, f.world.Session(sessionID).GetAsk())
}

// run runs the turn of the session, and sends its completion as the executor does.
func (f *fixture) run(ctx context.Context) error {
	f.t.Helper()
	completion, err := f.runner.RunTurn(ctx, identity, &sessionv1.TurnTask{TurnId: f.world.Session(sessionID).GetTurn().GetId()})
	if err != nil {
		return err
	}
	if _, err := f.world.Ask(context.WithoutCancel(ctx), entity.Command{
		Kind: entity.KindSession, Identity: identity, Principal: entity.Platform(), Message: completion,
	}); err != nil && !entity.IsRefusal(err) {
		return err
	}
	return nil
}

func (f *fixture) mustRun() {
	f.t.Helper()
	if err := f.run(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) expect(want ...string) {
	f.t.Helper()
	if got := f.world.Timeline(sessionID); !slices.Equal(got, want) {
		f.t.Errorf("timeline:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// thenEcho returns an agent's handler of prompts: first handles the first prompt, and the agent says the texts of later prompts.
func thenEcho(first promptHandler) promptHandler {
	n := 0
	return func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
		if n++; n == 1 {
			return first(ctx, p, r)
		}
		return sayText(ctx, p, r)
	}
}

type promptHandler = func(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error)

// textOf returns the text of a prompt.
func textOf(r acp.PromptRequest) string {
	var all []string
	for _, b := range r.Prompt {
		if b.Text != nil {
			all = append(all, b.Text.Text)
		}
		if b.ResourceLink != nil {
			all = append(all, b.ResourceLink.Uri)
		}
		if b.Image != nil {
			all = append(all, b.Image.MimeType+":"+b.Image.Data)
		}
	}
	return strings.Join(all, "\n")
}

var done = acp.PromptResponse{StopReason: acp.StopReasonEndTurn}

const (
	auto    = sessionv1.Mode_MODE_AUTO
	confirm = sessionv1.Mode_MODE_CONFIRM
)

// sayText is a turn in which the agent says the text of the prompt.
func sayText(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
	p.Say(ctx, r, textOf(r))
	return done, nil
}

// sayNothing is a turn that ends at once.
func sayNothing(context.Context, *runnertest.Process, acp.PromptRequest) (acp.PromptResponse, error) {
	return done, nil
}
