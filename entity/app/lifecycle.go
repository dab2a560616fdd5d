package app

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// MaxCrashes is the number of crashes that an app remembers.
const MaxCrashes = 20

var errTaskID = entity.Errorf(entity.InvalidRequest, "taskId is not an id")

// setVisibility makes the app public, which only owners may do, or private to the workspace. Errors: not_found, invalid_request,
// forbidden.
func setVisibility(call entity.Call, s *appv1.App, c *appv1.SetVisibility) ([]appv1.Event, error) {
	if err := checkChangeable(s); err != nil {
		return nil, err
	}
	switch c.GetVisibility() {
	case appv1.Visibility_VISIBILITY_FOLDER:
	case appv1.Visibility_VISIBILITY_PUBLIC:
		switch {
		case !mayPublish(call):
			return nil, errOwnersOnly
		case isReadOnly(s):
			return nil, errReadOnly
		}
	default:
		return nil, errVisibility
	}
	if s.GetVisibility() == c.GetVisibility() {
		return nil, nil
	}
	return []appv1.Event{&appv1.VisibilityChanged{Visibility: c.GetVisibility(), At: call.At()}}, nil
}

// setDisabled disables the app, or enables it again. Errors: not_found.
func setDisabled(call entity.Call, s *appv1.App, c *appv1.SetDisabled) ([]appv1.Event, error) {
	switch err := checkChangeable(s); {
	case err != nil:
		return nil, err
	case c.GetDisabled() == (s.GetDisabledAt() != 0):
		return nil, nil
	case c.GetDisabled():
		return thenRevokeKey(call, s, &appv1.AppDisabled{UserId: call.Principal.GetUserId(), At: call.At()}), nil
	default:
		return []appv1.Event{&appv1.AppEnabled{At: call.At()}}, nil
	}
}

// halt suspends the app with its workspace, or ends the suspension.
func halt(call entity.Call, s *appv1.App, c *appv1.HaltApp) []appv1.Event {
	if c.GetHalted() == s.GetHalted() {
		return nil
	}
	e := &appv1.AppHalted{Halted: c.GetHalted(), At: call.At()}
	if !c.GetHalted() {
		return []appv1.Event{e}
	}
	return thenRevokeKey(call, s, e)
}

// followAnchor records the path and the state of the anchor, unless the app has followed a later event of the workspace.
func followAnchor(call entity.Call, s *appv1.App, c *appv1.FollowAnchor) []appv1.Event {
	if c.GetVersion() <= s.GetAnchorVersion() || c.GetPath() == s.GetPath() && c.GetState() == s.GetFolderState() {
		return nil
	}
	e := &appv1.AnchorFollowed{Path: c.GetPath(), State: c.GetState(), Version: c.GetVersion(), At: call.At()}
	if c.GetState() == appv1.FolderState_FOLDER_STATE_ACTIVE {
		return []appv1.Event{e}
	}
	return thenRevokeKey(call, s, e)
}

// wake makes the process of a sleeping app start again.
func wake(call entity.Call, s *appv1.App) []appv1.Event {
	if !s.GetAsleep() {
		return nil
	}
	return []appv1.Event{&appv1.AppWoken{At: call.At()}}
}

// reportAsleep records that the process has ended because it was not used. It has no effect if the app has another configuration by
// now, or one that does not sleep.
func reportAsleep(call entity.Call, s *appv1.App, c *appv1.ReportAsleep) []appv1.Event {
	if s.GetAsleep() || !mayRun(s) || s.GetRuntimeStatus() == reconciling || c.GetGeneration() != s.GetAcceptedGeneration() ||
		s.GetAccepted().GetSleepAfterMs() == 0 {
		return nil
	}
	return thenRevokeKey(call, s, &appv1.AppSlept{At: call.At()})
}

// reportCrash records an unexpected end of the process. It has no effect if the app does not run the generation any more, or if the
// crash was recorded before.
func reportCrash(call entity.Call, s *appv1.App, c *appv1.ReportCrash) []appv1.Event {
	crash := &appv1.Crash{At: c.GetCrash().GetAt(), Reason: excerpt(c.GetCrash().GetReason())}
	if crash.GetAt() <= 0 || crash.GetAt() > entity.MaxTime {
		crash.At = call.At()
	}
	if generation(s, c.GetGeneration()) == nil {
		return nil
	}
	for _, known := range s.GetCrashes() {
		if proto.Equal(known, crash) {
			return nil
		}
	}
	return []appv1.Event{&appv1.AppCrashed{Generation: c.GetGeneration(), Crash: crash}}
}

// remove begins the removal of the app, which no member can do with a replica. It has no effect while the app is being removed.
// Errors: forbidden, invalid_request.
func remove(call entity.Call, s *appv1.App, c *appv1.RemoveApp) ([]appv1.Event, error) {
	switch {
	case s.GetOrigin() != nil && !entity.IsPlatform(call.Principal):
		return nil, errReplica
	case s.GetRemoval() != nil:
		return nil, nil
	case !entity.IsID(c.GetTaskId()):
		return nil, errTaskID
	}
	removal := &appv1.Removal{RequestedAt: call.At(), Author: authorOf(call), TaskId: c.GetTaskId()}
	return thenRevokeKey(call, s, &appv1.RemovalRequested{Removal: removal}), nil
}

// reportStopped completes a removal, or ends it without effect if the process could not be ended. The domain of the app is released with
// it. If the app is not being removed, no port is busy any more; a process that could not be ended changes nothing, and the task
// goes on. A report for another task has no effect.
func reportStopped(call entity.Call, s *appv1.App, c *appv1.ReportStopped) []appv1.Event {
	switch open := Tasks(s); {
	case len(open) == 0 || open[0].Kind != StopTask || open[0].ID != c.GetTaskId():
		return nil
	case s.GetRemoval() == nil && c.GetFailure() != "":
		return nil
	case s.GetRemoval() == nil:
		return releasePorts(s, &appv1.Ports{Offered: s.GetPorts().GetOffered()})
	case c.GetFailure() != "":
		return []appv1.Event{&appv1.RemovalFailed{Reason: excerpt(c.GetFailure()), At: call.At()}}
	}
	return append(removeDomain(call, s), &appv1.AppRemoved{
		WorkspaceId: s.GetWorkspaceId(), AppId: s.GetId(), AnchorId: s.GetAnchorId(), At: call.At(),
	})
}

// authorOf returns the person behind a call.
func authorOf(call entity.Call) *appv1.Author {
	return &appv1.Author{
		UserId: audit.Actor(call.Principal), ImpersonatorId: call.Principal.GetImpersonatorId(), Credential: audit.Credential(call.Principal),
	}
}
