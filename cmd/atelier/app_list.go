package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/atelier-run/atelier/client"
)

// appListCommand is atelier app list.
type appListCommand struct {
	serverFlags
	Path string `env:"-" xor:"folder" placeholder:"PATH" help:"Only the apps in this folder and below it."`
	Cwd  string `env:"-" xor:"folder" placeholder:"PATH" help:"Only the app whose folder contains this path; the deepest one, if there are several."`
	JSON bool   `name:"json" env:"-" help:"Print JSON, one app a line, as the API has them."`

	Workspace string `arg:"" help:"Slug of the workspace."`
}

// Run lists the apps of a workspace.
func (c *appListCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	query := client.AppsQuery{Cwd: strings.Trim(c.Cwd, "/")}
	if folder := strings.Trim(c.Path, "/"); folder != "" {
		query.Path, query.Scope = &folder, "subtree"
	}
	table := tabwriter.NewWriter(out.out, 0, 8, 2, ' ', 0)
	count := 0
	for a, err := range api.Apps(c.Workspace, query).All(ctx) {
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		if c.JSON {
			if err := writeJSON(out.out, a); err != nil {
				return err
			}
			continue
		}
		if count++; count == 1 {
			fmt.Fprint(table, "APP\tSTATE\tACCESS\tFOLDER\tADDRESS\n")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", a.Slug, describeRuntime(a), describeAccess(a), firstLine("/"+a.AnchorPath), a.CanonicalURL)
	}
	return table.Flush()
}

// describeRuntime returns the state of an app in a few words.
func describeRuntime(a client.App) string {
	switch {
	case a.DisabledAt != 0:
		return "disabled"
	case a.AnchorState != "active":
		return "no folder"
	case a.RuntimeStatus == runtimeReconciling:
		return "starting"
	case a.RuntimeStatus == runtimeFailed:
		return "failed"
	}
	return "runs"
}

// describeAccess returns the visitors that an app admits: public, or members.
func describeAccess(a client.App) string {
	if a.Visibility == "public" {
		return "public"
	}
	return "members"
}

// appShowCommand is atelier app show.
type appShowCommand struct {
	appFlags
	JSON bool `name:"json" env:"-" help:"Print JSON, as the API has it."`
}

// Run prints the state of an app.
func (c *appShowCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	found, err := api.App(ctx, c.Workspace, c.App)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(out.out, found)
	}
	_, err = io.WriteString(out.out, describeApp(found))
	return err
}

// describeApp returns the state of an app as lines of a name and a value.
func describeApp(a client.App) string {
	var out strings.Builder
	line := func(name, value string) {
		if value != "" {
			indented := strings.ReplaceAll(strings.TrimSpace(printable(value)), "\n", "\n           ")
			fmt.Fprintf(&out, "%-10s %s\n", name, indented)
		}
	}
	line("App", a.ID)
	line("Name", a.Name)
	line("Address", a.CanonicalURL)
	line("State", describeRuntime(a))
	line("Failure", a.ReconciliationError)
	line("Access", describeAccess(a))
	line("Folder", "/"+a.AnchorPath)
	line("Install", a.InstallCommand)
	line("Command", a.Command)
	line("Port", fmt.Sprint(a.Port))
	line("Scopes", strings.Join(a.APIScopes, " "))
	if a.SleepAfterSeconds != 0 {
		line("Sleeps", fmt.Sprintf("after %s without connections", time.Duration(a.SleepAfterSeconds)*time.Second))
	}
	line("Icon", a.Icon)
	if d := a.CustomDomain; d != nil {
		line("Domain", d.Hostname+", "+d.Status)
	}
	if a.SourceShareID != "" {
		line("Origin", fmt.Sprintf("%s of the share %s, to %s", a.SourceAppID, a.SourceShareID, a.SourceShareMode))
	}
	if a.DisabledAt != 0 {
		line("Disabled", formatTime(a.DisabledAt)+" by "+a.DisabledByUserID)
	}
	line("Created", formatTime(a.CreatedAt)+" by "+a.CreatedByUserID)
	line("Updated", formatTime(a.UpdatedAt))
	return out.String()
}
