package edge

import (
	"context"
	"net/netip"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// target is the app that a host name belongs to. Requests share the value, which never changes.
type target struct {
	workspaceID, workspaceSlug, appID, appSlug string
	// name is the host name.
	name string
	// custom is set if name is a custom domain. public is set if the app has no restriction of its visitors.
	custom, public bool
	// generation is the number of the accepted configuration of the app. Connections of a lower generation lead to a process that was
	// replaced.
	generation uint64
	// headerTime is the time in which the app must begin its response, by its own settings; 0: Limits.HeaderTime.
	headerTime time.Duration
	// revision is the version of the app's last event.
	revision uint64
	state    state
}

// indexed reports whether search engines may index the app as its own headers permit (specification, App domain). All other responses forbid
// it.
func (t *target) indexed() bool { return t.custom && t.public }

// state says whether an app serves.
type state int

const (
	stateServing state = iota
	stateAsleep
	stateStarting
	stateFailed
	stateDisabled
	stateSuspended
	stateMissing
)

// The reasons of the errors for an app that does not serve. The errors of Dialer have these reasons, too.
const (
	reasonStarting  = "starting"
	reasonStopped   = "stopped"
	reasonFailed    = "failed"
	reasonDisabled  = "disabled"
	reasonSuspended = "suspended"
	reasonMissing   = "folder_missing"
)

// refusals maps a state to the error for requests to an app in this state. The states that are missing admit requests.
var refusals = map[state]*entity.Error{
	stateStarting:  notServing(reasonStarting, "the app is being installed or started"),
	stateFailed:    notServing(reasonFailed, "the app could not be started"),
	stateDisabled:  notServing(reasonDisabled, "the app is disabled"),
	stateSuspended: notServing(reasonSuspended, "the workspace of the app is suspended"),
	stateMissing:   notServing(reasonMissing, "the folder of the app was moved or removed"),
}

func notServing(reason, message string) *entity.Error {
	return &entity.Error{Code: entity.Unavailable, Reason: reason, Message: message, RetryAfter: retryTime}
}

// refusal returns the error for requests in the state of the app, or nil if the app may get requests.
func (t *target) refusal() error {
	if err := refusals[t.state]; err != nil {
		return err
	}
	return nil
}

// findTarget finds the app of the request's host. Errors: errNotFound, rate_limited, unavailable.
func (e *Edge) findTarget(x *exchange) error {
	name, ok := hostName(x.request.Host)
	if !ok {
		return errNotFound
	}
	found, err := e.lookUpHost(x.ctx, name, func() netip.Addr { return e.address(x) })
	if entity.HasCode(err, entity.NotFound) {
		// The slug, the workspace and the app each return not_found with a different message. The message would show a stranger
		// which workspaces exist.
		return errNotFound
	}
	x.target = found
	return err
}

// fetchTarget asks the entities for the app of a host name. known is the previous answer, or nil. Errors: not_found, which the cache stores,
// too.
func (e *Edge) fetchTarget(ctx context.Context, name string, known *target) (*target, error) {
	appSlug, workspaceSlug, standard := e.standardName(name)
	switch {
	case standard:
		found, err := entity.AskAsPlatform[*slugv1.Slug](ctx, e.o.Asker, entity.KindSlug, workspaceSlug, &slugv1.ResolveSlug{})
		if err != nil {
			return nil, err
		}
		if found.GetWorkspaceId() == "" {
			return nil, errNotFound
		}
		t := &target{name: name, workspaceID: found.GetWorkspaceId(), workspaceSlug: workspaceSlug}
		if known != nil && known.workspaceID == t.workspaceID {
			// An app has its slug until the app is removed; therefore the workspace need not be asked again.
			t.appID = known.appID
			if err := e.describe(ctx, t); !entity.HasCode(err, entity.NotFound) {
				return t, err
			}
		}
		anchor, err := entity.AskAsPlatform[*workspacev1.Anchor](ctx, e.o.Asker, entity.KindWorkspace, t.workspaceID, &workspacev1.FindApp{Slug: appSlug})
		if err != nil {
			return nil, err
		}
		t.appID = anchor.GetApp().GetId()
		return t, e.describe(ctx, t)
	case isCustomName(name) && name != e.platform:
		bound, err := entity.AskAsPlatform[*bindingv1.Binding](ctx, e.o.Asker, entity.KindBinding, name, &bindingv1.DescribeBinding{})
		if err != nil {
			return nil, err
		}
		if bound.GetStatus() != appv1.DomainStatus_DOMAIN_STATUS_ACTIVE || bound.GetAppId() == "" {
			return nil, errNotFound
		}
		t := &target{name: name, custom: true, workspaceID: bound.GetWorkspaceId(), appID: bound.GetAppId()}
		return t, e.describe(ctx, t)
	default:
		return nil, errNotFound
	}
}

// describe fills in the target from the state of its app. A custom domain is served only while the app's copy is active too, so that a
// removal takes effect at once. Errors: not_found.
func (e *Edge) describe(ctx context.Context, t *target) error {
	if t.appID == "" {
		return errNotFound
	}
	found, err := entity.AskAsPlatform[*appv1.Description](ctx, e.o.Asker, entity.KindApp, app.Identity(t.workspaceID, t.appID), &appv1.DescribeApp{})
	if err != nil {
		return err
	}
	a := found.GetApp()
	d := a.GetDomain()
	switch {
	case a.GetRemoved(), a.GetRemoval() != nil:
		return errNotFound
	case t.custom && (d.GetHostname() != t.name || d.GetStatus() != appv1.DomainStatus_DOMAIN_STATUS_ACTIVE):
		return errNotFound
	}
	t.appSlug, t.public = a.GetSlug(), a.GetVisibility() == appv1.Visibility_VISIBILITY_PUBLIC
	t.generation, t.state, t.revision = a.GetAcceptedGeneration(), stateOf(a), a.GetRevision()
	t.headerTime = time.Duration(a.GetRuntimeSettings().GetResponseTimeoutMs()) * time.Millisecond
	if !t.custom || t.public { // the slug of the workspace is part of the address of a launch only
		return nil
	}
	workspace, err := entity.AskAsPlatform[*workspacev1.Description](ctx, e.o.Asker, entity.KindWorkspace, t.workspaceID, &workspacev1.DescribeWorkspace{})
	t.workspaceSlug = workspace.GetWorkspace().GetSlug()
	return err
}

func stateOf(a *appv1.App) state {
	switch {
	case a.GetDisabledAt() != 0:
		return stateDisabled
	case a.GetHalted():
		return stateSuspended
	case a.GetFolderState() != appv1.FolderState_FOLDER_STATE_ACTIVE:
		return stateMissing
	case a.GetAccepted() == nil && a.GetRuntimeStatus() == appv1.RuntimeStatus_RUNTIME_STATUS_FAILED:
		return stateFailed
	case a.GetAsleep():
		return stateAsleep
	case a.GetAccepted() == nil:
		return stateStarting
	default:
		return stateServing
	}
}
