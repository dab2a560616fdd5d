package app

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Change is a durable change of an app.
type Change struct {
	// AppID is the app; empty: there is none, and nothing has changed.
	AppID string
	// Anchor is the anchor of a new app; nil after other changes.
	Anchor *workspacev1.Anchor
	// await is the query that waits for the result; nil: the change needs no reconciliation.
	await *appv1.AwaitApp
	// keyNumber is the number of the key of the app when the change was recorded; 0: it had none.
	keyNumber uint64
}

var (
	// errNoFolder is the error for a path that names no folder below the root.
	errNoFolder  = entity.Errorf(entity.InvalidRequest, "path names no folder on the drive")
	errPathInUse = entity.Errorf(entity.PathInUse, "the folder already has an app")
	errNoReplica = entity.Errorf(entity.InvalidRequest, "the app is no replica; its members unregister it")
)

// Register binds an app to a folder of the drive. The ids of the registration are set here. Errors: not_found, forbidden,
// workspace_suspended, workspace_closed, invalid_request, slug_taken, path_in_use, port_in_use, limit_reached.
func (r Request) Register(ctx context.Context, registration *appv1.Registration) (Change, error) {
	if _, err := r.authorize(ctx, true); err != nil {
		return Change{}, err
	}
	// The anchors follow all earlier changes of the drive first.
	if err := r.service.Asker.Settle(ctx, entity.KindActivity, r.workspaceID); err != nil {
		return Change{}, err
	}
	seq, folder, err := r.findFolder(ctx, registration.GetPath())
	if err != nil {
		return Change{}, err
	}
	made := entity.ShallowCopy(registration)
	made.Path, made.AppId, made.AnchorId = folder, r.service.NewID(app.IDPrefix), r.service.NewID("anc_")
	anchor, err := ask[*workspacev1.Anchor](ctx, r, r.changeWorkspace(&workspacev1.RegisterApp{Registration: made, Seq: seq}))
	if err != nil {
		return Change{}, err
	}
	// The app exists once the reaction of the workspace has created it.
	return Change{AppID: made.GetAppId(), Anchor: anchor, await: &appv1.AwaitApp{Generation: 1}}, r.settleWorkspace(ctx)
}

// findFolder returns the real folder that a path names, and the position of the workspace's activity before it was looked up, so that an
// anchor which is bound to the folder follows a rename between the two. Errors: invalid_request if the path names no folder, or the
// drive itself.
func (r Request) findFolder(ctx context.Context, path string) (seq uint64, folder string, err error) {
	recorded, err := ask[*activityv1.Recorded](ctx, r, entity.Command{
		Kind: entity.KindActivity, Identity: r.workspaceID, Principal: entity.Platform(),
		Message: &activityv1.Record{}, // without rows: it only returns the position
	})
	if err != nil {
		return 0, "", err
	}
	folder, err = r.service.Folders.ResolveFolder(ctx, r.workspaceID, path)
	switch {
	case entity.HasCode(err, entity.InvalidCwd), err == nil && folder == "":
		return 0, "", errNoFolder
	}
	return recorded.GetSeq(), folder, err
}

// Reanchor binds an app to another folder of the drive, and describes the app. Errors: the errors of Set, path_in_use.
func (r Request) Reanchor(ctx context.Context, name, path string) (*appv1.Description, error) {
	if _, err := r.catchUp(ctx, true); err != nil {
		return nil, err
	}
	anchor, err := r.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	seq, folder, err := r.findFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	_, err = ask[*workspacev1.Anchor](ctx, r, r.changeWorkspace(&workspacev1.Reanchor{AnchorId: anchor.GetId(), Path: folder, Seq: seq}))
	switch {
	case entity.HasCode(err, entity.AnchorConflict):
		return nil, errPathInUse
	case err != nil:
		return nil, err
	}
	if err := r.settleWorkspace(ctx); err != nil {
		return nil, err
	}
	return r.describe(ctx, anchor.GetApp().GetId())
}

// Update changes the display metadata of an app, its runtime or both. Errors: the errors of Set, port_in_use, limit_reached.
func (r Request) Update(ctx context.Context, name string, update *appv1.UpdateApp) (Change, error) {
	id, call, err := r.findToChange(ctx, name)
	if err != nil {
		return Change{}, err
	}
	before, err := r.describe(ctx, id)
	if err != nil {
		return Change{}, err
	}
	if update.Port != nil {
		call.Identity = app.Identity(r.workspaceID, id)
		if err := app.CheckUpdate(call, before.GetApp(), update); err != nil { // reserve no port for an update that is refused
			return Change{}, err
		}
		// The app releases the port again if no update takes it (entity/app, ports.go).
		_, err := ask[*workspacev1.AppPort](ctx, r, r.changeWorkspace(&workspacev1.ReserveAppPort{AppId: id, Port: update.GetPort()}))
		if err != nil {
			return Change{}, err
		}
		if err := r.settleWorkspace(ctx); err != nil {
			return Change{}, err
		}
	}
	after, err := r.change(ctx, id, update)
	if err != nil {
		return Change{}, err
	}
	made := Change{AppID: id, keyNumber: after.GetApp().GetKey().GetNumber()}
	if generation := after.GetApp().GetGeneration(); generation > before.GetApp().GetGeneration() {
		made.await = &appv1.AwaitApp{Generation: generation}
	}
	return made, nil
}

// Restart replaces the process of an app. While a configuration is being reconciled, the change is that configuration. Errors: the errors
// of Set, invalid_request if the app may not run.
func (r Request) Restart(ctx context.Context, name string) (Change, error) {
	id, _, err := r.findToChange(ctx, name)
	if err != nil {
		return Change{}, err
	}
	after, err := r.change(ctx, id, &appv1.RestartApp{})
	if err != nil {
		return Change{}, err
	}
	return Change{
		AppID: id, await: &appv1.AwaitApp{Generation: after.GetApp().GetGeneration()}, keyNumber: after.GetApp().GetKey().GetNumber(),
	}, nil
}

// Set sends an app a command, and describes the app when the reactions are done. Errors: not_found, forbidden,
// workspace_suspended, workspace_closed, the errors of the rules.
func (r Request) Set(ctx context.Context, name string, command appv1.Command) (*appv1.Description, error) {
	id, _, err := r.findToChange(ctx, name)
	if err != nil {
		return nil, err
	}
	found, err := r.change(ctx, id, command)
	if err != nil {
		return nil, err
	}
	return found, r.settleApp(ctx, id)
}

// AttachDomain requests a custom domain for an app, waits until the name is reserved, and describes the app. Errors: the errors of
// Set, domain_occupied, domain_cleanup_pending, hostname_in_use.
func (r Request) AttachDomain(ctx context.Context, name, hostname string) (*appv1.Description, error) {
	id, _, err := r.findToChange(ctx, name)
	if err != nil {
		return nil, err
	}
	found, err := r.change(ctx, id, &appv1.AttachDomain{DomainId: r.service.NewID(app.DomainPrefix), Hostname: hostname})
	if err != nil {
		return nil, err
	}
	domain := found.GetApp().GetDomain().GetId()
	if !found.GetApp().GetDomain().GetClaimed() {
		// The binding answers within the time of an ordinary request, or the client repeats the request.
		if found, err = r.query(ctx, id, &appv1.AwaitApp{DomainId: domain}); err != nil {
			return nil, err
		}
	}
	return found, app.RefusalOf(found.GetApp(), domain)
}

// Remove begins to unregister an app. The key of the app ends with the request, however long the process lasts. The change has no app if
// there is none. Errors: not_found if the caller does not belong to the workspace, forbidden, workspace_suspended, workspace_closed, the
// errors of the rules.
func (r Request) Remove(ctx context.Context, name string) (Change, error) {
	if _, err := r.authorize(ctx, true); err != nil {
		return Change{}, err
	}
	anchor, err := r.Find(ctx, name)
	switch {
	case entity.HasCode(err, entity.NotFound):
		return Change{}, nil
	case err != nil:
		return Change{}, err
	}
	id := anchor.GetApp().GetId()
	if _, err := r.requestRemoval(ctx, id); err != nil {
		return Change{}, err
	}
	return Change{AppID: id, await: &appv1.AwaitApp{Removal: true}}, r.settleApp(ctx, id)
}

func (r Request) requestRemoval(ctx context.Context, appID string) (*appv1.Description, error) {
	return r.change(ctx, appID, &appv1.RemoveApp{TaskId: r.service.NewID("stop_")})
}

// RemoveReplica begins to remove a replica, and reports whether there is none. Errors: invalid_request if the app is no replica, the errors
// of the rules.
func (r Request) RemoveReplica(ctx context.Context, name string) (removed bool, err error) {
	anchor, err := r.Find(ctx, name)
	switch {
	case entity.HasCode(err, entity.NotFound):
		return true, nil
	case err != nil:
		return false, err
	}
	found, err := r.describe(ctx, anchor.GetApp().GetId())
	switch {
	case err != nil:
		return false, err
	case found.GetApp().GetOrigin() == nil:
		return false, errNoReplica
	}
	_, err = r.requestRemoval(ctx, found.GetApp().GetId())
	return false, err
}

// Await waits for the result of a change until the context waiting ends, which ends with ctx or before, and describes the app. If the result
// comes later, the app is described as it is then: reconciling, or being removed. An app that was removed has only the field removed.
// Errors: not_found, forbidden, the errors of ctx.
func (r Request) Await(ctx, waiting context.Context, made Change) (*appv1.Description, error) {
	if made.await != nil {
		found, err := r.query(waiting, made.AppID, made.await)
		switch {
		case err == nil:
			// What neither the app nor a process of the app uses any more is free when Await returns.
			return found, r.settleApp(ctx, made.AppID)
		case entity.IsRefusal(err):
			return nil, err
		}
	}
	found, err := r.describe(ctx, made.AppID)
	if made.await.GetRemoval() && entity.HasCode(err, entity.NotFound) {
		return &appv1.Description{App: &appv1.App{Removed: true}}, r.settleApp(ctx, made.AppID)
	}
	return found, err
}

// HasFailed reports whether the computer has refused the configuration of the change. A later change of the app may have another result.
func (made Change) HasFailed(s *appv1.App) bool {
	return made.await.GetGeneration() > 0 && s.GetGeneration() == made.await.GetGeneration() &&
		s.GetRuntimeStatus() == appv1.RuntimeStatus_RUNTIME_STATUS_FAILED
}

// HasReplacedKey reports whether an app, described after the change, has another key than before the change, or none any more.
func (made Change) HasReplacedKey(s *appv1.App) bool {
	return made.keyNumber > 0 && s.GetKey().GetNumber() != made.keyNumber
}
