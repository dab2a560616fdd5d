package api

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/app/flow"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// appChange is the body of a request to update an app. An install command of null removes it.
type appChange struct {
	Command           *string                 `json:"command"`
	APIScopes         *[]string               `json:"apiScopes"`
	InstallCommand    server.Nullable[string] `json:"installCommand"`
	Port              *uint32                 `json:"port"`
	Name              *string                 `json:"name"`
	Icon              *string                 `json:"icon"`
	SleepAfterSeconds *int64                  `json:"sleepAfterSeconds"`

	command *appv1.UpdateApp
}

var errNoChange = server.Invalid("at least one of command, apiScopes, installCommand, port, name, icon and sleepAfterSeconds is required")

func checkAppChange(in *appChange) error {
	u := &appv1.UpdateApp{Command: in.Command, Port: in.Port, Name: in.Name, Icon: in.Icon}
	if in.APIScopes != nil {
		u.ApiScopes = &appv1.Scopes{Scopes: *in.APIScopes}
	}
	if in.InstallCommand.IsSet {
		if in.InstallCommand.Value != nil && *in.InstallCommand.Value == "" {
			return errEmptyText("installCommand")
		}
		u.InstallCommand = proto.String("")
		if in.InstallCommand.Value != nil {
			u.InstallCommand = in.InstallCommand.Value
		}
	}
	if in.SleepAfterSeconds != nil {
		after, err := sleepAfter(in.SleepAfterSeconds)
		if err != nil {
			return err
		}
		u.SleepAfterMs = &after
	}
	if proto.Size(u) == 0 {
		return errNoChange
	}
	in.command = u
	return nil
}

// update changes the display metadata, the runtime or both. Errors: not_found, forbidden, invalid_request, port_in_use.
func (a apps) update(c *server.Call, in appChange) (flow.Change, error) {
	if err := c.Authorize(); err != nil {
		return flow.Change{}, err
	}
	id, err := pathApp(c)
	if err != nil {
		return flow.Change{}, err
	}
	return flow.Update(a.caller(c), c.Workspace.ID, id, entity.Call{Now: c.Now(), Principal: c.Caller.Principal}, in.command)
}

// restart replaces the process of the app in the path. While a configuration is being reconciled, it waits for that one.
func (a apps) restart(c *server.Call, _ server.None) (flow.Change, error) {
	if err := c.Authorize(); err != nil {
		return flow.Change{}, err
	}
	id, err := pathApp(c)
	if err != nil {
		return flow.Change{}, err
	}
	return flow.Restart(a.caller(c), c.Workspace.ID, id)
}

// reanchor binds the app in the path to another folder. Errors: not_found, invalid_request, path_in_use.
func (a apps) reanchor(c *server.Call, in reanchorRequest) (appAnswer, error) {
	if err := settleApps(c); err != nil {
		return appAnswer{}, err
	}
	anchor, err := pathAnchor(c)
	if err != nil {
		return appAnswer{}, err
	}
	seq, folder, err := flow.FindFolder(a.caller(c), c.Workspace.ID, in.Path)
	if err != nil {
		return appAnswer{}, err
	}
	_, err = server.Ask[*workspacev1.Anchor](c, workspaceCommand(c, &workspacev1.Reanchor{AnchorId: anchor.GetId(), Path: folder, Seq: seq}))
	switch {
	case entity.HasCode(err, entity.AnchorConflict):
		return appAnswer{}, entity.Errorf(entity.PathInUse, "the folder already has an app")
	case err != nil:
		return appAnswer{}, err
	}
	if err := c.Settle(entity.KindWorkspace, c.Workspace.ID); err != nil {
		return appAnswer{}, err
	}
	return a.answer(describeApp(c, anchor.GetApp().GetId()))(c)
}

type visibilityRequest struct {
	Visibility string `json:"visibility"`

	command *appv1.SetVisibility
}

func decodeVisibility(c *server.Call) (visibilityRequest, error) {
	return server.Checked(func(in *visibilityRequest) error {
		to, known := ParseName(app.VisibilityNames, in.Visibility)
		if !known {
			return server.Invalid("visibility must be folder or public")
		}
		in.command = &appv1.SetVisibility{Visibility: to}
		return nil
	})(c)
}

func (a apps) setVisibility(c *server.Call, in visibilityRequest) (appAnswer, error) {
	return a.command(c, in.command)
}

type disabledRequest struct {
	Disabled *bool `json:"disabled"`
}

func checkDisabled(in *disabledRequest) error {
	if in.Disabled == nil {
		return server.Invalid("disabled is required")
	}
	return nil
}

// setDisabled disables the app in the path, or enables it again. A key of a disabled app is refused from the response on.
func (a apps) setDisabled(c *server.Call, in disabledRequest) (appAnswer, error) {
	return a.command(c, &appv1.SetDisabled{Disabled: *in.Disabled})
}

// command sends a command to the app in the path, and returns the app when the reactions are done.
func (a apps) command(c *server.Call, m appv1.Command) (appAnswer, error) {
	return a.answer(a.change(c, m))(c)
}

// change sends a command to the app in the path, and describes the app when the reactions are done. If they have ended the key of the app,
// it is refused from then on.
func (a apps) change(c *server.Call, m appv1.Command) (*appv1.Description, error) {
	if err := c.Authorize(); err != nil {
		return nil, err
	}
	id, err := pathApp(c)
	if err != nil {
		return nil, err
	}
	found, err := server.Ask[*appv1.Description](c, appCommand(c, id, m))
	if err != nil {
		return nil, err
	}
	if err := c.Settle(entity.KindApp, app.Identity(c.Workspace.ID, id)); err != nil {
		return nil, err
	}
	if found.GetApp().GetKey() == nil {
		c.EndCredential(id)
	}
	return found, nil
}

type appRemoved struct {
	OK bool `json:"ok"`
}

// errRemoving is the error of a removal that lasts longer than WaitTime. The client repeats the request.
var errRemoving = &entity.Error{Code: entity.Unavailable, Message: "the process of the app has not ended yet; repeat the request", RetryAfter: time.Second}

// remove unregisters the app in the path, and waits until its process has ended and its name is free. It has no effect if there is no
// such app. If the process could not be ended, the app remains registered, and the response has it.
func (a apps) remove(c *server.Call) error {
	if _, err := server.Nothing(c); err != nil {
		return c.Withhold(err)
	}
	return c.RunLong(func(ctx context.Context) error {
		made, err := submitChange(ctx, c, server.Nothing, a.requestRemoval)
		if err != nil {
			return err
		}
		if made.AppID != "" {
			c.AwaitAnswer()
			found, err := a.awaitChange(ctx, c, made)
			if refused := server.Refusal(ctx); refused != nil {
				return refused
			}
			switch {
			case err != nil && !entity.HasCode(err, entity.NotFound):
				return err
			case found.GetApp().GetRemoval() != nil:
				return errRemoving
			case err == nil && !found.GetApp().GetRemoved():
				c.Response.WriteJSON(http.StatusBadGateway, reconcileFailure{
					entity.ReconcileFailed, "the app is still registered", "its process could not be ended", a.view(c, found),
				})
				return nil
			}
			if err := a.settleRemoval(ctx, c, made.AppID); err != nil {
				return err
			}
		}
		c.Response.WriteJSON(http.StatusOK, appRemoved{true})
		return nil
	})
}

// requestRemoval begins the removal of the app in the path. The change has no app if there is none.
func (a apps) requestRemoval(c *server.Call, _ server.None) (flow.Change, error) {
	if err := c.Authorize(); err != nil {
		return flow.Change{}, err
	}
	id, err := pathApp(c)
	if entity.HasCode(err, entity.NotFound) {
		return flow.Change{}, nil
	}
	if err != nil {
		return flow.Change{}, err
	}
	if _, err := server.Ask[*appv1.Description](c, appCommand(c, id, &appv1.RemoveApp{TaskId: c.NewID("stop_")})); err != nil {
		return flow.Change{}, err
	}
	// The key of the app ends with the request, however long its process lasts.
	if err := c.Settle(entity.KindApp, app.Identity(c.Workspace.ID, id)); err != nil {
		return flow.Change{}, err
	}
	c.EndCredential(id)
	return flow.Change{AppID: id, Await: &appv1.AwaitApp{Removal: true}}, nil
}

// settleRemoval waits until the workspace has released what it had reserved for an app.
func (a apps) settleRemoval(ctx context.Context, c *server.Call, appID string) error {
	ctx, cancel := context.WithTimeout(ctx, c.RequestTime())
	defer cancel()
	c = c.With(ctx)
	return c.Settle(entity.KindApp, app.Identity(c.Workspace.ID, appID))
}
