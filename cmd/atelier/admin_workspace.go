package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

type workspaceCommands struct {
	List    workspaceListCommand    `cmd:"" help:"Print all workspaces, one JSON object a line."`
	Members workspaceMembersCommand `cmd:"" help:"Print a workspace's members, one JSON object a line."`
	Suspend workspaceSuspendCommand `cmd:"" help:"Refuse changes of a workspace until an operator resumes it."`
	Resume  workspaceResumeCommand  `cmd:"" help:"Allow changes of a suspended workspace again."`
	Archive workspaceArchiveCommand `cmd:"" help:"Close a workspace: it can be read, and reopened."`
	Retire  workspaceRetireCommand  `cmd:"" help:"Close a workspace that is not meant to be reopened; it can be read."`
	Reopen  workspaceReopenCommand  `cmd:"" help:"Open an archived or retired workspace again."`
	Delete  workspaceDeleteCommand  `cmd:"" help:"Delete a workspace permanently. Its slug stays reserved for 30 days."`
}

// slugFlag is the flag that names a workspace.
type slugFlag struct {
	Slug string `required:"" help:"Slug of the workspace."`
}

func (f slugFlag) path(below string) string {
	return adminWorkspaces + "/" + url.PathEscape(f.Slug) + below
}

type workspaceListCommand struct {
	dataFlag
	Limit int `help:"Largest number to print. 0: all."`
}

func (c *workspaceListCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).list(ctx, out, adminWorkspaces, c.Limit)
}

type workspaceMembersCommand struct {
	dataFlag
	slugFlag
	Limit int `help:"Largest number to print. 0: all."`
}

func (c *workspaceMembersCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).list(ctx, out, c.path("/members"), c.Limit)
}

type suspensionChange struct {
	Suspended bool   `json:"suspended"`
	Reason    string `json:"reason,omitempty"`
}

type workspaceSuspendCommand struct {
	dataFlag
	slugFlag
	Reason string `help:"Why; the members see it."`
}

func (c *workspaceSuspendCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPut, c.path("/suspension"), suspensionChange{true, c.Reason})
}

type workspaceResumeCommand struct {
	dataFlag
	slugFlag
}

func (c *workspaceResumeCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPut, c.path("/suspension"), suspensionChange{})
}

func (f slugFlag) setStatus(ctx context.Context, dir string, out console, status string) error {
	return newOperator(dir).printAnswer(ctx, out, http.MethodPut, f.path("/status"), struct {
		Status string `json:"status"`
	}{status})
}

type workspaceArchiveCommand struct {
	dataFlag
	slugFlag
}

func (c *workspaceArchiveCommand) Run(ctx context.Context, out console) error {
	return c.setStatus(ctx, c.Data, out, "archived")
}

type workspaceRetireCommand struct {
	dataFlag
	slugFlag
}

func (c *workspaceRetireCommand) Run(ctx context.Context, out console) error {
	return c.setStatus(ctx, c.Data, out, "retired")
}

type workspaceReopenCommand struct {
	dataFlag
	slugFlag
}

func (c *workspaceReopenCommand) Run(ctx context.Context, out console) error {
	return c.setStatus(ctx, c.Data, out, "active")
}

type workspaceDeleteCommand struct {
	dataFlag
	slugFlag
	Yes bool `help:"Confirm the deletion."`
}

func (c *workspaceDeleteCommand) Run(ctx context.Context, out console) error {
	if !c.Yes {
		return coded{errors.New("a deleted workspace cannot be restored: add --yes to delete it"), exitConfig}
	}
	return c.setStatus(ctx, c.Data, out, "deleted")
}
