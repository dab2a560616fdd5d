package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/skill"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/tools"
	"github.com/atelier-run/atelier/service"
)

const (
	workspaceID = "ws_1"
	slugName    = "acme"
)

// A world runs the rules of sessions, and answers queries to other entities. Its clock stands still.
type world struct {
	*testing.T
	tools *tools.Tools
	ids   int

	mu       sync.Mutex
	sessions map[string]*sessionv1.Session
	events   map[string][]*wirev1.TimelineEvent
	rows     map[string]map[string]proto.Message
	replies  map[string]proto.Message
	changed  chan struct{}
	// waiting is the number of queries that wait.
	waiting int
	// asked are the commands that reached an entity.
	asked []entity.Command
	// failure, if it is set, is the error of each command to a workspace.
	failure error
	// agentTier is the tier of the agent as the workspace has stored it, and agentText its AGENT.md.
	agentTier workspacev1.Tier
	agentText skill.Agent
	// apps has the workspace and its apps, if the test has any.
	apps *appWorld
}

var now = time.UnixMilli(1_800_000_000_000)

func newWorld(t *testing.T, edit ...func(*tools.Options)) *world {
	t.Helper()
	w := &world{
		T: t, sessions: map[string]*sessionv1.Session{}, events: map[string][]*wirev1.TimelineEvent{},
		rows: map[string]map[string]proto.Message{}, replies: map[string]proto.Message{}, changed: make(chan struct{}),
	}
	o := tools.Options{Asker: w, NewID: w.newID, Folders: w, Agents: w, Clock: func() time.Time { return now }}
	for _, one := range edit {
		one(&o)
	}
	made, err := tools.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.tools = made
	return w
}

func (w *world) newID(prefix string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("%s01j%023d", prefix, w.ids)
}

// Ask implements tools.Asker.
func (w *world) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, c)
	if w.apps != nil {
		if reply, err, answers := w.apps.ask(ctx, c); answers {
			return reply, err
		}
	}
	switch c.Kind {
	case entity.KindSession:
		return w.askSession(ctx, c)
	case entity.KindSlug:
		if c.Identity != slugName {
			return &slugv1.Slug{}, nil
		}
		return &slugv1.Slug{WorkspaceId: workspaceID}, nil
	case entity.KindUser:
		return &userv1.User{Id: c.Identity, Workspaces: map[string]int64{workspaceID: 1, "ws_gone": 2}}, nil
	case entity.KindActivity:
		return w.askActivity(c)
	case entity.KindWorkspace:
		return w.askWorkspace(c)
	}
	return nil, fmt.Errorf("the test has no %s", c.Kind)
}

// ResolveFolder implements the lookup of folders: every folder exists, except none.
func (w *world) ResolveFolder(_ context.Context, _, path string) (string, error) {
	if path == "none" {
		return "", session.ErrNoFolder
	}
	return path, nil
}

// FileSize implements the lookup of files, which no tool attaches.
func (w *world) FileSize(context.Context, string, string) (int64, error) {
	return 0, entity.Errorf(entity.NotFound, "not found")
}

// Agent returns the AGENT.md of the agent.
func (w *world) Agent(context.Context, string, string) (skill.Agent, error) { return w.agentText, nil }

// Settle implements tools.Asker.
func (w *world) Settle(_ context.Context, kind, identity string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.apps != nil {
		w.apps.settle(kind)
	}
	return nil
}

func (w *world) askWorkspace(c entity.Command) (proto.Message, error) {
	switch m := c.Message.(type) {
	case *workspacev1.DescribeWorkspace:
		if c.Identity != workspaceID {
			return nil, entity.Errorf(entity.NotFound, "not found")
		}
		return &workspacev1.Description{Workspace: &workspacev1.Workspace{Slug: slugName, Name: "Acme"}, Role: workspacev1.Role_ROLE_EDITOR}, w.failure
	case *workspacev1.DescribeAgent:
		if m.GetAgentId() != "agt_1" {
			return nil, entity.Errorf(entity.NotFound, "not found")
		}
		return &workspacev1.Anchor{Path: "agents/one", Agent: &workspacev1.Agent{Id: "agt_1", Tier: w.agentTier}}, nil
	case *workspacev1.UpdateAgent:
		w.agentTier = m.GetTier()
		return &wirev1.Done{}, nil
	case *workspacev1.Authorize:
		return &workspacev1.Authorized{}, w.failure
	case *wirev1.List:
		return w.list(m), w.failure
	}
	return nil, fmt.Errorf("unexpected %T", c.Message)
}

func (w *world) askActivity(c entity.Command) (proto.Message, error) {
	switch m := c.Message.(type) {
	case *activityv1.ReadFeed:
		var rows []string
		for seq := m.GetPosition() + 1; seq <= 40 && len(rows) < int(m.GetLimit()); seq++ {
			rows = append(rows, fmt.Sprintf(`{"seq":%d,"event":{"kind":"write","actor":"web:usr_1","at":5,"path":"%s/%d"}}`, seq, strings.Repeat("p", 4000), seq))
		}
		page := &activityv1.Page{Items: []byte(strings.Join(rows, ",")), Resume: 40}
		if last := m.GetPosition() + uint64(len(rows)); last < 40 {
			page.Next, page.Resume = last, 0
		}
		return page, w.failure
	case *activityv1.ReadLatestWriters:
		return &activityv1.LatestWriters{Writers: []*activityv1.Writer{{
			Path: m.GetDir() + "/" + m.GetNames()[0], Author: &activityv1.Author{Actor: "terminal"}, LastWriteAt: 7,
		}}}, w.failure
	}
	return nil, fmt.Errorf("unexpected %T", c.Message)
}

func (w *world) list(l *wirev1.List) *wirev1.Page {
	page := &wirev1.Page{}
	for _, key := range slices.Sorted(maps.Keys(w.rows[l.GetName()])) {
		if !strings.HasPrefix(key, string(l.GetPrefix())) || key <= string(l.GetAfter()) {
			continue
		}
		if len(page.GetRows()) == int(l.GetLimit()) {
			break
		}
		row := w.rows[l.GetName()][key]
		if reference, is := row.(*sessionv1.Reference); is {
			row = w.rows[session.SummaryList][reference.GetKey()]
		}
		encoded, err := proto.Marshal(row)
		if err != nil {
			w.Error(err)
		}
		page.Rows, page.Next = append(page.GetRows(), encoded), []byte(key)
	}
	if len(page.GetRows()) < int(l.GetLimit()) {
		page.Next = nil
	}
	return page
}

// askSession runs the rules. The caller holds mu, which is released while a query waits.
func (w *world) askSession(ctx context.Context, c entity.Command) (proto.Message, error) {
	call := func() entity.Call {
		return entity.Call{
			Now: now, Identity: c.Identity, Principal: c.Principal, Version: uint64(len(w.events[c.Identity]) + 1),
			Role: workspacev1.Role_ROLE_EDITOR,
		}
	}
	if w.sessions[c.Identity] == nil {
		w.sessions[c.Identity] = session.Zero(c.Identity)
	}
	if read, is := c.Message.(*wirev1.ReadTimeline); is {
		if err := session.Visible(call(), w.sessions[c.Identity]); err != nil {
			return nil, err
		}
		return w.readTimeline(c.Identity, read), nil
	}
	if earlier := w.replies[c.Identity+c.ID]; c.ID != "" && earlier != nil {
		return earlier, nil
	}
	if err := w.wait(ctx, func() bool { return session.Kind.Waits(call(), w.sessions[c.Identity], c.Message) }); err != nil {
		return nil, err
	}
	outcome, err := session.Kind.Carry(call(), w.sessions[c.Identity], c.Message)
	if err != nil {
		return nil, err
	}
	w.commit(c.Identity, outcome)
	w.replies[c.Identity+c.ID] = outcome.Reply
	return outcome.Reply, nil
}

// wait waits until a query does not wait any more. The caller holds mu, which is released meanwhile.
func (w *world) wait(ctx context.Context, waits func() bool) error {
	for waits() {
		changed := w.changed
		w.waiting++
		w.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		w.mu.Lock()
		w.waiting--
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) commit(identity string, outcome entity.Outcome) {
	for _, e := range outcome.Events {
		payload, err := proto.Marshal(e)
		if err != nil {
			w.Error(err)
		}
		w.events[identity] = append(w.events[identity], &wirev1.TimelineEvent{
			Version: uint64(len(w.events[identity]) + 1), Name: entity.MessageName(e), Payload: payload,
		})
	}
	w.store(outcome.Rows)
	w.sessions[identity] = outcome.State.(*sessionv1.Session)
}

// store stores the rows of a command, and wakes the queries that wait.
func (w *world) store(rows []entity.Row) {
	for _, row := range rows {
		if w.rows[row.List] == nil {
			w.rows[row.List] = map[string]proto.Message{}
		}
		if w.rows[row.List][row.Key] = row.Message; row.Message == nil {
			delete(w.rows[row.List], row.Key)
		}
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) readTimeline(identity string, read *wirev1.ReadTimeline) *wirev1.Timeline {
	all := slices.Clone(w.events[identity])
	all = slices.DeleteFunc(all, func(e *wirev1.TimelineEvent) bool {
		return e.GetName() != entity.MessageName(&sessionv1.RowAdded{}) ||
			!read.GetDescending() && e.GetVersion() < read.GetFrom() ||
			read.GetDescending() && read.GetFrom() != 0 && e.GetVersion() > read.GetFrom()
	})
	if read.GetDescending() {
		slices.Reverse(all)
	}
	page := &wirev1.Timeline{Events: all}
	if most := int(read.GetLimit()); len(all) > most {
		page.Events, page.Next = all[:most], all[most].GetVersion()
	}
	return page
}

// platform sends a command as the platform.
func (w *world) platform(id string, m proto.Message) {
	w.Helper()
	_, err := w.Ask(w.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(workspaceID, id), Principal: entity.Platform(), Message: m,
	})
	if err != nil {
		w.Fatalf("%T: %v", m, err)
	}
}

func (w *world) state(id string) *sessionv1.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions[session.Identity(workspaceID, id)]
}

// end ends the turn of a session with a text.
func (w *world) end(id, text string, end *sessionv1.EndTurn) {
	w.Helper()
	turn := w.state(id).GetTurn().GetId()
	w.platform(id, &sessionv1.ClaimTurn{TurnId: turn, RunId: "run"})
	if text != "" {
		w.platform(id, &sessionv1.RecordRows{
			TurnId: turn, RunId: "run", Batch: 1, Rows: []*sessionv1.Row{{Text: &sessionv1.Text{Text: text, InputSeq: turn}}},
		})
	}
	end.TurnId, end.RunId = turn, "run"
	w.platform(id, end)
}

// person is a caller elsewhere.
var person = tools.Caller{Caller: service.Caller{Principal: &wirev1.Principal{
	Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, CredentialId: "key_1", UserId: "usr_1",
}}}

// agent returns the caller for the agent of a session.
func agent(id string, turn tools.Turn) tools.Caller {
	return tools.SessionCaller(workspaceID, id, "usr_1", entity.AgentCapabilities(), &sessionv1.Participant{UserId: "usr_1"}, turn)
}

// client connects the client of the SDK as a caller.
func (w *world) client(caller tools.Caller) *client {
	w.Helper()
	here, there := mcp.NewInMemoryTransports()
	if _, err := w.tools.Connect(w.Context(), there, caller); err != nil {
		w.Fatal(err)
	}
	connected, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(w.Context(), here, nil)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { connected.Close() })
	return &client{w, connected}
}

type client struct {
	*world
	*mcp.ClientSession
}

type arguments = map[string]any

// call calls a tool and decodes its result into out, unless out is nil. It returns the text of an error of the tool.
func (c *client) call(name string, in arguments, out any) string {
	c.Helper()
	result, err := c.CallTool(c.Context(), &mcp.CallToolParams{Name: name, Arguments: in})
	if err != nil {
		c.Fatalf("%s: %v", name, err)
	}
	text := result.Content[0].(*mcp.TextContent).Text
	if result.IsError {
		return text
	}
	if len(text) > tools.MaxResult {
		c.Errorf("%s: the result has %d bytes", name, len(text))
	}
	structured, err := json.Marshal(result.StructuredContent)
	if err != nil {
		c.Fatal(err)
	}
	var one, other any
	if err := errors.Join(json.Unmarshal([]byte(text), &one), json.Unmarshal(structured, &other)); err != nil || fmt.Sprint(one) != fmt.Sprint(other) {
		c.Errorf("%s: text and structured content differ: %s, %s", name, text, structured)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(text), out); err != nil {
			c.Fatalf("%s: %v in %s", name, err, text)
		}
	}
	return ""
}

// must is call for a call that succeeds.
func (c *client) must(name string, in arguments, out any) {
	c.Helper()
	if failed := c.call(name, in, out); failed != "" {
		c.Fatalf("%s: %s", name, failed)
	}
}
