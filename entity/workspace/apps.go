package workspace

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	// FirstAppPort is the lowest port that is chosen for an app that names none.
	FirstAppPort = 20_000
	// MaxAppPorts is the greatest number of ports that are reserved for one app.
	MaxAppPorts = 16
)

var (
	errNoApp        = entity.Errorf(entity.NotFound, "no such app")
	errAppSlugTaken = entity.Errorf(entity.SlugTaken, "another app has the slug")
	errAppPath      = entity.Errorf(entity.PathInUse, "the folder already has an app")
	errAppPort      = entity.Errorf(entity.InvalidRequest, "port must be 1 to %d", app.MaxPort)
	errPortInUse    = entity.Errorf(entity.PortInUse, "another app has the port")
	errNoFreePort   = entity.Errorf(entity.LimitReached, "no port is free")
	errTooManyPorts = entity.Errorf(entity.LimitReached, "an app has at most %d ports at once; wait until the last change is complete", MaxAppPorts)
	errAppAnchor    = entity.Errorf(entity.InvalidRequest, "the anchor belongs to an app; unregister the app instead")
	errAppID        = entity.Errorf(entity.InvalidRequest, "appId is not the id of an app")
	errAppOrigin    = entity.Errorf(entity.Forbidden, "only the platform registers replicas of apps")
	errAppCreator   = entity.Errorf(entity.InvalidRequest, "createdByUserId is not a member of the workspace")
)

// registerApp binds a new app to its folder and reserves its slug and port. It has no effect if the anchor exists. The creator is the
// person behind the sender; for the workspace's own computer, the person who pays. Errors: invalid_request, forbidden, slug_taken,
// path_in_use, port_in_use, limit_reached, workspace_suspended, workspace_closed.
func registerApp(call entity.Call, s *workspacev1.Workspace, c *workspacev1.RegisterApp) ([]workspacev1.Event, error) {
	r := c.GetRegistration()
	if _, exists := s.GetAnchors()[r.GetAnchorId()]; exists {
		return nil, nil
	}
	// The platform registers no app that would not be suspended with the others.
	if err := checkAcceptsChanges(s); err != nil {
		return nil, err
	}
	if err := checkNewApp(call, s, r); err != nil {
		return nil, err
	}
	const kind = workspacev1.AnchorKind_ANCHOR_KIND_APP
	switch {
	case len(s.GetAnchors()) >= MaxAnchors:
		return nil, errTooManyAnchors
	case appBySlug(s, r.GetSlug()) != nil:
		return nil, errAppSlugTaken
	case conflictingAnchor(s, r.GetAnchorId(), kind, r.GetPath()) != nil:
		return nil, errAppPath
	}
	port, err := choosePort(s, r.GetRuntime().GetPort())
	if err != nil {
		return nil, err
	}
	r = proto.CloneOf(r)
	r.Runtime.Port, r.Position, r.CreatedByUserId = port, call.Version, appCreator(call, s, r)
	return []workspacev1.Event{&workspacev1.AnchorCreated{
		Anchor: &workspacev1.Anchor{
			Id: r.GetAnchorId(), Path: r.GetPath(), Kind: kind, State: active, CreatedAt: call.At(), UpdatedAt: call.At(),
			Position: call.Version, Seq: c.GetSeq(), App: &workspacev1.App{
				Id: r.GetAppId(), Slug: r.GetSlug(), Ports: []*workspacev1.AppPort{{Port: port, Reservation: call.Version}},
			},
		},
		Registration: r,
	}}, nil
}

func checkNewApp(call entity.Call, s *workspacev1.Workspace, r *appv1.Registration) error {
	switch {
	case r.GetAnchorId() == "":
		return errNoAnchorID
	case !app.IsID(r.GetAppId()):
		return errAppID
	}
	if err := app.CheckRegistration(r); err != nil {
		return err
	}
	switch {
	case r.GetOrigin() != nil && !entity.IsPlatform(call.Principal):
		return errAppOrigin
	case appByID(s, r.GetAppId()) != nil:
		return errAppSlugTaken
	case s.GetMembers()[appCreator(call, s, r)] == nil:
		return errAppCreator
	}
	call.Role = roleOf(call.Principal, s)
	return app.CheckGrants(call, r.GetRuntime().GetApiScopes())
}

// appCreator returns the person that a new app acts for.
func appCreator(call entity.Call, s *workspacev1.Workspace, r *appv1.Registration) string {
	switch {
	case entity.IsPlatform(call.Principal):
		return r.GetCreatedByUserId()
	case call.Principal.GetUserId() != "":
		return call.Principal.GetUserId()
	default:
		return s.GetBillingUserId()
	}
}

// choosePort returns the requested port, or the lowest free one from FirstAppPort on if none is requested. Errors: port_in_use,
// limit_reached.
func choosePort(s *workspacev1.Workspace, requested uint32) (uint32, error) {
	taken := map[uint32]bool{}
	for _, a := range s.GetAnchors() {
		for _, p := range a.GetApp().GetPorts() {
			taken[p.GetPort()] = true
		}
	}
	if requested != 0 {
		if taken[requested] {
			return 0, errPortInUse
		}
		return requested, nil
	}
	for port := uint32(FirstAppPort); port <= app.MaxPort; port++ {
		if !taken[port] {
			return port, nil
		}
	}
	return 0, errNoFreePort
}

// reserveAppPort reserves a port for an app, and offers it to the app, which releases it again if no update takes it. If the app has the
// port, the reservation gets a new number, so that an earlier decision of the app does not end it. Errors: not_found, invalid_request,
// port_in_use, limit_reached.
func reserveAppPort(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReserveAppPort) ([]workspacev1.Event, error) {
	anchor := appByID(s, c.GetAppId())
	switch {
	case anchor == nil:
		return nil, errNoApp
	case c.GetPort() == 0 || c.GetPort() > app.MaxPort:
		return nil, errAppPort
	}
	ports := slices.DeleteFunc(slices.Clone(anchor.GetApp().GetPorts()), func(p *workspacev1.AppPort) bool { return p.GetPort() == c.GetPort() })
	if len(ports) == len(anchor.GetApp().GetPorts()) {
		if _, err := choosePort(s, c.GetPort()); err != nil {
			return nil, err
		}
	}
	if len(ports) >= MaxAppPorts {
		return nil, errTooManyPorts
	}
	reserved := &workspacev1.AppPort{Port: c.GetPort(), Reservation: call.Version}
	return []workspacev1.Event{&workspacev1.AppPortsChanged{
		AnchorId: anchor.GetId(), Ports: append(ports, reserved), At: call.At(), AppId: c.GetAppId(), Reserved: reserved,
	}}, nil
}

// releaseAppPorts ends the reservations of an app up to a number, except the reservations of the ports that the app has named.
// Reservations with higher numbers were made after the decision of the app. It has no effect if the app does not have the first of the
// ports, so that an app always has one.
func releaseAppPorts(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReleaseAppPorts) []workspacev1.Event {
	anchor := appByID(s, c.GetAppId())
	ports := slices.DeleteFunc(slices.Clone(anchor.GetApp().GetPorts()), func(p *workspacev1.AppPort) bool {
		return p.GetPort() != c.GetPort() && !slices.Contains(c.GetFurther(), p.GetPort()) && p.GetReservation() <= c.GetReservation()
	})
	remains := slices.ContainsFunc(ports, func(p *workspacev1.AppPort) bool { return p.GetPort() == c.GetPort() })
	if !remains || len(ports) == len(anchor.GetApp().GetPorts()) {
		return nil
	}
	return []workspacev1.Event{&workspacev1.AppPortsChanged{AnchorId: anchor.GetId(), Ports: ports, At: call.At(), AppId: c.GetAppId()}}
}

func applyAppPortsChanged(a *workspacev1.Anchor, e *workspacev1.AppPortsChanged) {
	a.App = entity.ShallowCopy(a.GetApp())
	a.App.Ports = e.GetPorts()
}

// offerPort returns the command that tells an app of a reservation; none if the event has made none.
func offerPort(workspaceID string, e *workspacev1.AppPortsChanged) []entity.Reaction {
	if e.GetReserved() == nil {
		return nil
	}
	return []entity.Reaction{entity.Send(entity.KindApp, app.Identity(workspaceID, e.GetAppId()), &appv1.OfferPort{
		Port: e.GetReserved().GetPort(), Reservation: e.GetReserved().GetReservation(),
	})}
}

// removeApp removes the anchor of an app that was unregistered, and with it the reservations. It has no effect if there is none.
func removeApp(call entity.Call, s *workspacev1.Workspace, c *workspacev1.RemoveApp) []workspacev1.Event {
	anchor := appByID(s, c.GetAppId())
	if anchor == nil {
		return nil
	}
	return []workspacev1.Event{&workspacev1.AnchorRemoved{AnchorId: anchor.GetId(), At: call.At()}}
}

// replyPort returns the reservation of a port of an app.
func replyPort(s *workspacev1.Workspace, c *workspacev1.ReserveAppPort) *workspacev1.AppPort {
	for _, p := range appByID(s, c.GetAppId()).GetApp().GetPorts() {
		if p.GetPort() == c.GetPort() {
			return p
		}
	}
	return &workspacev1.AppPort{}
}

// foundApp returns the anchor of the app that a query names, or nil.
func foundApp(s *workspacev1.Workspace, c *workspacev1.FindApp) *workspacev1.Anchor {
	if c.GetSlug() != "" {
		return appBySlug(s, c.GetSlug())
	}
	return appByID(s, c.GetAppId())
}

// appBySlug returns the anchor of the app with a slug, and appByID the anchor of the app with an id; nil if there is none.
func appBySlug(s *workspacev1.Workspace, slug string) *workspacev1.Anchor {
	for _, a := range s.GetAnchors() {
		if a.GetApp() != nil && a.GetApp().GetSlug() == slug {
			return a
		}
	}
	return nil
}

func appByID(s *workspacev1.Workspace, id string) *workspacev1.Anchor {
	for _, a := range s.GetAnchors() {
		if a.GetApp() != nil && a.GetApp().GetId() == id {
			return a
		}
	}
	return nil
}

// appIDs returns the ids of the registered apps, in the order of registration.
func appIDs(s *workspacev1.Workspace) []string {
	var ids []string
	for _, a := range anchorsInOrder(s) {
		if a.GetApp() != nil {
			ids = append(ids, a.GetApp().GetId())
		}
	}
	return ids
}

// haltApps returns the commands that suspend apps with their workspace, or end their suspension.
func haltApps(workspaceID string, ids []string, halted bool) []entity.Reaction {
	var reactions []entity.Reaction
	for _, id := range ids {
		reactions = append(reactions, entity.Send(entity.KindApp, app.Identity(workspaceID, id), &appv1.HaltApp{Halted: halted}))
	}
	return reactions
}

// removeApps returns the commands that unregister the apps of a deleted workspace.
func removeApps(workspaceID string, ids []string, at int64) []entity.Reaction {
	var reactions []entity.Reaction
	for _, id := range ids {
		reactions = append(reactions, entity.Send(entity.KindApp, app.Identity(workspaceID, id), &appv1.RemoveApp{TaskId: taskID("remove", at)}))
	}
	return reactions
}

// tellApp returns the command that makes an app follow its anchor; none if the anchor has no app.
func tellApp(workspaceID, appID, path string, state workspacev1.AnchorState, version uint64) []entity.Reaction {
	if appID == "" {
		return nil
	}
	return []entity.Reaction{entity.Send(entity.KindApp, app.Identity(workspaceID, appID), &appv1.FollowAnchor{
		Path: path, State: folderStates[state], Version: version,
	})}
}

var folderStates = map[workspacev1.AnchorState]appv1.FolderState{
	active:   appv1.FolderState_FOLDER_STATE_ACTIVE,
	broken:   appv1.FolderState_FOLDER_STATE_BROKEN,
	orphaned: appv1.FolderState_FOLDER_STATE_ORPHANED,
}
