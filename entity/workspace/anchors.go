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

// Limits of anchors.
const (
	MaxAnchors       = 1000
	MaxSettingsBytes = 64 << 10
	// An anchor that has been broken for so long is given up.
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
	errAnchorKind     = entity.Errorf(entity.InvalidRequest, "kind is none of the kinds of anchors")
	errSettings       = entity.Errorf(entity.InvalidRequest, "settings must be JSON of at most %d bytes", MaxSettingsBytes)
	errTooManyAnchors = entity.Errorf(entity.LimitReached, "a workspace has at most %d anchors", MaxAnchors)
	errPathTaken      = entity.Errorf(entity.AnchorConflict, "path has an anchor of this kind already")
)

// createAnchor. Errors: anchor_conflict, limit_reached.
func createAnchor(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.CreateAnchor,
) ([]workspacev1.Event, error) {
	if _, already := s.GetAnchors()[c.GetAnchorId()]; already {
		return nil, nil
	}
	if err := checkAnchor(c); err != nil {
		return nil, err
	}
	switch {
	case len(s.GetAnchors()) >= MaxAnchors:
		return nil, errTooManyAnchors
	case conflicting(s, c.GetAnchorId(), c.GetKind(), c.GetPath()) != nil:
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
	case needOfKind(c.GetKind()) == "":
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

// needOfKind is the capability that it takes to bind a kind of anchor anew; empty: there is no such kind.
func needOfKind(kind workspacev1.AnchorKind) string {
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

// conflicting is another anchor that keeps one of the kind off a path: an app's folder is one app's, an agent's one
// agent's. What is orphaned keeps nothing. Of several, it is the one that is active.
func conflicting(
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

func removeAnchor(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.RemoveAnchor,
) ([]workspacev1.Event, error) {
	if _, found := s.GetAnchors()[c.GetAnchorId()]; !found {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.AnchorRemoved{AnchorId: c.GetAnchorId(), At: call.At()}}, nil
}

// reanchor binds an anchor to a path that is there. Errors: not_found, forbidden for an anchor of a kind that the caller
// may not bind, anchor_conflict.
func reanchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Reanchor) ([]workspacev1.Event, error) {
	anchor, found := s.GetAnchors()[c.GetAnchorId()]
	if !found {
		return nil, errNoAnchor
	}
	if err := Check(call, s, entity.Changes(needOfKind(anchor.GetKind()))); err != nil {
		return nil, err
	}
	if err := checkPath(c.GetPath()); err != nil {
		return nil, err
	}
	switch {
	case anchor.GetState() == active && anchor.GetPath() == c.GetPath():
		return nil, nil
	case conflicting(s, anchor.GetId(), anchor.GetKind(), c.GetPath()) != nil:
		return nil, errPathTaken
	}
	return []workspacev1.Event{&workspacev1.AnchorRepaired{
		AnchorId: anchor.GetId(), Path: c.GetPath(), At: call.At(), Bound: true, Seq: c.GetSeq(),
	}}, nil
}

// moveAnchor follows a rename. What stood at the new path was overwritten, and so an anchor in the way is broken.
func moveAnchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.MoveAnchor) ([]workspacev1.Event, error) {
	if err := checkPath(c.GetToPath()); err != nil {
		return nil, err
	}
	anchor := standing(s, c.GetAnchorId(), c.GetFromPath())
	if anchor == nil || c.GetFromPath() == c.GetToPath() {
		return nil, nil
	}
	var events []workspacev1.Event
	other := conflicting(s, anchor.GetId(), anchor.GetKind(), c.GetToPath())
	if anchor.GetState() == active && other.GetState() == active {
		events = append(events, &workspacev1.AnchorBroken{AnchorId: other.GetId(), At: call.At(), Seq: c.GetSeq()})
	}
	return append(events, &workspacev1.AnchorMoved{
		AnchorId: anchor.GetId(), Path: c.GetToPath(), At: call.At(), Seq: c.GetSeq(),
	}), nil
}

func breakAnchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.BreakAnchor) ([]workspacev1.Event, error) {
	if standing(s, c.GetAnchorId(), c.GetPath()).GetState() != active {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.AnchorBroken{AnchorId: c.GetAnchorId(), At: call.At(), Seq: c.GetSeq()}}, nil
}

// repairAnchor tells that what a broken anchor names is back. Where another has taken its place meanwhile it stays broken.
func repairAnchor(call entity.Call, s *workspacev1.Workspace, c *workspacev1.RepairAnchor) ([]workspacev1.Event, error) {
	anchor := standing(s, c.GetAnchorId(), c.GetPath())
	if anchor.GetState() != broken || conflicting(s, anchor.GetId(), anchor.GetKind(), c.GetPath()).GetState() == active {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.AnchorRepaired{
		AnchorId: anchor.GetId(), Path: anchor.GetPath(), At: call.At(), Seq: c.GetSeq(),
	}}, nil
}

func repaired(a *workspacev1.Anchor, e *workspacev1.AnchorRepaired) {
	a.Path, a.State, a.BrokenAt, a.UpdatedAt = e.GetPath(), active, 0, e.GetAt()
	a.Seq = max(a.GetSeq(), e.GetSeq())
	if e.GetBound() {
		a.BoundAt = e.GetAt()
	}
}

func orphanAnchors(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	var events []workspacev1.Event
	for _, a := range sorted(s) {
		if a.GetState() == broken && call.At()-a.GetBrokenAt() >= orphanAfter.Milliseconds() {
			events = append(events, &workspacev1.AnchorOrphaned{AnchorId: a.GetId(), At: call.At()})
		}
	}
	return events, nil
}

// standing is the anchor if it still stands at a path: what the drive tells may be older than the last change here.
func standing(s *workspacev1.Workspace, id, path string) *workspacev1.Anchor {
	if a := s.GetAnchors()[id]; a.GetPath() == path {
		return a
	}
	return nil
}

// sorted are the anchors in the order of creation.
func sorted(s *workspacev1.Workspace) []*workspacev1.Anchor {
	return slices.SortedFunc(maps.Values(s.GetAnchors()), func(a, b *workspacev1.Anchor) int {
		return cmp.Compare(a.GetPosition(), b.GetPosition())
	})
}
