package app

import (
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// KeyStart begins the key of an app. The id of the key is the id of the app (package keys).
const KeyStart = "atlapp_"

// IDPrefix begins the id of an app, and DomainPrefix the id of a domain; a lower-case ULID follows.
const (
	IDPrefix     = "app_"
	DomainPrefix = "dom_"
)

var (
	errNotFound     = entity.Errorf(entity.NotFound, "no such app")
	errBeingRemoved = entity.Errorf(entity.NotFound, "the app is being unregistered")
	errReadOnly     = entity.Errorf(entity.Forbidden, "the app is a read-only copy of a shared app; its runtime and visibility cannot be changed")
	errReplica      = entity.Errorf(entity.Forbidden, "the app is a copy of a shared app; it is removed with the share")
	errOwnersOnly   = entity.Errorf(entity.Forbidden, "only owners of the workspace may make an app public")
	errCommandGrant = entity.Errorf(entity.Forbidden, "the command of an app can read and change all files: the credential needs files:read, files:write and services")
	errScopeGrant   = entity.Errorf(entity.Forbidden, "the app has scopes that the credential does not have")
)

// Identity returns the identity of an app. SplitIdentity returns its parts.
func Identity(workspaceID, appID string) string { return workspaceID + "/" + appID }

// SplitIdentity returns the workspace and the id of an app.
func SplitIdentity(identity string) (workspaceID, appID string) {
	workspaceID, appID, _ = strings.Cut(identity, "/")
	return workspaceID, appID
}

// IsID reports whether a text has the form of the id of an app.
func IsID(text string) bool {
	ulid, ok := strings.CutPrefix(text, IDPrefix)
	return ok && entity.IsULID(ulid)
}

// The accesses that several commands share.
var (
	readAccess   = entity.Requires(entity.Reads(entity.Apps))
	changeAccess = entity.Requires(entity.Changes(entity.Apps))
)

// accessOf returns the access to a command, which the workspace checks.
func accessOf(c appv1.Command) entity.Access {
	switch c.(type) {
	case *appv1.UpdateApp, *appv1.SetVisibility, *appv1.SetDisabled, *appv1.SetRuntimeSettings, *appv1.RestartApp, *appv1.RemoveApp,
		*appv1.AttachDomain, *appv1.RecheckDomain, *appv1.RemoveDomain:
		return changeAccess
	case *appv1.DescribeApp, *appv1.AwaitApp:
		return readAccess
	case *appv1.RegisterApp, *appv1.FollowAnchor, *appv1.HaltApp, *appv1.WakeApp, *appv1.ReportAsleep, *appv1.IssueKey,
		*appv1.ReportReconciled, *appv1.ReportCrash, *appv1.ReportStopped, *appv1.AwaitRuntime, *appv1.ReportDomain,
		*appv1.ReportDomainRefused, *appv1.ReportDomainReleased, *appv1.OfferPort, *appv1.ExpirePorts, *appv1.ReportFreePorts:
	}
	return entity.PlatformOnly()
}

// ControlsOf returns the changes of the app that the principal of the call may make now (specification, App, and the role rules). It
// may do nothing while the app is suspended with its workspace, and may only repeat the removal while the app is being removed.
func ControlsOf(call entity.Call, s *appv1.App) *appv1.Controls {
	if !MayChange(call) || s.GetHalted() {
		return &appv1.Controls{}
	}
	isOwn, isStable, readOnly := s.GetOrigin() == nil, s.GetRemoval() == nil, isReadOnly(s)
	return &appv1.Controls{
		ManageDomain: isStable, UpdateRuntime: isStable && !readOnly && CheckGrants(call, configured(s).GetApiScopes()) == nil,
		MakePublic: isStable && !readOnly && mayPublish(call), MakePrivate: isStable, Delete: isOwn || entity.IsPlatform(call.Principal),
	}
}

// MayChange reports whether the principal of the call may change apps, and register them.
func MayChange(call entity.Call) bool {
	switch call.Role {
	case workspacev1.Role_ROLE_OWNER, workspacev1.Role_ROLE_EDITOR:
		return slices.Contains(entity.Capabilities(call.Principal, call.Role), entity.Apps)
	default:
		return false
	}
}

// mayPublish reports whether the principal has the authority of an owner. Apps and agents never have it, even if they act for an owner.
func mayPublish(call entity.Call) bool {
	return slices.Contains(entity.Capabilities(call.Principal, call.Role), entity.Admin)
}

// isReadOnly reports whether the app is a replica, and its recipient may change neither its runtime nor its visibility.
func isReadOnly(s *appv1.App) bool { return s.GetOrigin().GetMode() == appv1.ShareMode_SHARE_MODE_READ }

// CheckGrants returns forbidden unless the principal of the call has all scopes of a configuration, and the capabilities that every process
// in a computer has. Otherwise a credential that is limited to apps could run a command with capabilities that it does not have.
func CheckGrants(call entity.Call, scopes []string) error {
	granted := entity.Capabilities(call.Principal, call.Role)
	if len(entity.MissingForProcesses(granted)) > 0 {
		return errCommandGrant
	}
	for _, scope := range scopes {
		if !slices.Contains(granted, scope) {
			return errScopeGrant
		}
	}
	return nil
}

// checkChangeable returns not_found if the app is being removed.
func checkChangeable(s *appv1.App) error {
	if s.GetRemoval() != nil {
		return errBeingRemoved
	}
	return nil
}
