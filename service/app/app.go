// Package app has the operations of apps. The API (http/api), the tools for agents (runner/tools) and the operators' socket (http/operator)
// call the same ones.
//
// A request that changes the runtime of an app passes these steps:
//
//  1. The door decodes and validates it.
//  2. The workspace authorizes the caller (authorize), before an error can reveal anything about the workspace, and finds the app by its
//     slug (Find).
//  3. For a new app, findFolder looks up the folder on the drive. An update reserves its port in the workspace (ReserveAppPort), so that no
//     two apps have the same one, and waits until the app knows of the reservation.
//  4. The command makes the change durable: RegisterApp of the workspace (its reaction creates the app), or UpdateApp and RestartApp of
//     the app (Register, Update, Restart).
//  5. AwaitApp waits until the computer has accepted or refused the configuration, for a limited time (Await).
//
// The package entity/app describes the chain of commands of a registration.
package app

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/slug"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// Folders looks up the folders of drives.
type Folders interface {
	// ResolveFolder returns the path of the real folder that a path names, without links; the empty path is the root of the
	// drive. Errors: invalid_cwd if there is none, the errors of the drive.
	ResolveFolder(ctx context.Context, workspaceID, path string) (real string, err error)
}

// Service has the dependencies of the operations. It is safe for concurrent use.
type Service struct {
	Asker entity.AskSettler
	// NewID returns a new id; prefix names its kind and ends in an underscore: "app_".
	NewID   func(prefix string) string
	Folders Folders
	// Clock returns the time for a check of the rules before their entity decides.
	Clock func() time.Time
}

// For returns a request of a caller in a workspace.
func (s *Service) For(caller service.Caller, workspaceID string) Request {
	return Request{s, caller, workspaceID}
}

// Request is a request of a caller in a workspace. Its methods are the operations.
type Request struct {
	service     *Service
	caller      service.Caller
	workspaceID string
}

var errNoApp = entity.Errorf(entity.NotFound, "no such app")

// Find returns the anchor of the app with a slug. It asks no entity of the app for a text that is no slug. Errors: not_found, forbidden.
func (r Request) Find(ctx context.Context, name string) (*workspacev1.Anchor, error) {
	if slug.CheckForm(name) != nil {
		if _, err := r.authorize(ctx, false); err != nil {
			return nil, err
		}
		return nil, errNoApp
	}
	return ask[*workspacev1.Anchor](ctx, r, r.toWorkspace(&workspacev1.FindApp{Slug: name}))
}

// findToChange returns the id of the app with a slug, and the call of the caller for the rules. The caller has the access to change apps.
// Errors: the errors of authorize, not_found.
func (r Request) findToChange(ctx context.Context, name string) (id string, call entity.Call, err error) {
	if call, err = r.authorize(ctx, true); err != nil {
		return "", call, err
	}
	anchor, err := r.Find(ctx, name)
	return anchor.GetApp().GetId(), call, err
}

// Describe describes the app with a slug. Errors: not_found, forbidden.
func (r Request) Describe(ctx context.Context, name string) (*appv1.Description, error) {
	anchor, err := r.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	return r.describe(ctx, anchor.GetApp().GetId())
}

// Read is Describe after the app has followed all earlier changes of the drive and the workspace. Errors: not_found, forbidden.
func (r Request) Read(ctx context.Context, name string) (*appv1.Description, error) {
	if _, err := r.catchUp(ctx, false); err != nil {
		return nil, err
	}
	return r.Describe(ctx, name)
}

// catchUp authorizes the caller and waits until the apps have followed all earlier changes of the drive and the workspace. Errors: the
// errors of authorize.
func (r Request) catchUp(ctx context.Context, changes bool) (entity.Call, error) {
	call, err := r.authorize(ctx, changes)
	if err != nil {
		return call, err
	}
	// The anchors follow the drive, and then the apps follow the anchors.
	if err := r.service.Asker.Settle(ctx, entity.KindActivity, r.workspaceID); err != nil {
		return call, err
	}
	return call, r.settleWorkspace(ctx)
}

// MayChange reports whether the caller may register and change apps now. Errors: not_found, forbidden if the caller may not read apps.
func (r Request) MayChange(ctx context.Context) (bool, error) {
	call, err := r.authorize(ctx, false)
	if err != nil {
		return false, err
	}
	return r.mayChange(ctx, call)
}

func (r Request) mayChange(ctx context.Context, call entity.Call) (bool, error) {
	if !app.MayChange(call) {
		return false, nil
	}
	_, err := r.authorize(ctx, true)
	if entity.HasCode(err, entity.WorkspaceSuspended, entity.WorkspaceClosed) {
		return false, nil
	}
	return err == nil, err
}

// authorize asks the workspace whether the caller may read its apps, or change them, and returns what the rules know of the caller. Errors:
// not_found, forbidden, and for changes workspace_suspended, workspace_closed.
func (r Request) authorize(ctx context.Context, changes bool) (entity.Call, error) {
	granted, err := ask[*workspacev1.Authorized](ctx, r, r.toWorkspace(&workspacev1.Authorize{Any: []string{entity.Apps}, Changes: changes}))
	return entity.Call{Now: r.service.Clock(), Principal: r.caller.Principal, Role: granted.GetRole()}, err
}

// describe describes an app. Errors: not_found, forbidden.
func (r Request) describe(ctx context.Context, appID string) (*appv1.Description, error) {
	return r.query(ctx, appID, &appv1.DescribeApp{})
}

func (r Request) settleWorkspace(ctx context.Context) error {
	return r.service.Asker.Settle(ctx, entity.KindWorkspace, r.workspaceID)
}

func (r Request) settleApp(ctx context.Context, appID string) error {
	return r.service.Asker.Settle(ctx, entity.KindApp, app.Identity(r.workspaceID, appID))
}

// toWorkspace returns a query to the workspace.
func (r Request) toWorkspace(m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindWorkspace, Identity: r.workspaceID, Message: m}
}

// changeWorkspace returns a command to the workspace, with an id, so that the router delivers it once, however often it retries.
func (r Request) changeWorkspace(m proto.Message) entity.Command {
	command := r.toWorkspace(m)
	command.ID = r.service.NewID("cmd_")
	return command
}

// query sends a query to an app.
func (r Request) query(ctx context.Context, appID string, m appv1.Command) (*appv1.Description, error) {
	return ask[*appv1.Description](ctx, r, entity.Command{Kind: entity.KindApp, Identity: app.Identity(r.workspaceID, appID), Message: m})
}

// change sends a command to an app, with an id, so that the router delivers it once, however often it retries.
func (r Request) change(ctx context.Context, appID string, m appv1.Command) (*appv1.Description, error) {
	return ask[*appv1.Description](ctx, r, entity.Command{
		Kind: entity.KindApp, Identity: app.Identity(r.workspaceID, appID), ID: r.service.NewID("cmd_"), Message: m,
	})
}

func ask[Reply proto.Message](ctx context.Context, r Request, command entity.Command) (Reply, error) {
	return service.Ask[Reply](ctx, r.service.Asker, r.caller, command)
}
