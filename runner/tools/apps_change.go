package tools

import (
	"context"
	"path"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	appservice "github.com/atelier-run/atelier/service/app"
)

type registerAppIn struct {
	Path              string   `json:"path" jsonschema:"the folder of the app: a path below the root of the drive" bounds:"1:4096"`
	Slug              string   `json:"slug" jsonschema:"the name of the app in its address: lower-case letters, digits and hyphens" bounds:"1:30"`
	Command           string   `json:"command" jsonschema:"the shell command that serves HTTP on 127.0.0.1:$PORT" bounds:"1:8192"`
	InstallCommand    string   `json:"installCommand,omitzero" jsonschema:"a shell command that runs before the process starts, for example npm ci" bounds:"1:8192"`
	Port              uint32   `json:"port,omitzero" jsonschema:"the port; omitted: a free one" bounds:"1:65535"`
	APIScopes         []string `json:"apiScopes,omitzero" jsonschema:"what the app may do with the key in SERVICE_APP_API_KEY, for example files:read; omitted: it gets no key" bounds:"0:16" each:"1:64"`
	Name              string   `json:"name,omitzero" jsonschema:"a name for people" bounds:"1:64"`
	Icon              string   `json:"icon,omitzero" jsonschema:"the path of an image in the folder of the app" bounds:"1:1024"`
	SleepAfterSeconds int64    `json:"sleepAfterSeconds,omitzero" jsonschema:"end the process after this time without requests, and start it at the next one; 0: do not" bounds:"0:604800"`
	TimeoutSeconds    int      `json:"timeoutSeconds,omitzero" jsonschema:"the longest time to wait for the process; 0 or omitted: 45" bounds:"0:300"`
}

// appOut is the result of a change of an app.
type appOut struct {
	App AppView `json:"app"`
	// Log has the last lines of the log, unless the app is reconciled.
	Log *LogView `json:"log,omitzero"`
}

// registerApp registers an app, and waits until its process accepts connections. Errors: invalid_request, forbidden, slug_taken,
// path_in_use, port_in_use, limit_reached.
func registerApp(ctx context.Context, c *call, in registerAppIn) (appOut, error) {
	r := &appv1.Registration{
		Path: path.Clean("/" + in.Path)[1:], Slug: in.Slug, Name: in.Name, Icon: in.Icon, Runtime: &appv1.Runtime{
			Command: in.Command, InstallCommand: in.InstallCommand, Port: in.Port, ApiScopes: in.APIScopes,
			SleepAfterMs: time.Duration(in.SleepAfterSeconds * int64(time.Second)).Milliseconds(),
		},
	}
	if err := app.CheckRegistration(r); err != nil {
		return appOut{}, err
	}
	made, err := c.appRequest().Register(ctx, r)
	if err != nil {
		return appOut{}, err
	}
	return c.awaitApp(ctx, made, in.TimeoutSeconds)
}

type updateAppIn struct {
	App               string   `json:"app" jsonschema:"the slug of the app" bounds:"1:30"`
	Command           *string  `json:"command,omitzero" jsonschema:"the shell command that serves HTTP on 127.0.0.1:$PORT" bounds:"1:8192"`
	InstallCommand    *string  `json:"installCommand,omitzero" jsonschema:"a shell command that runs before the process starts; an empty text removes it" bounds:"0:8192"`
	Port              *uint32  `json:"port,omitzero" jsonschema:"the port" bounds:"1:65535"`
	APIScopes         []string `json:"apiScopes,omitzero" jsonschema:"what the app may do with its key" bounds:"0:16" each:"1:64"`
	Name              *string  `json:"name,omitzero" jsonschema:"a name for people" bounds:"1:64"`
	Icon              *string  `json:"icon,omitzero" jsonschema:"the path of an image in the folder of the app" bounds:"1:1024"`
	SleepAfterSeconds *int64   `json:"sleepAfterSeconds,omitzero" jsonschema:"end the process after this time without requests; 0: do not" bounds:"0:604800"`
	TimeoutSeconds    int      `json:"timeoutSeconds,omitzero" jsonschema:"the longest time to wait for the process; 0 or omitted: 45" bounds:"0:300"`
}

var errNoAppChange = entity.Errorf(entity.InvalidRequest, "at least one property of the app is required")

// updateApp changes an app, and waits until the computer has accepted its configuration, if that has changed. Errors: invalid_request,
// not_found, forbidden, port_in_use, limit_reached.
func updateApp(ctx context.Context, c *call, in updateAppIn) (appOut, error) {
	u := &appv1.UpdateApp{Command: in.Command, InstallCommand: in.InstallCommand, Port: in.Port, Name: in.Name, Icon: in.Icon}
	if in.APIScopes != nil {
		u.ApiScopes = &appv1.Scopes{Scopes: in.APIScopes}
	}
	if in.SleepAfterSeconds != nil {
		u.SleepAfterMs = proto.Int64(time.Duration(*in.SleepAfterSeconds * int64(time.Second)).Milliseconds())
	}
	if proto.Size(u) == 0 {
		return appOut{}, errNoAppChange
	}
	made, err := c.appRequest().Update(ctx, in.App, u)
	if err != nil {
		return appOut{}, err
	}
	return c.awaitApp(ctx, made, in.TimeoutSeconds)
}

type restartAppIn struct {
	App            string `json:"app" jsonschema:"the slug of the app" bounds:"1:30"`
	TimeoutSeconds int    `json:"timeoutSeconds,omitzero" jsonschema:"the longest time to wait for the process; 0 or omitted: 45" bounds:"0:300"`
}

// restartApp replaces the process of an app, and waits until the new one accepts connections. Errors: not_found, forbidden,
// invalid_request if the app may not run.
func restartApp(ctx context.Context, c *call, in restartAppIn) (appOut, error) {
	made, err := c.appRequest().Restart(ctx, in.App)
	if err != nil {
		return appOut{}, err
	}
	return c.awaitApp(ctx, made, in.TimeoutSeconds)
}

// awaitApp waits for the result of a change and describes the app, with the end of its log unless it is reconciled.
func (c *call) awaitApp(ctx context.Context, made appservice.Change, seconds int) (appOut, error) {
	waiting, end := c.wait(ctx, waitTime(seconds))
	defer end()
	found, err := c.appRequest().Await(ctx, waiting, made)
	if err != nil {
		return appOut{}, err
	}
	name, err := c.fetchWorkspaceSlug(ctx)
	if err != nil {
		return appOut{}, err
	}
	out := appOut{App: c.viewWholeApp(found.GetApp(), name)}
	if found.GetApp().GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED {
		out.Log = c.lastLines(ctx, made.AppID)
	}
	return out, nil
}
