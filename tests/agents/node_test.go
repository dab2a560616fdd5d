package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/computer/docker/dockertest"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/gateway"
	"github.com/atelier-run/atelier/runner/modeltest"
	"github.com/atelier-run/atelier/tests/nodetest"
	"github.com/atelier-run/atelier/tests/place"
	"github.com/atelier-run/atelier/tests/testmachine"
)

const (
	workspaceID = "ws_1"
	sessionID   = "ses_1"
)

var alice = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1", CredentialId: "key_1"}

// An office is a node with a workspace. The turns of a session run in the workspace's computer.
type office struct {
	*testing.T
	product
	mode  sessionv1.Mode
	node  *node.Node
	model *modeltest.Server
	// seen is the number of rows of the turns before.
	seen int
}

func newOffice(t *testing.T, p product, wire gateway.Wire, mode sessionv1.Mode, computers node.ComputerOptions) *office {
	program := p.installed(t)
	o := &office{T: t, product: p, mode: mode, model: modeltest.New(t)}
	dir := t.TempDir()
	config, key := filepath.Join(t.TempDir(), "agents.yaml"), filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(key, []byte("key-of-the-operator"), 0o600), os.WriteFile(config, fmt.Appendf(nil, `
models:
  fast: {wire: %s, baseUrl: "%s/v1", model: %s, keyFile: %s}
agents:
  theirs: {preset: %s, command: [/drive/agent]}
tiers:
  balanced: {agent: theirs, model: fast}
`, wire, o.model.URL, modelName, key, p.preset), 0o600)); err != nil {
		t.Fatal(err)
	}
	o.node = nodetest.Start(t, node.Start, node.Options{
		Dir: dir, Wire: true, PendingLimit: longest, Computers: computers, Agents: config,
		Journal: persistence.Options{CacheBytes: 4 << 20, Partitions: 2}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	o.ask(entity.KindUser, alice.GetUserId(), entity.Platform(), &userv1.CreateUser{Email: "alice@example.org", Name: "Alice"})
	o.ask(entity.KindWorkspace, workspaceID, entity.Platform(), &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: alice.GetUserId()})
	o.settle()
	nodetest.RequireIsolation(t, o.node.Computers, workspaceID)
	o.install(program)
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

func (o *office) ask(kind, identity string, p *wirev1.Principal, m proto.Message) proto.Message {
	o.Helper()
	reply, err := o.node.Router.Ask(o.Context(), entity.Command{Kind: kind, Identity: identity, Principal: p, Message: m})
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
		c := o.ask(entity.KindComputer, workspaceID, entity.Platform(), &computerv1.DescribeComputer{}).(*computerv1.Computer)
		return c.GetTask() == nil
	})
}

// send sends a command of alice to the session.
func (o *office) send(m proto.Message) {
	o.Helper()
	o.ask(entity.KindSession, session.Identity(workspaceID, sessionID), alice, m)
}

// rows returns the rows of the session.
func (o *office) rows() []*sessionv1.Row {
	o.Helper()
	page := o.ask(entity.KindSession, session.Identity(workspaceID, sessionID), entity.Platform(),
		&wirev1.ReadTimeline{From: 1, Limit: 1000, Bytes: 1 << 20}).(*wirev1.Timeline)
	var all []*sessionv1.Row
	for _, e := range page.GetEvents() {
		m, err := entity.Message(e.GetName(), e.GetPayload())
		if err != nil {
			o.Fatal(err)
		}
		if added, is := m.(*sessionv1.RowAdded); is {
			all = append(all, added.GetRow())
		}
	}
	return all
}

// say sends a text. The first one starts the session.
func (o *office) say(text string) {
	o.Helper()
	if o.seen == 0 {
		o.send(&sessionv1.StartSession{Mode: o.mode, DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{Text: text}})
		return
	}
	o.send(&sessionv1.SendInput{
		DefaultTier: workspacev1.Tier_TIER_BALANCED, Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: text},
	})
}

// question returns the last question of the session.
func (o *office) question() *sessionv1.Ask {
	o.Helper()
	var last *sessionv1.Ask
	for _, r := range o.rows() {
		if r.GetAsk() != nil {
			last = r.GetAsk()
		}
	}
	return last
}

// answer answers the question of the session with the option that has a label.
func (o *office) answer(label func(string) bool) {
	o.Helper()
	for _, option := range o.question().GetOptions() {
		if label(option.GetLabel()) {
			o.send(&sessionv1.SendInput{
				DefaultTier: workspacev1.Tier_TIER_BALANCED,
				Input:       &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_ANSWER, OptionId: option.GetId()},
			})
			return
		}
	}
	o.Fatalf("the question is %v", o.question())
}

// turn waits for the end of the session's turn, and returns its rows as lines.
func (o *office) turn() []string {
	o.Helper()
	var lines []string
	await(o.T, "the end of the turn", func() bool {
		rows := o.rows()
		if len(rows) <= o.seen || rows[len(rows)-1].GetTerminal() == nil {
			return false
		}
		for _, r := range rows[o.seen:] {
			lines = append(lines, line(r))
		}
		o.seen = len(rows)
		return true
	})
	return lines
}

// line returns the values of a row that depend on its kind.
func line(r *sessionv1.Row) string {
	switch {
	case r.GetText() != nil:
		return "text " + r.GetText().GetText()
	case r.GetTool() != nil:
		return "tool " + r.GetTool().GetTitle() + " " + r.GetTool().GetStatus()
	case r.GetAsk() != nil:
		return "ask " + r.GetAsk().GetText()
	case r.GetTerminal() != nil:
		_, status, _ := strings.Cut(r.GetTerminal().GetTurnStatus().String(), "STATUS_")
		return strings.TrimSpace("terminal " + strings.ToLower(status) + " " + r.GetTerminal().GetError().GetCode())
	}
	return "other"
}

// authors returns the actors of the rows of the activity of a path.
func (o *office) authors(path string) []string {
	o.Helper()
	page := o.ask(entity.KindActivity, workspaceID, alice, &activityv1.ReadFeed{Limit: 200}).(*activityv1.Page)
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
		testmachine.Lacks(t, "needs root")
	}
	local := node.ComputerOptions{Driver: node.LocalDriver}
	for _, p := range products {
		t.Run(p.preset+"/auto", func(t *testing.T) { testModeAuto(t, p, local) })
		t.Run(p.preset+"/confirm", func(t *testing.T) { testModeConfirm(t, p, local) })
	}
}

// TestTurnsInContainers runs the same turns of each product in a computer of the docker driver.
func TestTurnsInContainers(t *testing.T) {
	place.Take(t)
	engine := dockertest.Start(t, "github.com/atelier-run/atelier/cmd/atelier")
	for _, p := range products {
		image := engine.ImportLibraries(t, "localhost/atelier-test:"+p.preset, p.installed(t))
		inContainers := node.ComputerOptions{Driver: node.DockerDriver, Engine: engine.Address, Image: image, Program: engine.Agent}
		t.Run(p.preset+"/auto", func(t *testing.T) { testModeAuto(t, p, inContainers) })
		t.Run(p.preset+"/confirm", func(t *testing.T) { testModeConfirm(t, p, inContainers) })
	}
}

func testModeAuto(t *testing.T, p product, computers node.ComputerOptions) {
	o := newOffice(t, p, p.wire, sessionv1.Mode_MODE_AUTO, computers)
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
	requests := len(o.model.Requests())
	o.say("Talk.")
	await(t, "the request", func() bool { return len(o.model.Requests()) > requests })
	o.send(&sessionv1.Interrupt{})
	o.expect("interrupt", o.turn(), "terminal interrupted")

	o.model.Reply(modeltest.Reply{Status: http.StatusBadRequest, Message: "no such model"})
	o.say("Go on.")
	o.expect("error", o.turn(), "terminal interrupted agent_failed")
	o.model.Reply(modeltest.Reply{Status: http.StatusInternalServerError, Message: "broken"}, modeltest.Reply{Text: []string{"Again."}})
	o.say("Go on.")
	o.expect("error that is repeated", o.turn(), "text Again.", "terminal complete")
}

func testModeConfirm(t *testing.T, p product, computers node.ComputerOptions) {
	o := newOffice(t, p, p.askWire, sessionv1.Mode_MODE_CONFIRM, computers)
	o.model.Reply(modeltest.Reply{Calls: []model.Call{p.shell("call_write", "echo made >made.txt")}}, modeltest.Reply{Text: []string{"Made."}})
	o.say("Make it.")
	o.expect("question", o.turn(), "ask ... echo made >made.txt", "terminal ask")
	if authors := o.authors("made.txt"); len(authors) > 0 {
		t.Errorf("the file was made before the permission by %q", authors)
	}
	for _, option := range o.question().GetOptions() {
		if strings.Contains(option.GetLabel(), "lways") || strings.Contains(option.GetLabel(), "again") {
			t.Errorf("a permission for good is offered: %q", option.GetLabel())
		}
	}
	o.answer(func(label string) bool { return strings.HasPrefix(label, "Yes") || strings.HasPrefix(label, "Allow") })
	o.expect("answer", o.turn(), "tool ... completed", "text Made.", "terminal complete")
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
