package main

import (
	"context"
	"fmt"

	"github.com/atelier-run/atelier/client"
)

// appVisibilityCommand is atelier app visibility.
type appVisibilityCommand struct {
	appFlags
	Visibility string `arg:"" enum:"public,workspace" help:"public: everybody may open the app. workspace: only members, who sign in."`
	JSON       bool   `name:"json" env:"-" help:"Print the app as JSON, as the API has it."`
}

// Run sets the visibility of an app, and prints its address.
func (c *appVisibilityCommand) Run(ctx context.Context, out console) error {
	to := c.Visibility
	if to == "workspace" {
		to = "folder"
	}
	return c.change(out, c.JSON, func(api *client.Client) (client.App, error) {
		return api.SetAppVisibility(ctx, c.Workspace, c.App, client.AppVisibility{Visibility: to})
	})
}

// change changes an app and prints it.
func (f *appFlags) change(out console, isJSON bool, send func(*client.Client) (client.App, error)) error {
	api, err := f.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	changed, err := send(api)
	if err != nil {
		return err
	}
	if isJSON {
		return writeJSON(out.out, changed)
	}
	_, err = fmt.Fprintln(out.out, changed.CanonicalURL)
	return err
}

func (f *appFlags) setDisabled(ctx context.Context, out console, isJSON, isDisabled bool) error {
	return f.change(out, isJSON, func(api *client.Client) (client.App, error) {
		return api.SetAppDisabled(ctx, f.Workspace, f.App, client.AppDisabling{Disabled: isDisabled})
	})
}

// appDisableCommand is atelier app disable.
type appDisableCommand struct {
	appFlags
	JSON bool `name:"json" env:"-" help:"Print the app as JSON, as the API has it."`
}

// Run disables an app.
func (c *appDisableCommand) Run(ctx context.Context, out console) error {
	return c.setDisabled(ctx, out, c.JSON, true)
}

// appEnableCommand is atelier app enable.
type appEnableCommand struct {
	appFlags
	JSON bool `name:"json" env:"-" help:"Print the app as JSON, as the API has it."`
}

// Run enables an app.
func (c *appEnableCommand) Run(ctx context.Context, out console) error {
	return c.setDisabled(ctx, out, c.JSON, false)
}

// appDeleteCommand is atelier app delete.
type appDeleteCommand struct {
	appFlags
}

// Run unregisters an app. It succeeds also if there is no such app.
func (c *appDeleteCommand) Run(ctx context.Context, _ console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	return api.UnregisterApp(ctx, c.Workspace, c.App)
}
