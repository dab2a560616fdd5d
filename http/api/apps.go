package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	appservice "github.com/atelier-run/atelier/service/app"
)

// Launcher grants people access to apps at their addresses.
type Launcher interface {
	// Launch authorizes a principal, grants it access to one host of an app, and returns the URL that opens the app there. host is the
	// standard host of the app or its active custom domain, and path a path with an optional query on that host; empty: the first page
	// at the standard host. Errors: *entity.Error, invalid_request for any other host or an unusable path.
	Launch(ctx context.Context, principal *wirev1.Principal, workspaceID, appID, host, path string) (url string, err error)
}

// AppOptions configures the operations of apps.
type AppOptions struct {
	// Launcher opens apps; nil: the server serves no apps, and refuses to.
	Launcher Launcher
	// Logs has the output of the processes of apps; nil: there is none.
	Logs AppLogs
	// Addresses has the parts of the addresses of apps.
	Addresses app.Addresses
	// WaitTime limits the time that a request waits until the computer has accepted a configuration, or ended a process; 0: one minute. The
	// response then says that the app is reconciling.
	WaitTime time.Duration
}

func (o AppOptions) withDefaults() AppOptions {
	if o.WaitTime == 0 {
		o.WaitTime = time.Minute
	}
	return o
}

// apps serves the apps of a workspace. Package service/app has the operations, with the steps of a request that changes an app.
type apps struct {
	AppOptions
	service *appservice.Service
}

// request returns the request as the operations of package service/app take it.
func (a apps) request(c *server.Call) appservice.Request {
	return a.service.For(c.Sender(), c.Workspace.ID)
}

const (
	appsPath = server.WorkspacePath + "/apps"
	appPath  = appsPath + "/{appSlug}"
	// Operations of the domain, and launching, name the same variable differently (specification, Apps).
	namedAppPath  = appsPath + "/{slug}"
	appDomainPath = namedAppPath + "/domain"
)

func (a apps) routes() []server.Route {
	table := []server.Route{
		{Method: http.MethodGet, Path: appsPath, Summary: "List the workspace's apps", Handler: server.Answer(http.StatusOK, decodeApps, a.list)},
		{Method: http.MethodPost, Path: appsPath, Summary: "Register an app", Handler: waitForChange(a, http.StatusCreated, server.Checked(checkNewApp), a.register), Timing: server.Streaming},
		{Method: http.MethodGet, Path: appPath, Summary: "Read an app", Handler: server.Answer(http.StatusOK, ofApp(a, server.Nothing), a.read)},
		{Method: http.MethodPatch, Path: appPath, Summary: "Change an app's name, icon or runtime", Handler: waitForChange(a, http.StatusOK, ofApp(a, server.Checked(checkAppChange)), a.update), Timing: server.Streaming},
		{Method: http.MethodDelete, Path: appPath, Summary: "Stop serving an app and unregister it", Idempotent: true, Handler: a.remove, Timing: server.Streaming},
		{Method: http.MethodPost, Path: appPath + "/reanchor", Summary: "Bind an app to another folder", Handler: server.Answer(http.StatusOK, ofApp(a, server.Checked(checkReanchor)), a.reanchor)},
		{Method: http.MethodPut, Path: appPath + "/visibility", Summary: "Make an app public, or private to the workspace", Idempotent: true, Handler: server.Answer(http.StatusOK, ofApp(a, server.Checked(checkVisibility)), a.setVisibility)},
		{Method: http.MethodPut, Path: appPath + "/disabled", Summary: "Disable an app, or enable it again", Idempotent: true, Handler: server.Answer(http.StatusOK, ofApp(a, server.Checked(checkDisabled)), a.setDisabled)},
		{Method: http.MethodGet, Path: appPath + "/runtime", Summary: "Read the settings of an app's runtime", Handler: server.Answer(http.StatusOK, ofApp(a, server.Nothing), a.readRuntime)},
		{Method: http.MethodPut, Path: appPath + "/runtime", Summary: "Replace the settings of an app's runtime", Idempotent: true, Handler: server.Answer(http.StatusOK, ofApp(a, server.Checked(checkRuntimeSettings)), a.setRuntime)},
		{Method: http.MethodPost, Path: appPath + "/restart", Summary: "Restart an app", Handler: waitForChange(a, http.StatusOK, ofApp(a, server.Nothing), a.restart), Timing: server.Streaming},
		{Method: http.MethodGet, Path: appPath + "/logs", Summary: "Follow the output of an app", Handler: a.followLog, Timing: server.Streaming, Changes: true},
		{Method: http.MethodGet, Path: namedAppPath + "/launch", Summary: "Open an app", Handler: a.launch, Refuse: RefuseLaunch},
		{Method: http.MethodGet, Path: appDomainPath, Summary: "Read an app's custom domain", Handler: server.Answer(http.StatusOK, ofApp(a, server.Nothing), a.readDomain)},
		{Method: http.MethodPut, Path: appDomainPath, Summary: "Attach a custom domain to an app", Idempotent: true, Handler: server.Answer(http.StatusOK, ofApp(a, a.decodeDomain), a.attachDomain)},
		{Method: http.MethodPost, Path: appDomainPath + "/recheck", Summary: "Check an app's custom domain again", Handler: server.Answer(http.StatusOK, ofApp(a, server.Nothing), a.recheckDomain)},
		{Method: http.MethodDelete, Path: appDomainPath, Summary: "Remove an app's custom domain", Idempotent: true, Handler: server.Answer(http.StatusOK, ofApp(a, server.Nothing), a.removeDomain)},
		{Method: http.MethodGet, Path: server.WorkspacePath + "/app-domains", Summary: "List the workspace's custom domains", Handler: server.Answer(http.StatusOK, server.DecodePage, a.listDomains)},
	}
	for i := range table {
		table[i].Scope = server.ScopeApps
	}
	return table
}

// newApp is the body of a request to register an app.
type newApp struct {
	Path              string    `json:"path"`
	Slug              string    `json:"slug"`
	Command           string    `json:"command"`
	APIScopes         *[]string `json:"apiScopes"`
	InstallCommand    *string   `json:"installCommand"`
	Port              *uint32   `json:"port"`
	Name              *string   `json:"name"`
	Icon              *string   `json:"icon"`
	SleepAfterSeconds *int64    `json:"sleepAfterSeconds"`

	registration *appv1.Registration
}

var (
	errNoScopes  = server.Invalid("apiScopes is required")
	errZeroPort  = server.Invalid("port must be 1 to %d", app.MaxPort)
	errEmptyText = func(field string) error { return server.Invalid("%s must not be empty", field) }
)

// checkNewApp makes the registration of a request. The rules validate it again, in order with other changes.
func checkNewApp(in *newApp) error {
	if err := server.CheckPath("path", in.Path); err != nil {
		return err
	}
	runtime := &appv1.Runtime{Command: in.Command}
	switch {
	case in.APIScopes == nil:
		return errNoScopes
	case in.Port != nil && *in.Port == 0:
		return errZeroPort
	case in.Port != nil:
		runtime.Port = *in.Port
	}
	in.registration = &appv1.Registration{Path: in.Path, Slug: in.Slug, Runtime: runtime}
	runtime.ApiScopes = *in.APIScopes
	for _, text := range []struct {
		field string
		given *string
		to    *string
	}{
		{"installCommand", in.InstallCommand, &runtime.InstallCommand}, {"name", in.Name, &in.registration.Name},
		{"icon", in.Icon, &in.registration.Icon},
	} {
		if text.given == nil {
			continue
		}
		if *text.given == "" {
			return errEmptyText(text.field)
		}
		*text.to = *text.given
	}
	after, err := sleepAfter(in.SleepAfterSeconds)
	if err != nil {
		return err
	}
	runtime.SleepAfterMs = after
	return app.CheckRegistration(in.registration)
}

// sleepAfter returns a time in milliseconds; 0 if there is none.
func sleepAfter(seconds *int64) (int64, error) {
	switch most := int64(app.MaxSleepAfter / time.Second); {
	case seconds == nil:
		return 0, nil
	case *seconds < 0 || *seconds > most:
		return 0, server.Invalid("sleepAfterSeconds must be 0 to %d", most)
	default:
		return *seconds * 1000, nil
	}
}

func (a apps) register(c *server.Call, in newApp) (appservice.Change, error) {
	return a.request(c).Register(c.Context, in.registration)
}

// appAnswer is the response of operations on one app.
type appAnswer struct {
	App appView `json:"app"`
}

func (a apps) read(c *server.Call, _ server.None) (appAnswer, error) {
	return a.answer(a.request(c).Read(c.Context, pathSlug(c)))(c)
}

// answer returns a function that makes the response of a description, so that a handler can end with the call that describes the app.
func (a apps) answer(found *appv1.Description, err error) func(*server.Call) (appAnswer, error) {
	return func(c *server.Call) (appAnswer, error) {
		if err != nil {
			return appAnswer{}, err
		}
		return appAnswer{a.view(c, found)}, nil
	}
}

// pathSlug returns the slug of the app in the path, which need not have the form of a slug.
func pathSlug(c *server.Call) string {
	return cmp.Or(c.Variable("appSlug"), c.Variable("slug"))
}

// pathApp returns the id of the app in the path. Errors: not_found, forbidden.
func (a apps) pathApp(c *server.Call) (string, error) {
	anchor, err := a.request(c).Find(c.Context, pathSlug(c))
	return anchor.GetApp().GetId(), err
}

// ofApp returns a decoder that returns errors only for an app that exists. The caller of the decoder withholds them from callers without
// access.
func ofApp[In any](a apps, decode func(*server.Call) (In, error)) func(*server.Call) (In, error) {
	return func(c *server.Call) (In, error) {
		in, err := decode(c)
		if err != nil {
			if _, missing := a.pathApp(c); missing != nil {
				err = missing
			}
		}
		return in, err
	}
}
