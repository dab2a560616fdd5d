package http_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// fakeApps plays the edge, and the supervisor of the apps of one workspace.
type fakeApps struct {
	// workspace is the id of the workspace. does is the behaviour of its supervisor. reason is the supervisor's reason to refuse.
	workspace, does, reason string
	// router returns the router of the node.
	router func() *cluster.Router
}

func newFakeApps() *fakeApps { return &fakeApps{does: "nothing"} }

// options returns the options of the operations. Requests wait only if the supervisor does something.
func (f *fakeApps) options() api.AppOptions {
	wait := longest
	if f.does == "nothing" {
		wait = time.Millisecond
	}
	return api.AppOptions{Launcher: f, Logs: f, WaitTime: wait, Addresses: app.Addresses{EdgeHost: "apps.example", Scheme: "https"}}
}

// grants matches the secret of a grant in an address.
var grants = regexp.MustCompile(edge.GrantParameter + `=\w+`)

// Launch implements api.Launcher with the launcher of the edge. The grant in the address is left out, because it is random.
func (f *fakeApps) Launch(ctx context.Context, p *wirev1.Principal, workspaceID, appID, host, path string) (string, error) {
	if strings.HasPrefix(path, "/broken") {
		return "", entity.Errorf(entity.Unavailable, "the edge is busy")
	}
	launcher := edge.Launcher{
		Asker: f.router(), NewID: server.NewID, PublicURL: &url.URL{Scheme: "https", Host: "atelier.example"}, EdgeHost: "apps.example",
	}
	to, err := launcher.Launch(ctx, p, workspaceID, appID, host, path)
	return grants.ReplaceAllString(to, edge.GrantParameter+"=<grant>"), err
}

// OpenLog implements api.AppLogs with a log of two lines. The first line of the log was lost.
func (f *fakeApps) OpenLog(_ context.Context, _, _ string, isFollowed bool) (func(context.Context, uint64, func([]api.AppLine, bool) error) error, error) {
	return func(ctx context.Context, after uint64, send func([]api.AppLine, bool) error) error {
		all := []api.AppLine{
			{Seq: 2, At: 1_800_000_000_000, Stream: "install", Text: "installed"}, {Seq: 3, At: 1_800_000_000_001, Stream: "stdout", Text: "listening"},
		}
		var left []api.AppLine
		for _, line := range all {
			if line.Seq > after {
				left = append(left, line)
			}
		}
		if err := send(left, after == 0); err != nil {
			return err
		}
		if isFollowed {
			<-ctx.Done()
		}
		return nil
	}, nil
}

// supervise changes the behaviour of the supervisor of a workspace's apps during requests: it accepts, refuses with the reason in the input
// of the command, or does nothing, which it does at first. The node starts again if requests wait for another time from then on.
func (s *stage) supervise(workspaceID, does, reason string) {
	restarts := (s.apps.does == "nothing") != (does == "nothing")
	s.apps.workspace, s.apps.does, s.apps.reason = workspaceID, does, strings.TrimSpace(reason)
	if restarts {
		s.stop()
		s.start()
	}
}

// supervised runs a request while the supervisor reports on each app that waits for it.
func (s *stage) supervised(run func() string) string {
	if s.apps.does == "nothing" {
		return run()
	}
	answered := make(chan string)
	go func() { answered <- run() }()
	for {
		select {
		case answer := <-answered:
			s.reportOnApps() // on the apps that the request has not waited for
			return answer
		default:
			s.reportOnApps()
		}
	}
}

func (s *stage) reportOnApps() {
	page, err := s.askAbout(entity.KindWorkspace, s.apps.workspace, &wirev1.List{Name: app.List, Limit: 100})
	if err != nil {
		s.Error(err)
		return
	}
	rows, err := server.DecodeRows(page.(*wirev1.Page), func(row *appv1.App) *appv1.App { return row })
	if err != nil {
		s.Error(err)
	}
	for _, row := range rows {
		identity := app.Identity(row.GetWorkspaceId(), row.GetId())
		failure := ""
		if s.apps.does == "refuses" {
			failure = s.apps.reason
		}
		var m proto.Message
		switch {
		case row.GetRemoval() != nil:
			m = &appv1.ReportStopped{TaskId: row.GetRemoval().GetTaskId(), Failure: failure}
		case row.GetRuntimeStatus() == appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING:
			m = &appv1.ReportReconciled{Generation: row.GetGeneration(), Failure: failure}
		default:
			continue
		}
		if _, err := s.askAbout(entity.KindApp, identity, m); err != nil {
			s.Error(err)
		}
	}
}

func (s *stage) askAbout(kind, identity string, m proto.Message) (proto.Message, error) {
	return s.node.Router.Ask(s.Context(), entity.Command{Kind: kind, Identity: identity, Principal: entity.Platform(), Message: m})
}

// runApp plays the supervisor of one app.
func (s *stage) runApp(does, identity, input string) string {
	found, err := s.askAbout(entity.KindApp, identity, &appv1.DescribeApp{})
	if err != nil {
		return err.Error() + "\n"
	}
	a, reason := found.(*appv1.Description).GetApp(), strings.TrimSpace(input)
	var m proto.Message
	switch does {
	case "reconciled":
		m = &appv1.ReportReconciled{Generation: a.GetGeneration()}
	case "failed":
		m = &appv1.ReportReconciled{Generation: a.GetGeneration(), Failure: reason}
	case "key": // the input names the key; the transcript continues with it
		text, hash := newKeyOf(kindApp, a.GetId())
		s.keys[reason] = text
		m = &appv1.IssueKey{Generation: a.GetAcceptedGeneration(), SecretSha256: hash}
	case "crashed":
		m = &appv1.ReportCrash{Generation: a.GetAcceptedGeneration(), Crash: &appv1.Crash{Reason: reason}}
	case "asleep":
		m = &appv1.ReportAsleep{Generation: a.GetAcceptedGeneration()}
	case "wake":
		m = &appv1.WakeApp{}
	case "stopped":
		m = &appv1.ReportStopped{TaskId: a.GetRemoval().GetTaskId()}
	case "survives":
		m = &appv1.ReportStopped{TaskId: a.GetRemoval().GetTaskId(), Failure: reason}
	default:
		s.Fatalf("a supervisor does not %s", does)
	}
	return s.tell(entity.KindApp, identity, m)
}
