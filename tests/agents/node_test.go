package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/runner/runnertest"
)

const (
	workspaceID = runnertest.WorkspaceID
	sessionID   = "ses_1"
)

var alice = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1", CredentialId: "key_1"}

// An office is a node whose workspace has a computer, and a runner that runs the turns of a session in it. The session's entity is
// in memory.
type office struct {
	*testing.T
	product
	mode   sessionv1.Mode
	node   *node.Node
	world  *runnertest.World
	runner *runner.Runner
	model  *modeltest.Server
}

func newOffice(t *testing.T, p product, mode sessionv1.Mode) *office {
	program := p.installed(t)
	o := &office{T: t, product: p, mode: mode, world: runnertest.New(), model: modeltest.New(t)}
	dir := t.TempDir()
	var err error
	if o.node, err = node.Start(t.Context(), node.Options{
		Dir: dir, Wire: true, PendingLimit: longest, Computers: node.ComputerOptions{Driver: node.LocalDriver},
		Journal: persistence.Options{CacheBytes: 4 << 20, Partitions: 2},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		if err := o.node.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	o.ask(entity.KindWorkspace, entity.Platform(), &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: alice.GetUserId()})
	o.settle()
	o.install(program)
	config := filepath.Join(dir, "agents.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
models:
  fast: {wire: %s, baseUrl: "%s/v1", model: %s, keyEnv: KEY}
agents:
  theirs: {preset: %s, command: [/drive/agent]}
tiers:
  balanced: {agent: theirs, model: fast}
`, p.wire, o.model.URL, modelName, p.preset), 0o600); err != nil {
		t.Fatal(err)
	}
	options := runner.Options{
		Asker: o.world, Computers: computers{o.node.Computers}, Builtin: []string{computer.ProgramPath, "agent"}, Version: "test",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	options.Config, err = runner.ReadConfig(config, func(string) (string, bool) { return "key-of-the-operator", true })
	if err != nil {
		t.Fatal(err)
	}
	o.runner = runner.New(options)
	t.Cleanup(o.runner.Close)
	return o
}

// install makes the program visible in the computer: computers see the drive, and only the system's folders of the machine.
func (o *office) install(program string) {
	to := filepath.Join(o.node.Drives.Dir(), workspaceID, "files", "agent")
	if os.Link(program, to) == nil {
		return
	}
	content, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(to, content, 0o755)
	}
	if err != nil {
		o.Fatal(err)
	}
}

func (o *office) ask(kind string, p *wirev1.Principal, m proto.Message) proto.Message {
	o.Helper()
	reply, err := o.node.Router.Ask(o.Context(), entity.Command{Kind: kind, Identity: workspaceID, Principal: p, Message: m})
	if err != nil {
		o.Fatalf("%T: %v", m, err)
	}
	return reply
}

// settle waits until the workspace has its computer.
func (o *office) settle() {
	o.Helper()
	await(o.T, "the computer", func() bool {
		if err := o.node.Router.Settle(o.Context(), entity.KindWorkspace, workspaceID); err != nil {
			o.Fatal(err)
		}
		c := o.ask(entity.KindComputer, entity.Platform(), &computerv1.DescribeComputer{}).(*computerv1.Computer)
		return c.GetTask() == nil
	})
}

// send sends a command of alice to the session.
func (o *office) send(m proto.Message) {
	o.Helper()
	if _, err := o.world.Ask(o.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(workspaceID, sessionID), Principal: alice, Message: m,
	}); err != nil {
		o.Fatalf("%T: %v", m, err)
	}
}

// say sends a text. The first one starts the session.
func (o *office) say(text string) {
	o.Helper()
	if o.world.Session(sessionID).GetId() == "" {
		o.send(&sessionv1.StartSession{Mode: o.mode, DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{Text: text}})
		return
	}
	o.send(&sessionv1.SendInput{
		DefaultTier: workspacev1.Tier_TIER_BALANCED, Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: text},
	})
}

// answer answers the question of the session with the option that has a label.
func (o *office) answer(label func(string) bool) {
	o.Helper()
	for _, option := range o.world.Session(sessionID).GetAsk().GetOptions() {
		if label(option.GetLabel()) {
			o.send(&sessionv1.SendInput{
				DefaultTier: workspacev1.Tier_TIER_BALANCED,
				Input:       &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, OptionId: option.GetId()},
			})
			return
		}
	}
	o.Fatalf("the question is %v", o.world.Session(sessionID).GetAsk())
}

// turn runs the session's turn, and returns its rows.
func (o *office) turn() []string {
	o.Helper()
	before := len(o.world.Timeline(sessionID))
	completion, err := o.runner.RunTurn(o.Context(), session.Identity(workspaceID, sessionID),
		&sessionv1.TurnTask{TurnId: o.world.Session(sessionID).GetTurn().GetId()})
	if refused, is := errors.AsType[*entity.Error](err); is && refused.Code == entity.Forbidden && os.Getenv("CI") != "true" {
		o.Skipf("this machine cannot isolate processes: %v", err)
	}
	if err != nil {
		o.Fatal(err)
	}
	if _, err := o.world.Ask(o.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(workspaceID, sessionID), Principal: entity.Platform(), Message: completion,
	}); err != nil {
		o.Fatal(err)
	}
	return o.world.Timeline(sessionID)[before:]
}

// authors returns the actors of the rows of the activity of a path.
func (o *office) authors(path string) []string {
	o.Helper()
	page := o.ask(entity.KindActivity, alice, &activityv1.ReadFeed{Limit: 200}).(*activityv1.Page)
	var feed []struct {
		Event struct{ Path, Actor, Kind string }
	}
	if err := json.Unmarshal([]byte("["+string(page.GetItems())+"]"), &feed); err != nil {
		o.Fatal(err)
	}
	var actors []string
	for _, row := range feed {
		if row.Event.Path == path && !slices.Contains(actors, row.Event.Actor) {
			actors = append(actors, row.Event.Actor)
		}
	}
	return actors
}

// TestTurnsInComputers runs whole turns of each product in the isolated computer of a workspace.
func TestTurnsInComputers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, p := range products {
		t.Run(p.preset+"/auto", func(t *testing.T) {
			o := newOffice(t, p, sessionv1.Mode_MODE_AUTO)
			o.model.Reply(modeltest.Reply{Text: []string{"Hello."}})
			o.say("Greet me.")
			o.expect("text", o.turn(), "text Hello.", "terminal complete")
			o.checkRequest()

			o.model.Reply(modeltest.Reply{Calls: []model.Call{p.shell("call_write", "echo made >made.txt")}}, modeltest.Reply{Text: []string{"Made."}})
			o.say("Make it.")
			o.expect("tool", o.turn(), "tool ... completed", "text Made.", "terminal complete")
			await(t, "the activity", func() bool { return len(o.authors("made.txt")) > 0 })
			if authors := o.authors("made.txt"); !slices.Equal(authors, []string{"session:" + sessionID}) {
				t.Errorf("the file is the work of %q", authors)
			}

			o.model.Reply(modeltest.Reply{Text: []string{"A long"}, Hold: t.Context().Done()})
			o.say("Talk.")
			go func() {
				await(t, "the reply", func() bool {
					return slices.ContainsFunc(o.world.Deltas(), func(d *sessionv1.PublishDelta) bool { return d.GetText() == "A long" })
				})
				o.send(&sessionv1.Interrupt{})
			}()
			o.expect("interrupt", o.turn(), "text A long", "terminal interrupted")

			o.model.Reply(modeltest.Reply{Status: http.StatusBadRequest, Message: "no such model"})
			o.say("Go on.")
			o.expect("error", o.turn(), "terminal interrupted agent_failed")
			o.model.Reply(modeltest.Reply{Status: http.StatusInternalServerError, Message: "broken"}, modeltest.Reply{Text: []string{"Again."}})
			o.say("Go on.")
			o.expect("error that is repeated", o.turn(), "text Again.", "terminal complete")
		})
		t.Run(p.preset+"/confirm", func(t *testing.T) {
			o := newOffice(t, p, sessionv1.Mode_MODE_CONFIRM)
			o.model.Reply(modeltest.Reply{Calls: []model.Call{p.shell("call_write", "echo made >made.txt")}}, modeltest.Reply{Text: []string{"Made."}})
			o.say("Make it.")
			o.expect("question", o.turn(), "ask ... echo made >made.txt", "terminal ask")
			if authors := o.authors("made.txt"); len(authors) > 0 {
				t.Errorf("the file was made before the permission by %q", authors)
			}
			for _, option := range o.world.Session(sessionID).GetAsk().GetOptions() {
				if strings.Contains(option.GetLabel(), "lways") || strings.Contains(option.GetLabel(), "again") {
					t.Errorf("a permission for good is offered: %q", option.GetLabel())
				}
			}
			o.answer(func(label string) bool { return strings.HasPrefix(label, "Yes") || strings.HasPrefix(label, "Allow") })
			o.expect("answer", o.turn(), "tool ... completed", "text Made.", "terminal complete")
		})
	}
}

// expect expects rows in this order, among others. A row of a tool, or a question, is given by its beginning and its end.
func (o *office) expect(what string, got []string, want ...string) {
	o.Helper()
	rest := want
	for _, row := range got {
		if len(rest) == 0 {
			break
		}
		begin, end, _ := strings.Cut(rest[0], "... ")
		if row == rest[0] || end != "" && strings.HasPrefix(row, begin) && strings.Contains(row, end) {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 || !strings.HasPrefix(got[len(got)-1], "terminal") {
		o.Fatalf("%s: the rows are\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// checkRequest checks that the model's server got the key, which the agent does not have.
func (o *office) checkRequest() {
	o.Helper()
	if got := o.model.Requests()[0].Header.Get("Authorization"); got != "Bearer key-of-the-operator" {
		o.Errorf("the model's server got %q", got)
	}
}

// computers implements runner.Computers with the fleet of a node.
type computers struct{ fleet *computer.Fleet }

func (c computers) Launch(ctx context.Context, l runner.Launch) (runner.Process, error) {
	running, err := c.fleet.Launch(ctx, computer.Launch{
		WorkspaceID: l.WorkspaceID, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_SESSION,
		SessionID: l.SessionID, UserID: l.UserID, Argv: l.Argv, Env: l.Env,
	})
	if err != nil {
		return nil, err
	}
	return process{running}, nil
}

func (c computers) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	return c.fleet.Listen(ctx, workspaceID, port)
}

type process struct{ running *computer.Running }

func (p process) Stdin() io.WriteCloser         { return p.running.Streams().Stdin }
func (p process) Stdout() io.Reader             { return p.running.Streams().Stdout }
func (p process) Stderr() io.Reader             { return p.running.Streams().Stderr }
func (p process) End(ctx context.Context) error { return p.running.End(ctx) }

func (p process) Wait(ctx context.Context) (status int, reason string, err error) {
	exit, err := p.running.Wait(ctx)
	return exit.Status, string(exit.Reason), err
}
