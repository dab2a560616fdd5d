package tools

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	appservice "github.com/atelier-run/atelier/service/app"
)

// AppOptions has the dependencies of the tools for apps, beside the entities.
type AppOptions struct {
	// Logs has the output of the processes of apps; nil: there is none.
	Logs AppLogs
	// Addresses has the parts of the addresses of apps, with their defaults.
	Addresses app.Addresses
}

// appTools returns the tools for apps.
func appTools() []*tool {
	return []*tool{
		define(everybody, "list_apps", "List the apps of the workspace in the order of registration: folders of the drive with a command "+
			"that serves HTTP. canonicalUrl is the address of an app.", reads, listApps),
		define(everybody, "register_app", "Serve a folder of the drive as an app. The command runs in the folder and must listen on "+
			"127.0.0.1 at the port in the environment variable PORT. Waits until the app accepts connections. If status is "+
			"reconcile_failed, the app is registered and does not run: reason and log say why; repair it with update_app or "+
			"restart_app.", runs, registerApp),
		define(everybody, "update_app", "Change the command, the port, the scopes, the name or the icon of an app. What is omitted does "+
			"not change. A new configuration replaces the process; if it fails (status reconcile_failed), the last accepted one goes on.",
			runs, updateApp),
		define(everybody, "restart_app", "Replace the process of an app, to serve what has changed in its folder. The install command runs "+
			"again. While the app is starting, it only waits.", runs, restartApp),
		define(everybody, "read_app_logs", "Read the output of an app. Without after, the last lines; keep next to read later what was "+
			"written since. missed says that lines after the position are lost.", reads, readAppLogs),
	}
}

// appRequest returns the call as the operations of package service/app take it.
func (c *call) appRequest() appservice.Request {
	return c.apps.For(c.Caller.Caller, c.WorkspaceID)
}

// fetchWorkspaceSlug returns the slug of the workspace, which is a part of the addresses of its apps.
func (c *call) fetchWorkspaceSlug(ctx context.Context) (string, error) {
	described, err := ask[*workspacev1.Description](ctx, c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.WorkspaceID, Message: &workspacev1.DescribeWorkspace{},
	})
	return described.GetWorkspace().GetSlug(), err
}

type listAppsIn struct {
	After string `json:"after,omitzero" jsonschema:"only apps after the one with this slug; the last one of the previous page" bounds:"1:30"`
	Limit int32  `json:"limit,omitzero" jsonschema:"the number of apps, 50 if omitted" bounds:"1:100"`
}

type listAppsOut struct {
	Apps []AppView `json:"apps"`
	// More reports that there are further apps.
	More bool `json:"more"`
}

// listApps lists apps in the order of registration. Errors: forbidden, not_found if no app has the slug in After.
func listApps(ctx context.Context, c *call, in listAppsIn) (listAppsOut, error) {
	out := listAppsOut{Apps: []AppView{}}
	page, err := c.appRequest().List(ctx, appservice.Listing{Filter: &appv1.Filter{}, AfterSlug: in.After, Limit: cmp.Or(in.Limit, 50)})
	if err != nil {
		return out, err
	}
	name, err := c.fetchWorkspaceSlug(ctx)
	if err != nil {
		return out, err
	}
	size := 0
	for _, found := range page.Apps {
		view := c.viewApp(found.GetApp(), name)
		encoded, err := json.Marshal(view)
		if err != nil {
			return out, err
		}
		if size += len(encoded) + 1; size > maxRows && len(out.Apps) > 0 {
			out.More = true
			return out, nil
		}
		out.Apps = append(out.Apps, view)
	}
	out.More = page.Next != ""
	return out, nil
}
