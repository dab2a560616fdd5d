// Package flow has the steps by which a request changes an app. The API (http/api) and the tools for agents (runner/tools) take the same
// ones. A request that changes the runtime passes these steps:
//
//  1. The caller validates its input. Authorize refuses callers without access before anything about the workspace is revealed.
//  2. For a new app, FindFolder looks up the folder on the drive. An update reserves its port in the workspace (ReserveAppPort), so
//     that no two apps have the same one, and waits until the app knows of the reservation.
//  3. The command makes the change durable: RegisterApp of the workspace, whose reaction creates the app, or UpdateApp and RestartApp of
//     the app (Register, Update, Restart).
//  4. AwaitApp waits until the computer has accepted or refused the configuration, for a limited time (Await).
//
// The package app describes the chain of commands of a registration.
package flow

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A Caller is the sender of a request in a workspace.
type Caller interface {
	// Ask sends a command to an entity and returns its reply. A command without a principal is sent as the caller. Errors: *entity.Error
	// if the entity refuses the command.
	Ask(entity.Command) (proto.Message, error)
	// Settle waits until the reactions to the events that an entity has recorded so far are done.
	Settle(kind, identity string) error
	// FindFolder returns the path of the real folder that a path names, without links; the empty path is the root of the drive. Errors:
	// invalid_cwd if there is none.
	FindFolder(path string) (real string, err error)
	// NewID returns a new id; prefix names its kind.
	NewID(prefix string) string
	// Within returns the caller with a limit of the time in which it is answered. end must be called when it sends nothing more.
	Within(limit time.Duration) (c Caller, end func())
}

// A Change is a durable change of an app.
type Change struct {
	AppID string
	// Await is the query that waits for its result; nil: the change needs no reconciliation.
	Await *appv1.AwaitApp
	// keyNumber is the number of the key of the app when the change was recorded; 0: it had none.
	keyNumber uint64
}

// errNoFolder is the error for a path that names no folder below the root.
var errNoFolder = entity.Errorf(entity.InvalidRequest, "path names no folder on the drive")

// Authorize returns the role of a caller that may change the apps of a workspace. Errors: not_found, forbidden, workspace_suspended,
// workspace_closed.
func Authorize(c Caller, workspaceID string) (workspacev1.Role, error) {
	granted, err := ask[*workspacev1.Authorized](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Message: &workspacev1.Authorize{Any: []string{entity.Apps}, Changes: true},
	})
	return granted.GetRole(), err
}

// Register binds an app to a folder of the drive. The ids of the registration are set here. Errors: those of Authorize,
// invalid_request, slug_taken, path_in_use, port_in_use, limit_reached.
func Register(c Caller, workspaceID string, registration *appv1.Registration) (Change, error) {
	if _, err := Authorize(c, workspaceID); err != nil {
		return Change{}, err
	}
	// The anchors follow all earlier changes of the drive first.
	if err := c.Settle(entity.KindActivity, workspaceID); err != nil {
		return Change{}, err
	}
	seq, folder, err := FindFolder(c, workspaceID, registration.GetPath())
	if err != nil {
		return Change{}, err
	}
	r := entity.ShallowCopy(registration)
	r.Path, r.AppId, r.AnchorId = folder, c.NewID(app.IDPrefix), c.NewID("anc_")
	_, err = ask[*workspacev1.Anchor](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, ID: c.NewID("cmd_"), Message: &workspacev1.RegisterApp{Registration: r, Seq: seq},
	})
	if err != nil {
		return Change{}, err
	}
	// The app exists once the reaction of the workspace has created it.
	if err := c.Settle(entity.KindWorkspace, workspaceID); err != nil {
		return Change{}, err
	}
	return Change{AppID: r.GetAppId(), Await: &appv1.AwaitApp{Generation: 1}}, nil
}

// FindFolder returns the real folder that a path names, and the position of the workspace's activity before it was looked up, so that an
// anchor which is bound to the folder follows a rename between the two. Errors: invalid_request if the path names no folder, or the
// drive itself.
func FindFolder(c Caller, workspaceID, path string) (seq uint64, folder string, err error) {
	recorded, err := ask[*activityv1.Recorded](c, entity.Command{
		Kind: entity.KindActivity, Identity: workspaceID, Principal: entity.Platform(),
		Message: &activityv1.Record{}, // without rows: it only returns the position
	})
	if err != nil {
		return 0, "", err
	}
	folder, err = c.FindFolder(path)
	switch {
	case entity.HasCode(err, entity.InvalidCwd), err == nil && folder == "":
		return 0, "", errNoFolder
	}
	return recorded.GetSeq(), folder, err
}

// Update changes the display metadata of an app, its runtime or both. Errors: those of Authorize, not_found, invalid_request, port_in_use.
func Update(c Caller, workspaceID, appID string, call entity.Call, update *appv1.UpdateApp) (Change, error) {
	role, err := Authorize(c, workspaceID)
	if err != nil {
		return Change{}, err
	}
	u := entity.ShallowCopy(update)
	before, err := Describe(c, workspaceID, appID)
	if err != nil {
		return Change{}, err
	}
	if u.Port != nil {
		call.Identity, call.Role = app.Identity(workspaceID, appID), role
		if err := app.CheckUpdate(call, before.GetApp(), u); err != nil { // reserve no port for an update that is refused
			return Change{}, err
		}
		// The app releases the port again if no update takes it (entity/app, ports.go).
		_, err := ask[*workspacev1.AppPort](c, entity.Command{
			Kind: entity.KindWorkspace, Identity: workspaceID, ID: c.NewID("cmd_"),
			Message: &workspacev1.ReserveAppPort{AppId: appID, Port: u.GetPort()},
		})
		if err != nil {
			return Change{}, err
		}
		if err := c.Settle(entity.KindWorkspace, workspaceID); err != nil {
			return Change{}, err
		}
	}
	after, err := ask[*appv1.Description](c, command(c, workspaceID, appID, u))
	if err != nil {
		return Change{}, err
	}
	made := Change{AppID: appID, keyNumber: after.GetApp().GetKey().GetNumber()}
	if generation := after.GetApp().GetGeneration(); generation > before.GetApp().GetGeneration() {
		made.Await = &appv1.AwaitApp{Generation: generation}
	}
	return made, nil
}

// Restart replaces the process of an app. While a configuration is being reconciled, the change is that configuration. Errors: those of
// Authorize, not_found, invalid_request if the app may not run.
func Restart(c Caller, workspaceID, appID string) (Change, error) {
	after, err := ask[*appv1.Description](c, command(c, workspaceID, appID, &appv1.RestartApp{}))
	if err != nil {
		return Change{}, err
	}
	return Change{
		AppID: appID, Await: &appv1.AwaitApp{Generation: after.GetApp().GetGeneration()}, keyNumber: after.GetApp().GetKey().GetNumber(),
	}, nil
}

// Await waits for the result of a change, for a limited time, and describes the app. If the result comes later, the app is described as
// it is then: reconciling. Errors: not_found, forbidden, those of the caller whose time is over.
func Await(c Caller, workspaceID string, made Change, limit time.Duration) (*appv1.Description, error) {
	if made.Await != nil {
		waiting, end := c.Within(limit)
		defer end()
		found, err := ask[*appv1.Description](waiting, query(workspaceID, made.AppID, made.Await))
		switch {
		case err == nil:
			// The ports that neither the app nor one of its processes uses any more are free when Await returns.
			return found, c.Settle(entity.KindApp, app.Identity(workspaceID, made.AppID))
		case entity.IsRefusal(err):
			return nil, err
		}
	}
	return Describe(c, workspaceID, made.AppID)
}

// Describe describes an app. Errors: not_found, forbidden.
func Describe(c Caller, workspaceID, appID string) (*appv1.Description, error) {
	return ask[*appv1.Description](c, query(workspaceID, appID, &appv1.DescribeApp{}))
}

// HasFailed reports whether the computer has refused the configuration of the change. A later change of the app may have another result.
func (made Change) HasFailed(s *appv1.App) bool {
	return made.Await.GetGeneration() > 0 && s.GetGeneration() == made.Await.GetGeneration() &&
		s.GetRuntimeStatus() == appv1.RuntimeStatus_RUNTIME_STATUS_FAILED
}

// HasReplacedKey reports whether an app, described after the change, has another key than before the change, or none any more.
func (made Change) HasReplacedKey(s *appv1.App) bool {
	return made.keyNumber > 0 && s.GetKey().GetNumber() != made.keyNumber
}

// command returns a command to an app with an id, so that the router delivers it once, however often it retries.
func command(c Caller, workspaceID, appID string, m appv1.Command) entity.Command {
	asked := query(workspaceID, appID, m)
	asked.ID = c.NewID("cmd_")
	return asked
}

func query(workspaceID, appID string, m appv1.Command) entity.Command {
	return entity.Command{Kind: entity.KindApp, Identity: app.Identity(workspaceID, appID), Message: m}
}

func ask[Reply proto.Message](c Caller, command entity.Command) (Reply, error) {
	return entity.ReplyAs[Reply](c.Ask(command))
}
