package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/retry"
)

// appsCommands are the commands for apps.
type appsCommands struct {
	Register   appRegisterCommand   `cmd:"" help:"Register a folder of the drive as an app, wait until it runs, and print its address."`
	List       appListCommand       `cmd:"" help:"List apps."`
	Show       appShowCommand       `cmd:"" help:"Print the state of an app."`
	Update     appUpdateCommand     `cmd:"" help:"Change the command, the name or other properties of an app."`
	Runtime    appRuntimeCommand    `cmd:"" help:"Print or change how the node treats the process of an app, without a restart."`
	Restart    appRestartCommand    `cmd:"" help:"Replace the process of an app, and wait until the new one runs."`
	Logs       appLogsCommand       `cmd:"" help:"Print the output of the processes of an app."`
	Visibility appVisibilityCommand `cmd:"" help:"Make an app public, or private to the members of the workspace."`
	Disable    appDisableCommand    `cmd:"" help:"End the process of an app and revoke its key, until it is enabled."`
	Enable     appEnableCommand     `cmd:"" help:"Run a disabled app again."`
	Delete     appDeleteCommand     `cmd:"" help:"End the process of an app and unregister it. Its folder remains."`
	Domain     appDomainCommands    `cmd:"" help:"Custom domains of apps."`
}

// Help returns the description of the exit codes, which follows the help of the command.
func (appsCommands) Help() string {
	return "register, update and restart exit with 1 if the app could not be started; its registration remains, and a later update or " +
		"restart tries again. 130 is an interrupt: the node goes on with what the command has requested."
}

// appFlags name an app.
type appFlags struct {
	serverFlags
	Workspace string `arg:"" help:"Slug of the workspace."`
	App       string `arg:"" help:"Slug of the app, the first part of its address."`
}

// appRegisterCommand is atelier app register.
type appRegisterCommand struct {
	serverFlags
	Slug       string        `env:"-" placeholder:"SLUG" help:"First part of the address. Default: the name of the folder."`
	Command    string        `env:"-" default:"${siteProgram}" placeholder:"COMMAND" help:"Shell command that serves HTTP on the port in the variable PORT, started in the folder. Default: ${default}, which serves the files of the folder."`
	Install    string        `env:"-" placeholder:"COMMAND" help:"Shell command that runs before, such as npm ci."`
	Scope      []string      `env:"-" placeholder:"SCOPE" help:"Scope of the key with which the app uses the API, such as files:read. May be repeated. Default: none, and no key."`
	Port       int           `env:"-" placeholder:"PORT" help:"Port on which the command listens. Default: one that is free in the workspace."`
	Name       string        `env:"-" placeholder:"NAME" help:"Name for people. Default: that of the folder."`
	Icon       string        `env:"-" placeholder:"PATH" help:"Path of an image in the folder."`
	SleepAfter time.Duration `env:"-" placeholder:"DURATION" help:"Time without connections after which the process ends; the next request starts it. Default: it never does."`
	JSON       bool          `name:"json" env:"-" help:"Print the app as JSON, as the API has it."`

	Workspace string `arg:"" help:"Slug of the workspace."`
	Folder    string `arg:"" help:"Folder of the drive."`
}

// siteProgram is the command of an app that serves the files of its folder, in the computer of a workspace.
const siteProgram = computer.ProgramPath + " site"

// Validate is called by the parser when every flag has its value.
func (c *appRegisterCommand) Validate() error {
	return errors.Join(checkAppPort(c.Port), checkSleep(c.SleepAfter))
}

func checkAppPort(port int) error {
	if port < 0 || port > 65535 {
		return errors.New("port: it must be 1 to 65535")
	}
	return nil
}

func checkSleep(after time.Duration) error {
	if after < 0 || after%time.Second != 0 {
		return errors.New("sleep-after: it must be a number of whole seconds")
	}
	return nil
}

// Run registers an app, waits until it runs, and prints its address.
func (c *appRegisterCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	in := client.NewApp{
		Path: strings.Trim(c.Folder, "/"), Slug: c.Slug, Command: c.Command, InstallCommand: c.Install, APIScopes: append([]string{}, c.Scope...), Port: c.Port,
		Name: c.Name, Icon: c.Icon, SleepAfterSeconds: int64(c.SleepAfter / time.Second),
	}
	if in.Slug == "" {
		in.Slug = strings.ToLower(path.Base(in.Path))
	}
	made, err := api.RegisterApp(ctx, c.Workspace, in)
	return finishRun(ctx, appRun{api: api, workspace: c.Workspace, slug: in.Slug, isJSON: c.JSON}, made, c.explain(in, err), out)
}

// explain adds to the error of a registration the argument that it is about, and what to do.
func (c *appRegisterCommand) explain(in client.NewApp, err error) error {
	refused, is := errors.AsType[*client.Error](err)
	switch {
	case !is:
		return err
	case refused.Code == "slug_taken":
		return fmt.Errorf("the workspace has an app %s already; change it with atelier app update, or name another one with --slug: %w", in.Slug, err)
	case refused.Code == "invalid_request" && strings.HasPrefix(refused.Message, "path "):
		return fmt.Errorf("%s: %w", c.Folder, err)
	case refused.Code == "invalid_request" && strings.HasPrefix(refused.Message, "slug ") && c.Slug == "":
		return fmt.Errorf("%s, the name of the folder, cannot be a part of the address; choose one with --slug: %w", in.Slug, err)
	}
	return err
}

// An appRun is a change with a running app as its result.
type appRun struct {
	api             *client.Client
	workspace, slug string
	isJSON          bool
	// change is the change of an update; empty: the appRun is not an update.
	change client.AppChange
}

// isKept reports whether an app runs on with the configuration before the failed change: then the API shows that configuration.
func (r appRun) isKept(a client.App) bool {
	c := r.change
	return c.Command != nil && *c.Command != a.Command || c.Port != nil && *c.Port != a.Port ||
		c.InstallCommand != nil && string(*c.InstallCommand) != a.InstallCommand || c.APIScopes != nil && !slices.Equal(scopeSet(*c.APIScopes), scopeSet(a.APIScopes))
}

func scopeSet(scopes []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(scopes)))
}

// finishRun prints the result of a change of an app. While the computer of the workspace has neither accepted nor refused the configuration,
// it waits. If the computer refuses it, finishRun returns the reason, which has the last lines of the app's output, and whether the
// configuration before it runs on.
func finishRun(ctx context.Context, r appRun, changed client.App, err error, out console) error {
	switch {
	case client.HasCode(err, "reconcile_failed"):
		changed, err = r.api.App(ctx, r.workspace, r.slug) // with the reason
	case err == nil:
		changed, err = r.await(ctx, changed)
	}
	switch {
	case ctx.Err() != nil:
		return coded{fmt.Errorf("interrupted; the node goes on. To see how: atelier app show %s %s", r.workspace, r.slug), exitInterrupted}
	case err != nil:
		return err
	}
	if err := r.print(changed, out); err != nil || changed.RuntimeStatus != runtimeFailed {
		return err
	}
	if r.isKept(changed) {
		return fmt.Errorf("the change has failed, and %s runs on as before: %s", changed.Slug, printable(changed.ReconciliationError))
	}
	return fmt.Errorf("%s could not be started: %s", changed.Slug, printable(changed.ReconciliationError))
}

// The states of the runtime of an app, as the API names them.
const (
	runtimeReconciling = "reconciling"
	runtimeFailed      = "reconcile_failed"
)

// runPause is the pause between two looks at an app if its change takes longer than a request.
const runPause = time.Second

// await waits until an app that may run is reconciled or has failed.
func (r appRun) await(ctx context.Context, a client.App) (client.App, error) {
	for a.RuntimeStatus == runtimeReconciling && a.DisabledAt == 0 && a.AnchorState == "active" {
		if !retry.Pause(ctx, runPause) {
			return a, ctx.Err()
		}
		var err error
		if a, err = r.api.App(ctx, r.workspace, r.slug); err != nil {
			return a, err
		}
	}
	return a, nil
}

// print prints an app as JSON, or the address of one that has not failed.
func (r appRun) print(a client.App, out console) error {
	if r.isJSON {
		return writeJSON(out.out, a)
	}
	if a.RuntimeStatus == runtimeFailed {
		return nil
	}
	if _, err := fmt.Fprintln(out.out, a.CanonicalURL); err != nil {
		return err
	}
	if why := whyNotServed(a); why != "" {
		_, err := fmt.Fprintln(out.errors, "The app does not run:", why+".")
		return err
	}
	return nil
}

// whyNotServed returns the reason why an app without a failure does not run; empty if it runs.
func whyNotServed(a client.App) string {
	switch {
	case a.DisabledAt != 0:
		return "it is disabled"
	case a.AnchorState != "active":
		return "its folder does not exist any more"
	}
	return ""
}

// appUpdateCommand is atelier app update.
type appUpdateCommand struct {
	appFlags
	Command    *string        `env:"-" placeholder:"COMMAND" help:"Shell command that serves HTTP on the port in the variable PORT."`
	Install    *string        `env:"-" placeholder:"COMMAND" help:"Shell command that runs before. Empty: none."`
	Scope      []string       `env:"-" xor:"scopes" placeholder:"SCOPE" help:"Scope of the app's key, instead of all that it has. May be repeated."`
	NoScopes   bool           `env:"-" xor:"scopes" help:"Take the app its key."`
	Port       int            `env:"-" placeholder:"PORT" help:"Port on which the command listens."`
	Name       *string        `env:"-" placeholder:"NAME" help:"Name for people."`
	Icon       *string        `env:"-" placeholder:"PATH" help:"Path of an image in the folder."`
	SleepAfter *time.Duration `env:"-" placeholder:"DURATION" help:"Time without connections after which the process ends. 0: it never does."`
	JSON       bool           `name:"json" env:"-" help:"Print the app as JSON, as the API has it."`
}

// Validate is called by the parser when every flag has its value.
func (c *appUpdateCommand) Validate() error {
	if c.SleepAfter == nil {
		return checkAppPort(c.Port)
	}
	return errors.Join(checkAppPort(c.Port), checkSleep(*c.SleepAfter))
}

// Run changes an app. If the runtime changes, it waits until the computer has accepted or refused it.
func (c *appUpdateCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	in := client.AppChange{Command: c.Command, Name: c.Name, Icon: c.Icon}
	if c.Install != nil {
		install := client.InstallCommand(*c.Install)
		in.InstallCommand = &install
	}
	if c.Port != 0 {
		in.Port = &c.Port
	}
	if c.Scope != nil || c.NoScopes {
		scopes := append([]string{}, c.Scope...)
		in.APIScopes = &scopes
	}
	if c.SleepAfter != nil {
		seconds := int64(*c.SleepAfter / time.Second)
		in.SleepAfterSeconds = &seconds
	}
	changed, err := api.UpdateApp(ctx, c.Workspace, c.App, in)
	return finishRun(ctx, appRun{api: api, workspace: c.Workspace, slug: c.App, isJSON: c.JSON, change: in}, changed, err, out)
}

// appRestartCommand is atelier app restart.
type appRestartCommand struct {
	appFlags
	JSON bool `name:"json" env:"-" help:"Print the app as JSON, as the API has it."`
}

// Run replaces the process of an app.
func (c *appRestartCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	changed, err := api.RestartApp(ctx, c.Workspace, c.App)
	return finishRun(ctx, appRun{api: api, workspace: c.Workspace, slug: c.App, isJSON: c.JSON}, changed, err, out)
}
