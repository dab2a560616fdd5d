package node

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/apps"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/api"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/persistence/datadir"
	"github.com/atelier-run/atelier/runner/tools"
)

// maxApps is the number of apps that run at the same time in this process.
const maxApps = 10_000

// newSupervisor returns the supervisor of apps. The API for the apps is the server of the node.
func (n *Node) newSupervisor(o Options) *apps.Supervisor {
	settings := o.Apps
	settings.Asker, settings.Computers, settings.API = n.Router, appComputers{n.Computers}, http.HandlerFunc(n.serveApp)
	settings.Dir, settings.Clock, settings.Log = filepath.Join(o.Dir, datadir.AppsName), o.Clock, o.Log
	return apps.New(settings)
}

// serveApp serves a request of an app to the API.
func (n *Node) serveApp(w http.ResponseWriter, r *http.Request) {
	if err := n.awaitServer(r.Context()); err != nil {
		http.Error(w, "the node is starting", http.StatusServiceUnavailable)
		return
	}
	r.Host = n.Server.Options().PublicURL.Host // the address inside the computer is no host of the server
	n.Server.ServeHTTP(w, r)
}

// appExecutors returns the executors that run the processes of apps, and end the processes of apps that are removed.
func (n *Node) appExecutors(o Options) map[string]actors.Executor {
	run := func(ctx context.Context, t actors.Task, m *appv1.RunTask) (proto.Message, error) {
		ctx, end := context.WithCancel(ctx)
		var maintaining sync.WaitGroup
		if o.Domains.Enabled {
			maintaining.Go(func() { n.certificates.MaintainStandardAddress(ctx, t.Identity) })
		}
		defer maintaining.Wait()
		defer end()
		return n.apps.Run(ctx, t.Identity, m)
	}
	stop := func(ctx context.Context, t actors.Task, m *appv1.StopTask) (proto.Message, error) {
		return n.apps.Stop(ctx, t.Identity, m)
	}
	// Run lasts as long as the app runs. It returns early only if it cannot open the log.
	return map[string]actors.Executor{
		app.RunTask: {
			Limit: maxApps, Timeout: 10 * 365 * 24 * time.Hour, FirstPause: time.Second, LongestPause: time.Minute, Run: actors.RunTyped(run),
		},
		app.StopTask: {Limit: 64, Timeout: 5 * time.Minute, LongestPause: 30 * time.Second, Run: actors.RunTyped(stop)},
	}
}

// appComputers implements apps.Computers with the fleet.
type appComputers struct{ fleet *computer.Fleet }

// Launch implements apps.Computers.
func (c appComputers) Launch(ctx context.Context, l apps.Launch) (apps.Process, error) {
	running, err := c.fleet.Launch(ctx, computer.Launch{
		WorkspaceID: l.WorkspaceID, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_APP,
		AppID: l.AppID, UserID: l.UserID, Argv: l.Argv, Cwd: l.Cwd, Env: l.Env, Limits: l.Limits,
		OwnNetwork: l.OwnNetwork, Prepare: l.Prepare,
	})
	if err != nil {
		return nil, err
	}
	return running, nil
}

// Dial implements apps.Computers.
func (c appComputers) Dial(ctx context.Context, workspaceID string, port int) (net.Conn, error) {
	return c.fleet.Dial(ctx, workspaceID, port)
}

// Listen implements apps.Computers.
func (c appComputers) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	return c.fleet.Listen(ctx, workspaceID, port)
}

// OwnNetworks implements apps.Computers.
func (c appComputers) OwnNetworks() bool { return c.fleet.OwnNetworks() }

// Usage implements apps.Computers.
func (c appComputers) Usage(ctx context.Context, workspaceID string) ([]computer.Usage, error) {
	return c.fleet.Usage(ctx, workspaceID)
}

// appLogs implements api.AppLogs and tools.AppLogs with the logs of the supervisor.
type appLogs struct{ supervisor *apps.Supervisor }

// OpenLog implements api.AppLogs.
func (l appLogs) OpenLog(
	_ context.Context, workspaceID, appID string, isFollowed bool,
) (func(context.Context, uint64, func([]api.AppLine, bool) error) error, error) {
	follow, err := l.supervisor.OpenLog(workspaceID, appID, isFollowed)
	return func(ctx context.Context, after uint64, send func([]api.AppLine, bool) error) error {
		return follow(ctx, after, func(lines []apps.Line, missed bool) error {
			return send(converted(lines, func(l apps.Line) api.AppLine { return api.AppLine(l) }), missed)
		})
	}, err
}

// ReadLog implements tools.AppLogs.
func (l appLogs) ReadLog(
	_ context.Context, workspaceID, appID string, after uint64, limit int,
) (lines []tools.LogLine, missed bool, err error) {
	found, missed, err := l.supervisor.ReadLog(workspaceID, appID, after, limit)
	return converted(found, func(l apps.Line) tools.LogLine { return tools.LogLine(l) }), missed, err
}

// converted returns the lines of a log in the type of a door.
func converted[Line any](lines []apps.Line, convert func(apps.Line) Line) (all []Line) {
	for _, line := range lines {
		all = append(all, convert(line))
	}
	return all
}
