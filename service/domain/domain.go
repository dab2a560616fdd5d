// Package domain has the operations of the hosts of a node: which hosts are the node's own, where an app has its standard address, and how
// the certificates of these hosts are kept and replaced. The custom domains of apps are entities (entity/binding).
package domain

import (
	"context"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Addresses are the hosts of a node. The type implements domains.Addresses of package edge/domains.
type Addresses struct {
	Asker entity.Asker
	// EdgeHost is the end of the standard addresses of apps, without a port.
	EdgeHost string
	// Hosts are the platform's own hosts.
	Hosts []string
}

// StandardAddress returns the host of the standard address of an app. The workspace answers, which follows its renames. Errors: not_found.
func (a Addresses) StandardAddress(ctx context.Context, workspaceID, appID string) (string, error) {
	anchor, err := findApp(ctx, a.Asker, workspaceID, &workspacev1.FindApp{AppId: appID})
	if err != nil {
		return "", err
	}
	workspace, err := entity.AskAsPlatform[*workspacev1.Description](ctx, a.Asker, entity.KindWorkspace, workspaceID, &workspacev1.DescribeWorkspace{})
	if err != nil {
		return "", err
	}
	return app.StandardHost(anchor.GetApp().GetSlug(), workspace.GetWorkspace().GetSlug(), a.EdgeHost), nil
}

// IsOwn reports whether a host is the platform's own or the registered standard address of an app.
func (a Addresses) IsOwn(ctx context.Context, host string) (bool, error) {
	if slices.Contains(a.Hosts, host) {
		return true, nil
	}
	appSlug, workspaceSlug, ok := app.SplitStandardHost(host, a.EdgeHost)
	if !ok || slug.CheckForm(appSlug) != nil || slug.CheckForm(workspaceSlug) != nil {
		return false, nil
	}
	claimed, err := entity.AskAsPlatform[*slugv1.Slug](ctx, a.Asker, entity.KindSlug, workspaceSlug, &slugv1.ResolveSlug{})
	if err != nil || claimed.GetWorkspaceId() == "" {
		return false, err
	}
	_, err = findApp(ctx, a.Asker, claimed.GetWorkspaceId(), &workspacev1.FindApp{Slug: appSlug})
	if entity.IsRefusal(err) {
		return false, nil
	}
	return err == nil, err
}

func findApp(ctx context.Context, asker entity.Asker, workspaceID string, find *workspacev1.FindApp) (*workspacev1.Anchor, error) {
	return entity.AskAsPlatform[*workspacev1.Anchor](ctx, asker, entity.KindWorkspace, workspaceID, find)
}
