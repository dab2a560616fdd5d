// Package runnertest has the fixtures of tests of a runner: sessions in memory with the real rules (World), computers that are
// pipes (Computers), and agents that a test scripts (Agent). Nothing uses the network, so that tests can run in a bubble of
// testing/synctest.
package runnertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/session"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A World has the sessions of one workspace. It implements runner.Asker. All methods may be called concurrently.
type World struct {
	mu        sync.Mutex
	changed   chan struct{}
	sessions  map[string]*stored
	rows      map[string]map[string][]byte
	workspace *workspacev1.Workspace
	usage     *workspacev1.AgentUsage
	added     map[string]bool
	deltas    []*sessionv1.PublishDelta
	commands  []proto.Message
	intercept func(entity.Command) error
	// refusals are the errors that refuse the access of people, by user id.
	refusals map[string]error
	disabled map[string]bool
	revoked  map[string]bool
	// expiries are the times at which credentials expire, in milliseconds since the Unix epoch, by their ids.
	expiries map[string]int64
	// apps are the registered apps, by their ids.
	apps map[string]*appv1.App
}

type stored struct {
	state  *sessionv1.Session
	events []proto.Message
}

// WorkspaceID is the id of the workspace of a World.
const WorkspaceID = "ws_1"

// New returns a world without sessions.
func New() *World {
	return &World{
		changed: make(chan struct{}), sessions: map[string]*stored{}, rows: map[string]map[string][]byte{}, added: map[string]bool{},
		workspace: &workspacev1.Workspace{Id: WorkspaceID, Status: workspacev1.Status_STATUS_ACTIVE},
		refusals:  map[string]error{}, disabled: map[string]bool{}, revoked: map[string]bool{}, expiries: map[string]int64{},
		apps:  map[string]*appv1.App{},
		usage: &workspacev1.AgentUsage{Used: &workspacev1.AgentWork{}, Allowed: &workspacev1.AgentWork{}},
	}
}

// Intercept makes commands fail with the errors that f returns, before they have an effect. nil: none fails.
func (w *World) Intercept(f func(entity.Command) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intercept = f
}

// ChangeWorkspace changes the workspace.
func (w *World) ChangeWorkspace(f func(*workspacev1.Workspace)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.workspace = proto.CloneOf(w.workspace)
	f(w.workspace)
}

// Refuse makes the workspace refuse a person the right to take part in sessions; a nil error grants it again.
func (w *World) Refuse(userID string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusals[userID] = err
}

// Disable disables the account of a person.
func (w *World) Disable(userID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disabled[userID] = true
}

// Revoke revokes an OAuth grant or a credential.
func (w *World) Revoke(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revoked[id] = true
}

// Expire makes a credential expire at a time.
func (w *World) Expire(id string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expiries[id] = at.UnixMilli()
}

// SetApp sets the state of the app with an id; nil: the id belongs to no registered app.
func (w *World) SetApp(id string, s *appv1.App) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apps[id] = s
}

// describeApp returns the app with an identity. Errors: not_found.
func (w *World) describeApp(identity string) (*appv1.Description, error) {
	_, id := app.SplitIdentity(identity)
	if w.apps[id] == nil {
		return nil, entity.Errorf(entity.NotFound, "no such app")
	}
	return &appv1.Description{App: w.apps[id]}, nil
}

// credential returns the state of a credential.
func (w *World) credential(id string) *credentialv1.Credential {
	c := &credentialv1.Credential{Id: id, SecretSha256: []byte(id), ExpiresAt: w.expiries[id]}
	if w.revoked[id] {
		c.RevokedAt = 1
	}
	return c
}

// Usage returns the use of agents by the sessions of the workspace.
func (w *World) Usage() *workspacev1.AgentUsage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return proto.CloneOf(w.usage)
}

// Deltas returns the deltas that were published, in order.
func (w *World) Deltas() []*sessionv1.PublishDelta {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.deltas)
}

// Commands returns the commands that the sessions have got, in order, without queries and deltas.
func (w *World) Commands() []proto.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commands)
}

// Put writes a row of a list of the workspace.
func (w *World) Put(list, key string, m proto.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(entity.Row{List: list, Key: key, Message: m})
}

// Count returns the number of the rows of a list.
func (w *World) Count(list string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.rows[list])
}

func (w *World) put(r entity.Row) {
	if w.rows[r.List] == nil {
		w.rows[r.List] = map[string][]byte{}
	}
	if r.Message == nil {
		delete(w.rows[r.List], r.Key)
		return
	}
	encoded, err := proto.Marshal(r.Message)
	if err != nil {
		panic(err)
	}
	w.rows[r.List][r.Key] = encoded
}

// Ask implements runner.Asker.
func (w *World) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w.mu.Lock()
	intercept := w.intercept
	w.mu.Unlock()
	if intercept != nil {
		if err := intercept(c); err != nil {
			return nil, err
		}
	}
	switch c.Kind {
	case entity.KindWorkspace:
		return w.askWorkspace(c)
	case entity.KindUser, entity.KindGrant, entity.KindCredential, entity.KindApp:
		return w.askOther(c)
	}
	for {
		w.mu.Lock()
		reply, waits, err := w.decide(c)
		changed := w.changed
		w.mu.Unlock()
		if !waits {
			return reply, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// askOther answers the queries of a runner about people, grants, credentials and apps.
func (w *World) askOther(c entity.Command) (proto.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch c.Kind {
	case entity.KindUser:
		return &userv1.Standing{Disabled: w.disabled[c.Identity]}, nil
	case entity.KindCredential:
		return w.credential(c.Identity), nil
	case entity.KindApp:
		return w.describeApp(c.Identity)
	}
	grant := &grantv1.Grant{Id: c.Identity}
	if w.revoked[c.Identity] {
		grant.RevokedAt = 1
	}
	return grant, nil
}

// Await waits until a condition on the sessions holds, or ctx ends.
func (w *World) Await(ctx context.Context, holds func() bool) {
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (w *World) decide(c entity.Command) (reply proto.Message, waits bool, err error) {
	s := w.sessions[c.Identity]
	if s == nil {
		s = &stored{state: session.Zero(c.Identity)}
		w.sessions[c.Identity] = s
	}
	call := entity.Call{
		Now: time.Now(), Identity: c.Identity, Principal: c.Principal, Version: uint64(len(s.events)) + 1, Role: workspacev1.Role_ROLE_OWNER,
	}
	switch m := c.Message.(type) {
	case *wirev1.ReadTimeline:
		reply, err = readTimeline(s, m)
		return reply, false, err
	case *sessionv1.PublishDelta:
		w.deltas = append(w.deltas, proto.CloneOf(m))
		return &wirev1.Done{}, false, nil
	}
	if session.Kind.Waits(call, s.state, c.Message) {
		return nil, true, nil
	}
	out, err := session.Kind.Carry(call, s.state, proto.Clone(c.Message))
	if err != nil {
		return nil, false, err
	}
	if len(out.Events) > 0 {
		s.state = out.State.(*sessionv1.Session)
		s.events = append(s.events, out.Events...)
		close(w.changed)
		w.changed = make(chan struct{})
	}
	for _, r := range out.Rows {
		w.put(r)
	}
	w.commands = append(w.commands, proto.Clone(c.Message))
	return proto.Clone(out.Reply), false, nil
}

func readTimeline(s *stored, m *wirev1.ReadTimeline) (*wirev1.Timeline, error) {
	page, step := &wirev1.Timeline{}, 1
	from := int(m.GetFrom()) - 1
	if m.GetDescending() {
		step = -1
		if m.GetFrom() == 0 {
			from = len(s.events) - 1
		}
	}
	for i := max(from, 0); i >= 0 && i < len(s.events); i += step {
		if _, is := s.events[i].(*sessionv1.RowAdded); !is {
			continue
		}
		if len(page.GetEvents()) == int(m.GetLimit()) {
			page.Next = uint64(i) + 1
			break
		}
		payload, err := proto.Marshal(s.events[i])
		if err != nil {
			return nil, err
		}
		page.Events = append(page.Events, &wirev1.TimelineEvent{Version: uint64(i) + 1, Name: entity.MessageName(s.events[i]), Payload: payload})
	}
	return page, nil
}

func (w *World) askWorkspace(c entity.Command) (proto.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := c.Message.(type) {
	case *workspacev1.Authorize:
		if err := w.refusals[c.Principal.GetUserId()]; err != nil {
			return nil, err
		}
		return &workspacev1.Authorized{}, nil
	case *workspacev1.DescribeWorkspace:
		return &workspacev1.Description{Workspace: w.workspace}, nil
	case *workspacev1.ReadAgentUsage:
		return proto.CloneOf(w.usage), nil
	case *workspacev1.AllowAgentUsage:
		w.usage.Allowed = proto.CloneOf(w.usage.GetUsed())
		return proto.CloneOf(w.usage), nil
	case *workspacev1.AddAgentUsage:
		if used := w.usage.GetUsed(); !w.added[c.ID] {
			used.InputTokens += m.GetWork().GetInputTokens()
			used.OutputTokens += m.GetWork().GetOutputTokens()
			used.RunningMs += m.GetWork().GetRunningMs()
		}
		w.added[c.ID] = c.ID != ""
		return proto.CloneOf(w.usage), nil
	case *wirev1.List:
		return w.list(m)
	}
	return nil, entity.UnknownCommand(entity.KindWorkspace, c.Message)
}

func (w *World) list(m *wirev1.List) (*wirev1.Page, error) {
	page := &wirev1.Page{}
	var keys []string
	for key := range w.rows[m.GetName()] {
		if strings.HasPrefix(key, string(m.GetPrefix())) && key > string(m.GetAfter()) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i == int(m.GetLimit()) || m.GetName() == session.ImageList && i == 1 {
			page.Next = []byte(keys[i-1])
			break
		}
		row := w.rows[m.GetName()][key]
		if l := session.Lists()[m.GetName()]; l.Of != "" {
			of, err := l.Key(row)
			if err != nil {
				return nil, err
			}
			row = w.rows[l.Of][of]
		}
		page.Rows = append(page.Rows, row)
	}
	return page, nil
}

// Session returns the state of a session.
func (w *World) Session(id string) *sessionv1.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sessions[session.Identity(WorkspaceID, id)]; s != nil {
		return s.state
	}
	return &sessionv1.Session{}
}

// Timeline returns the rows of a session as lines, each with the kind of the row and the values of that kind.
func (w *World) Timeline(id string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	for _, e := range w.sessions[session.Identity(WorkspaceID, id)].events {
		if added, is := e.(*sessionv1.RowAdded); is {
			lines = append(lines, line(added.GetRow()))
		}
	}
	return lines
}

func line(r *sessionv1.Row) string {
	name := func(s string) string { return strings.ToLower(s[strings.LastIndex(s, "STATUS_")+len("STATUS_"):]) }
	switch {
	case r.GetInput() != nil:
		text := cmp.Or(r.GetInput().GetOptionId(), r.GetInput().GetText())
		return "input " + text
	case r.GetText() != nil:
		return "text " + r.GetText().GetText()
	case r.GetThought() != nil:
		return "thought " + r.GetThought().GetText()
	case r.GetTool() != nil:
		t := r.GetTool()
		return strings.TrimSpace(fmt.Sprintf("tool %s %s %v %s", t.GetTitle(), t.GetStatus(), t.GetPaths(), t.GetOutput()))
	case r.GetPlan() != nil:
		return fmt.Sprintf("plan %d", len(r.GetPlan().GetSteps()))
	case r.GetAsk() != nil:
		labels := []string{}
		for _, o := range r.GetAsk().GetOptions() {
			labels = append(labels, o.GetLabel())
		}
		return "ask " + r.GetAsk().GetText() + " " + strings.Join(labels, "|")
	case r.GetTerminal() != nil:
		return strings.TrimSpace("terminal " + name(r.GetTerminal().GetTurnStatus().String()) + " " + r.GetTerminal().GetError().GetCode())
	default:
		return "setting"
	}
}
