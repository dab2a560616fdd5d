package tools_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/workspace"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/tools"
	"github.com/atelier-run/atelier/service"
)

// appSeq is the position of the activity.
const appSeq = 9

// An appWorld runs the rules of a workspace and its apps, with a drive and the logs of the apps. It is a part of a world; mu of
// the world guards it.
type appWorld struct {
	*world
	workspace *workspacev1.Workspace
	version   uint64
	apps      map[string]*appv1.App
	// reactions are the commands to entities of a kind that follow from events, until the sender is settled.
	reactions map[string][]entity.Command
	// computer reports the result of a configuration, "" for success; isBusy: it is still trying.
	computer func(*appv1.Runtime) (failure string, isBusy bool)
	// folders has the real path of each folder; empty: there is none.
	folders map[string]string
	logs    map[string][]tools.LogLine
	// logFailure, if it is set, is the error of each log.
	logFailure error
}

// newAppWorld returns a world with the folders a, b and c and a computer that accepts everything. usr_1 owns the workspace, and
// usr_2 is a viewer.
func newAppWorld(t *testing.T, edit ...func(*tools.Options)) *appWorld {
	t.Helper()
	a := &appWorld{
		workspace: workspace.Zero(workspaceID), apps: map[string]*appv1.App{}, folders: map[string]string{"a": "a", "b": "b", "c": "c", "link": "a"},
		reactions: map[string][]entity.Command{}, logs: map[string][]tools.LogLine{}, computer: func(*appv1.Runtime) (string, bool) { return "", false },
	}
	addresses := app.Addresses{EdgeHost: "apps.example.org", Scheme: "https"}
	a.world = newWorld(t, append([]func(*tools.Options){func(o *tools.Options) {
		o.Folders, o.Apps = a, &tools.AppOptions{Logs: a, Addresses: addresses}
	}}, edit...)...)
	a.world.apps = a
	for _, c := range []proto.Message{
		&workspacev1.CreateWorkspace{Slug: slugName, Name: "Acme", CreatorId: "usr_1", CreatorEmail: "ada@example.org", CreatorName: "Ada"},
		&workspacev1.ReportReady{},
	} {
		if _, err := a.askWorkspace(entity.Command{Principal: entity.Platform(), Message: c}); err != nil {
			t.Fatal(err)
		}
	}
	a.workspace.Members["usr_2"] = &workspacev1.Membership{UserId: "usr_2", Role: workspacev1.Role_ROLE_VIEWER}
	return a
}

// ResolveFolder implements tools.Folders.
func (a *appWorld) ResolveFolder(_ context.Context, _, path string) (string, error) {
	real, exists := a.folders[path]
	if !exists && path != "" {
		return "", entity.Errorf(entity.InvalidCwd, "the working directory does not exist")
	}
	return real, nil
}

// ReadLog implements tools.AppLogs.
func (a *appWorld) ReadLog(_ context.Context, _, appID string, after uint64, limit int) ([]tools.LogLine, bool, error) {
	var found []tools.LogLine
	for _, line := range a.logs[appID] {
		if line.Seq > after && len(found) < limit {
			found = append(found, line)
		}
	}
	return found, after > 0 && len(found) > 0 && found[0].Seq > after+1, a.logFailure
}

// say adds lines to the log of an app.
func (a *appWorld) say(appID, stream string, texts ...string) {
	for _, text := range texts {
		n := len(a.logs[appID])
		next := uint64(1)
		if n > 0 {
			next = a.logs[appID][n-1].Seq + 1
		}
		a.logs[appID] = append(a.logs[appID], tools.LogLine{Seq: next, At: now.UnixMilli(), Stream: stream, Text: text})
	}
}

// ask answers the commands that concern apps. The caller holds mu.
func (a *appWorld) ask(ctx context.Context, c entity.Command) (_ proto.Message, err error, answers bool) {
	var reply proto.Message
	switch m := c.Message.(type) {
	case *workspacev1.RegisterApp, *workspacev1.FindApp, *workspacev1.ReserveAppPort, *workspacev1.Authorize, *workspacev1.DescribeWorkspace:
		reply, err = a.askWorkspace(c)
	case *activityv1.Record:
		reply = &activityv1.Recorded{Seq: appSeq}
	case *slugv1.ResolveSlug:
		return nil, nil, false
	case *wirev1.List:
		if m.GetName() != app.List {
			return nil, nil, false
		}
		if err = workspace.Kind.Check(a.call(c), a.workspace, app.Lists()[app.List].Need); err == nil {
			reply = a.list(m)
		}
	default:
		if c.Kind != entity.KindApp {
			return nil, nil, false
		}
		reply, err = a.askApp(ctx, c)
	}
	return reply, err, true
}

func (a *appWorld) call(c entity.Command) entity.Call {
	return entity.Call{Now: now, Identity: workspaceID, Principal: c.Principal, Version: a.version + 1}
}

func (a *appWorld) askWorkspace(c entity.Command) (proto.Message, error) {
	outcome, err := workspace.Kind.Carry(a.call(c), a.workspace, c.Message)
	if err != nil {
		return nil, err
	}
	a.workspace, a.version = outcome.State.(*workspacev1.Workspace), a.version+uint64(len(outcome.Events))
	a.react(workspace.Kind, workspaceID, outcome)
	a.store(outcome.Rows)
	return outcome.Reply, nil
}

func (a *appWorld) react(kind entity.Kind, identity string, outcome entity.Outcome) {
	for _, e := range outcome.Events {
		for _, r := range kind.React(identity, e) {
			r.Command.Principal = entity.Platform()
			a.reactions[r.Command.Kind] = append(a.reactions[r.Command.Kind], r.Command)
		}
	}
}

// settle delivers the commands that follow from the events of the workspace to the apps, or from the events of the apps to the
// workspace.
func (a *appWorld) settle(kind string) {
	to := map[string]string{entity.KindWorkspace: entity.KindApp, entity.KindApp: entity.KindWorkspace}[kind]
	for _, c := range a.reactions[to] {
		var err error
		if to == entity.KindApp {
			_, err = a.askApp(context.Background(), c)
		} else {
			_, err = a.askWorkspace(c)
		}
		if err != nil {
			a.Errorf("%T: %v", c.Message, err)
		}
	}
	delete(a.reactions, to)
}

// askApp has the workspace authorize the command, and runs the rules of the app, and then the computer.
func (a *appWorld) askApp(ctx context.Context, c entity.Command) (proto.Message, error) {
	access, err := app.Kind.Access(c.Message)
	if err != nil {
		return nil, err
	}
	owner := a.call(c)
	if err := access.Authorize(c.Principal, func(need entity.Need) error { return workspace.Kind.Check(owner, a.workspace, need) }); err != nil {
		return nil, err
	}
	if a.apps[c.Identity] == nil {
		a.apps[c.Identity] = app.Zero(c.Identity)
	}
	call := func() entity.Call {
		return entity.Call{
			Now: now, Identity: c.Identity, Principal: c.Principal, Version: a.apps[c.Identity].GetRevision() + 1,
			Role: workspace.Kind.Role(owner, a.workspace),
		}
	}
	if err := a.wait(ctx, func() bool { return app.Kind.Waits(call(), a.apps[c.Identity], c.Message) }); err != nil {
		return nil, err
	}
	outcome, err := app.Kind.Carry(call(), a.apps[c.Identity], c.Message)
	if err != nil {
		return nil, err
	}
	a.apps[c.Identity] = outcome.State.(*appv1.App)
	a.react(app.Kind, c.Identity, outcome)
	a.store(outcome.Rows)
	a.compute(c.Identity)
	return outcome.Reply, nil
}

// compute reports the result of the requested configuration of an app, unless the computer is busy.
func (a *appWorld) compute(identity string) {
	s := a.apps[identity]
	isRunning := slices.ContainsFunc(app.Tasks(s), func(task entity.Task) bool { return task.Kind == app.RunTask })
	if s.GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING || !isRunning {
		return
	}
	failure, isBusy := a.computer(s.GetRequested())
	if isBusy {
		return
	}
	a.tellApp(identity, &appv1.ReportReconciled{Generation: s.GetGeneration(), Failure: failure})
}

// tellApp sends a command to an app as the platform.
func (a *appWorld) tellApp(identity string, m appv1.Command) {
	if _, err := a.askApp(context.Background(), entity.Command{Identity: identity, Principal: entity.Platform(), Message: m}); err != nil {
		a.Errorf("%T: %v", m, err)
	}
}

// app returns the state of the app with a slug.
func (a *appWorld) app(slug string) *appv1.App {
	a.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.apps {
		if s.GetSlug() == slug {
			return s
		}
	}
	a.Fatal("no app ", slug)
	return nil
}

// oauth returns a caller elsewhere with a grant of capabilities.
func oauth(userID string, grants ...string) tools.Caller {
	return tools.Caller{Caller: service.Caller{Principal: &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, CredentialId: fmt.Sprint("grt_", userID), UserId: userID, WorkspaceId: workspaceID, Grants: grants,
	}}}
}
