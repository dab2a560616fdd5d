package main

import (
	"context"
	"net/http"
	"net/url"
)

type appCommands struct {
	Replica     replicaCommand     `cmd:"" help:"Make a replica of an app of another workspace: an app on a folder that is shared with this one."`
	DropReplica dropReplicaCommand `cmd:"" help:"Remove a replica, as if its share was dropped."`
}

type replicaCommand struct {
	dataFlag
	slugFlag
	App            string   `required:"" help:"Slug of the replica."`
	Path           string   `required:"" help:"Folder of the drive."`
	Command        string   `required:"" help:"Command that serves HTTP."`
	InstallCommand string   `help:"Command that runs before it."`
	Port           int      `help:"Port. 0: a free one."`
	APIScopes      []string `name:"api-scope" help:"Capability of the replica's key. Repeat it for each."`
	Name           string   `help:"Label for people."`
	User           string   `required:"" help:"Id of the member for whom the replica acts."`
	SourceShare    string   `required:"" help:"Id of the share."`
	SourceApp      string   `required:"" help:"Id of the original app."`
	Subscription   string   `help:"Id of the subscription of a listing."`
	Mode           string   `required:"" enum:"read,write" help:"read: the members change neither the runtime nor the visibility; write: they may."`
}

func (c *replicaCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodPost, c.path("/replicas"), struct {
		Path           string   `json:"path"`
		Slug           string   `json:"slug"`
		Command        string   `json:"command"`
		InstallCommand string   `json:"installCommand,omitempty"`
		Port           int      `json:"port,omitempty"`
		APIScopes      []string `json:"apiScopes,omitempty"`
		Name           string   `json:"name,omitempty"`
		User           string   `json:"createdByUserId"`
		SourceShare    string   `json:"sourceShareId"`
		SourceApp      string   `json:"sourceAppId"`
		Subscription   string   `json:"listingSubscriptionId,omitempty"`
		Mode           string   `json:"mode"`
	}{
		c.Path, c.App, c.Command, c.InstallCommand, c.Port, c.APIScopes, c.Name, c.User, c.SourceShare, c.SourceApp, c.Subscription, c.Mode,
	})
}

type dropReplicaCommand struct {
	dataFlag
	slugFlag
	App string `required:"" help:"Slug of the replica."`
}

func (c *dropReplicaCommand) Run(ctx context.Context, out console) error {
	return newOperator(c.Data).printAnswer(ctx, out, http.MethodDelete, c.path("/replicas/"+url.PathEscape(c.App)), nil)
}
