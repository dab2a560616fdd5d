package workspace

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	// MaxAnchors is the greatest number of anchors of a workspace.
	MaxAnchors = 1000
	// MaxSettingsBytes is the greatest length of the settings of an anchor, in bytes.
	MaxSettingsBytes = 64 << 10
	// orphanAfter is the time after which a broken anchor is orphaned.
	orphanAfter = 30 * 24 * time.Hour
)

const (
	active   = workspacev1.AnchorState_ANCHOR_STATE_ACTIVE
	broken   = workspacev1.AnchorState_ANCHOR_STATE_BROKEN
	orphaned = workspacev1.AnchorState_ANCHOR_STATE_ORPHANED
)

var (
	errNoAnchor       = entity.Errorf(entity.NotFound, "no such anchor")
	errNoAnchorID     = entity.Errorf(entity.InvalidRequest, "anchorId is empty")
	errAnchorKind     = entity.Errorf(entity.InvalidRequest, "kind is not a known kind of anchor")
	errSettings       = entity.Errorf(entity.InvalidRequest, "settings must be JSON of at most %d bytes", MaxSettingsBytes)
	errTooManyAnchors = entity.Errorf(entity.LimitReached, "a workspace has at most %d anchors", MaxAnchors)
	errPathTaken      = entity.Errorf(entity.AnchorConflict, "path already has an anchor of this kind")
)

// createAnchor binds a new anchor to a path. Errors: invalid_request, anchor_conflict, limit_reached.
func createAnchor(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.CreateAnchor,
) ([]workspacev1.Event, error) {
	if _, exists := s.GetAnchors()[c.GetAnchorId()]; exists {
		return nil, nil
	}
	if err := checkAnchor(c); err != nil {
		return nil, err
	}
	switch {
	case len(s.GetAnchors()) >= MaxAnchors:
		return nil, errTooManyAnchors
	case conflictingAnchor(s, c.GetAnchorId(), c.GetKind(), c.GetPath()) != nil:
		return nil, errPathTaken
	}
	return []workspacev1.Event{&workspacev1.AnchorCreated{Anchor: &workspacev1.Anchor{
		Id: c.GetAnchorId(), Path: c.GetPath(), Kind: c.GetKind(), State: active, Settings: c.GetSettings(),
		CreatedAt: call.At(), UpdatedAt: call.At(), Position: call.Version,
		Seq: c.GetSeq(),
	}}}, nil
}

func checkAnchor(c *workspacev1.CreateAnchor) error {
	settings := c.GetSettings()
	switch {
	case c.GetAnchorId() == "":
		return errNoAnchorID
	case capabilityFor(c.GetKind()) == "":
		return errAnchorKind
	case len(settings) > MaxSettingsBytes, !utf8.Valid(settings), len(settings) > 0 && !json.Valid(settings):
		return errSettings
	}
	return checkPath(c.GetPath())
}

func checkPath(path string) error {
	if err := entity.CheckPath(path); err != nil {
		return err
	}
	return nil
}

// capabilityFor returns the capability that is needed to bind an anchor of a kind to another path; empty for an unknown
// kind.
func capabilityFor(kind workspacev1.AnchorKind) string {
	switch kind {
	case workspacev1.AnchorKind_ANCHOR_KIND_APP, workspacev1.AnchorKind_ANCHOR_KIND_AGENT:
		return entity.Apps
	case workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH:
		return entity.Publish
	case workspacev1.AnchorKind_ANCHOR_KIND_SHARE_ROOT, workspacev1.AnchorKind_ANCHOR_KIND_SHARE_MOUNT:
		return entity.Share
	default:
		return ""
	}
}

// conflictingAnchor returns the anchor that prevents another anchor of the same kind from being bound to a path, or nil: a
// path has at most one app and at most one agent. Orphaned anchors do not conflict. If there are several, it returns the
// active one.
func conflictingAnchor(
	s *workspacev1.Workspace, id string, kind workspacev1.AnchorKind, path string,
) *workspacev1.Anchor {
	if kind != workspacev1.AnchorKind_ANCHOR_KIND_APP && kind != workspacev1.AnchorKind_ANCHOR_KIND_AGENT {
		return nil
	}
	var found *workspacev1.Anchor
	for _, a := range s.GetAnchors() {
		if a.GetId() == id || a.GetKind() != kind || a.GetPath() != path || a.GetState() == orphaned {
			continue
		}
		if a.GetState() == active {
			return a
		}
		found = a
	}
	return found
}

// removeAnchor removes an anchor. It has no effect if the anchor does not exist. Errors: invalid_request for the anchor of an app.
func removeAnchor(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.RemoveAnchor,
) ([]workspacev1.Event, error) {
	anchor, found := s.GetAnchors()[c.GetAnchorId()]
	switch {
	case !found:
		return nil, nil
	case anchor.GetApp() != nil:
		return nil, errAppAnchor
	}
	return []workspacev1.Event{&workspacev1.AnchorRemoved{AnchorId: c.GetAnchorId(), At: call.At()}}, nil
}

// reanchor binds an anchor to another path, which exists. Errors: not_found, forbidden if the sender lacks the capability
// for the kind of the anchor, invalid_request, anchor_conflict.
func reanchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Reanchor) ([]workspacev1.Event, error) {
	anchor, found := s.GetAnchors()[c.GetAnchorId()]
	if !found {
		return nil, errNoAnchor
	}
	if err := Check(call, s, entity.Changes(capabilityFor(anchor.GetKind()))); err != nil {
		return nil, err
	}
	if err := checkPath(c.GetPath()); err != nil {
		return nil, err
	}
	switch {
	case anchor.GetState() == active && anchor.GetPath() == c.GetPath():
		return nil, nil
	case conflictingAnchor(s, anchor.GetId(), anchor.GetKind(), c.GetPath()) != nil:
		return nil, errPathTaken
	}
	e := &workspacev1.AnchorRepaired{AnchorId: anchor.GetId(), Path: c.GetPath(), At: call.At(), Bound: true, Seq: c.GetSeq()}
	e.AppId, e.Version = followedBy(call, anchor, 0)
	return []workspacev1.Event{e}, nil
}

// moveAnchor follows a rename on the drive. The rename has replaced the file or folder at the new path, so it breaks an
// active anchor that conflicts there, and revokes the invitations of its app.
func moveAnchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.MoveAnchor) ([]workspacev1.Event, error) {
	if err := checkPath(c.GetToPath()); err != nil {
		return nil, err
	}
	anchor := anchorAt(s, c.GetAnchorId(), c.GetFromPath())
	if anchor == nil || c.GetFromPath() == c.GetToPath() {
		return nil, nil
	}
	var events, revoked []workspacev1.Event
	other := conflictingAnchor(s, anchor.GetId(), anchor.GetKind(), c.GetToPath())
	if anchor.GetState() == active && other.GetState() == active {
		events, revoked = append(events, brokenEvent(call, other, c.GetSeq())), revokeInvitationsOfApp(call, s, other)
	}
	e := &workspacev1.AnchorMoved{AnchorId: anchor.GetId(), Path: c.GetToPath(), At: call.At(), Seq: c.GetSeq()}
	if e.AppId, e.Version = followedBy(call, anchor, len(events)); e.AppId != "" {
		e.State = anchor.GetState()
	}
	return append(append(events, e), revoked...), nil
}

// breakAnchor records that the path of an active anchor no longer exists, and revokes the invitations of its app.
func breakAnchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.BreakAnchor) ([]workspacev1.Event, error) {
	anchor := anchorAt(s, c.GetAnchorId(), c.GetPath())
	if anchor.GetState() != active {
		return nil, nil
	}
	return append([]workspacev1.Event{brokenEvent(call, anchor, c.GetSeq())}, revokeInvitationsOfApp(call, s, anchor)...), nil
}

// brokenEvent returns the first event of a decision that breaks an anchor.
func brokenEvent(call entity.Call, anchor *workspacev1.Anchor, seq uint64) *workspacev1.AnchorBroken {
	e := &workspacev1.AnchorBroken{AnchorId: anchor.GetId(), At: call.At(), Seq: seq}
	if e.AppId, e.Version = followedBy(call, anchor, 0); e.AppId != "" {
		e.Path = anchor.GetPath()
	}
	return e
}

// followedBy returns the id of the app that follows an anchor, and the version of the event with an index in the decision. An anchor
// without an app has neither.
func followedBy(call entity.Call, anchor *workspacev1.Anchor, index int) (appID string, version uint64) {
	if anchor.GetApp() == nil {
		return "", 0
	}
	return anchor.GetApp().GetId(), call.Version + uint64(index)
}

// repairAnchor records that the path of a broken anchor exists again. The anchor stays broken if another active anchor has
// been bound to the path in the meantime.
func repairAnchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.RepairAnchor) ([]workspacev1.Event, error) {
	anchor := anchorAt(s, c.GetAnchorId(), c.GetPath())
	if anchor.GetState() != broken || conflictingAnchor(s, anchor.GetId(), anchor.GetKind(), c.GetPath()).GetState() == active {
		return nil, nil
	}
	e := &workspacev1.AnchorRepaired{AnchorId: anchor.GetId(), Path: anchor.GetPath(), At: call.At(), Seq: c.GetSeq()}
	e.AppId, e.Version = followedBy(call, anchor, 0)
	return []workspacev1.Event{e}, nil
}

func applyRepaired(a *workspacev1.Anchor, e *workspacev1.AnchorRepaired) {
	a.Path, a.State, a.BrokenAt, a.UpdatedAt = e.GetPath(), active, 0, e.GetAt()
	a.Seq = max(a.GetSeq(), e.GetSeq())
	if e.GetBound() {
		a.BoundAt = e.GetAt()
	}
}

// orphanAnchors orphans all anchors that have been broken for orphanAfter.
func orphanAnchors(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	var events []workspacev1.Event
	for _, a := range anchorsInOrder(s) {
		if a.GetState() == broken && call.At()-a.GetBrokenAt() >= orphanAfter.Milliseconds() {
			e := &workspacev1.AnchorOrphaned{AnchorId: a.GetId(), At: call.At()}
			if e.AppId, e.Version = followedBy(call, a, len(events)); e.AppId != "" {
				e.Path = a.GetPath()
			}
			events = append(events, e)
		}
	}
	return events, nil
}

// anchorAt returns the anchor with an id if it is bound to the path, or nil: the command may be older than the last
// change of the anchor.
func anchorAt(s *workspacev1.Workspace, id, path string) *workspacev1.Anchor {
	if a := s.GetAnchors()[id]; a.GetPath() == path {
		return a
	}
	return nil
}

// anchorsInOrder returns the anchors in the order of creation.
func anchorsInOrder(s *workspacev1.Workspace) []*workspacev1.Anchor {
	return slices.SortedFunc(maps.Values(s.GetAnchors()), func(a, b *workspacev1.Anchor) int {
		return cmp.Compare(a.GetPosition(), b.GetPosition())
	})
}

// reportAnchorsChecked completes the check of the command. If another check has been requested since, that one stays open,
// because the drive may have changed after this check read it.
func reportAnchorsChecked(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReportAnchorsChecked) []workspacev1.Event {
	if s.GetAnchorCheck() == 0 || s.GetAnchorCheck() != c.GetCheck() {
		return nil
	}
	return []workspacev1.Event{&workspacev1.AnchorsChecked{At: call.At()}}
}
