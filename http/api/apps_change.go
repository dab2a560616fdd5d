package api

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	appservice "github.com/atelier-run/atelier/service/app"
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

func (a apps) update(c *server.Call, in appChange) (appservice.Change, error) {
	return a.request(c).Update(c.Context, pathSlug(c), in.command)
}

func (a apps) restart(c *server.Call, _ server.None) (appservice.Change, error) {
	return a.request(c).Restart(c.Context, pathSlug(c))
}

func (a apps) reanchor(c *server.Call, in reanchorRequest) (appAnswer, error) {
	return a.answer(a.request(c).Reanchor(c.Context, pathSlug(c), in.Path))(c)
}

type visibilityRequest struct {
	Visibility string `json:"visibility"`

	command *appv1.SetVisibility
}

func checkVisibility(in *visibilityRequest) error {
	to, known := ParseName(app.VisibilityNames, in.Visibility)
	if !known {
		return server.Invalid("visibility must be folder or public")
	}
	in.command = &appv1.SetVisibility{Visibility: to}
	return nil
}

func (a apps) setVisibility(c *server.Call, in visibilityRequest) (appAnswer, error) {
	return a.answer(a.set(c, in.command))(c)
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
	return a.answer(a.set(c, &appv1.SetDisabled{Disabled: *in.Disabled}))(c)
}

// set sends a command to the app in the path, and describes the app. If the command has ended the key of the app, the key is refused from
// then on. Errors: the errors of appservice.Request.Set.
func (a apps) set(c *server.Call, command appv1.Command) (*appv1.Description, error) {
	found, err := a.request(c).Set(c.Context, pathSlug(c), command)
	if err == nil && found.GetApp().GetKey() == nil {
		c.EndCredential(found.GetApp().GetId())
	}
	return found, err
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
			case err != nil:
				return err
			case found.GetApp().GetRemoval() != nil:
				return errRemoving
			case !found.GetApp().GetRemoved():
				c.Response.WriteJSON(http.StatusBadGateway, reconcileFailure{
					entity.ReconcileFailed, "the app is still registered", "its process could not be ended", a.view(c, found),
				})
				return nil
			}
		}
		c.Response.WriteJSON(http.StatusOK, appRemoved{true})
		return nil
	})
}

// requestRemoval begins the removal of the app in the path. The key of the app is refused from then on. The change has no app if there is
// none.
func (a apps) requestRemoval(c *server.Call, _ server.None) (appservice.Change, error) {
	made, err := a.request(c).Remove(c.Context, pathSlug(c))
	if err == nil && made.AppID != "" {
		c.EndCredential(made.AppID)
	}
	return made, err
}
