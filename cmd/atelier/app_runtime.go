package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/entity/app"
)

// appRuntimeCommand is atelier app runtime.
type appRuntimeCommand struct {
	appFlags
	ResponseTimeout *time.Duration `env:"-" placeholder:"DURATION" help:"Time in which the app must begin its response to a request; otherwise the visitor gets 504. 1s to 1h. 0: that of the node (app-response)."`
	JSON            bool           `name:"json" env:"-" help:"Print the settings as JSON, as the API has them."`
}

// Validate is called by the parser when every flag has its value.
func (c *appRuntimeCommand) Validate() error {
	if t := c.ResponseTimeout; t != nil && *t != 0 && (*t < app.MinResponseTimeout || *t > app.MaxResponseTimeout || *t%time.Second != 0) {
		return errors.New("response-timeout: it must be 0, or whole seconds between 1s and 1h")
	}
	return nil
}

// Run replaces the settings that the flags name, if there are any, and prints all.
func (c *appRuntimeCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	settings, err := api.AppRuntime(ctx, c.Workspace, c.App)
	if err == nil && c.ResponseTimeout != nil {
		settings.ResponseTimeoutSeconds = int64(*c.ResponseTimeout / time.Second)
		settings, err = api.SetAppRuntime(ctx, c.Workspace, c.App, settings)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(out.out, settings)
	}
	_, err = fmt.Fprintf(out.out, "Response timeout  %s\n", describeTimeout(settings))
	return err
}

func describeTimeout(s client.AppRuntime) string {
	if s.ResponseTimeoutSeconds == 0 {
		return "that of the node (app-response)"
	}
	return (time.Duration(s.ResponseTimeoutSeconds) * time.Second).String()
}
