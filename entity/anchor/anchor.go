// Package anchor derives the commands that keep a workspace's anchors in step with its drive.
//
//	the path, or a folder above it, is renamed   MoveAnchor
//	the path no longer exists                    BreakAnchor
//	the path exists again                        RepairAnchor
//
// A row of activity only says which paths to look at; whether a path exists is looked up on the drive. The drive may be
// ahead of the row: a path that was removed and created again breaks nothing, nor does a row that leaves an entry at the
// path. Rows may be delivered again. Each anchor therefore stores the seq of the last row that it followed, or of the last
// row before it was bound to its path, and ignores rows up to it. Rows are ordered by seq and not by time, because a clock may
// be set back.
package anchor

import (
	"strings"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Row has the fields of a row of activity that concern anchors.
type Row struct {
	Kind           activityv1.Kind
	Seq            uint64
	Path, FromPath string
}

// Moves reports whether rows of a kind can concern anchors.
func Moves(k activityv1.Kind) bool {
	switch k {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_DELETE, activityv1.Kind_KIND_RENAME,
		activityv1.Kind_KIND_CHANGED_SUMMARY, activityv1.Kind_KIND_RESTORE:
		return true
	default:
		return false
	}
}

// Parse decodes a stored row. It fails if activity.Decode does.
func Parse(stored activity.Stored) (Row, error) {
	row, err := activity.Decode(stored)
	if err != nil {
		return Row{}, err
	}
	op := row.Operation
	return Row{Kind: op.GetKind(), Seq: row.Seq, Path: op.GetPath(), FromPath: op.GetFromPath()}, nil
}

// Step is a command that follows from a row for one anchor.
type Step struct {
	AnchorID string
	Command  workspacev1.Command
}

// Follow returns the commands that follow from a row for the anchors. exists reports whether the drive has a file or
// folder at a path. Follow stops at the first error of exists and returns it.
func Follow(row Row, anchors []*workspacev1.Anchor, exists func(path string) (bool, error)) ([]Step, error) {
	var steps []Step
	for _, a := range anchors {
		command, err := commandFor(row, a, exists)
		if err != nil {
			return nil, err
		}
		if command != nil {
			steps = append(steps, Step{a.GetId(), command})
		}
	}
	return steps, nil
}

// leaves reports whether the operation of a row has left an entry at a path.
func (r Row) leaves(path string) bool {
	switch r.Kind {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_RENAME:
		return r.Path == path
	default:
		return false
	}
}

// commandFor returns the command that follows from a row for one anchor, or nil. Orphaned anchors follow nothing.
func commandFor(row Row, a *workspacev1.Anchor, exists func(path string) (bool, error)) (workspacev1.Command, error) {
	state := a.GetState()
	if state != workspacev1.AnchorState_ANCHOR_STATE_ACTIVE && state != workspacev1.AnchorState_ANCHOR_STATE_BROKEN {
		return nil, nil
	}
	if row.Seq > 0 && row.Seq <= a.GetSeq() {
		return nil, nil
	}
	active := state == workspacev1.AnchorState_ANCHOR_STATE_ACTIVE
	if row.Kind == activityv1.Kind_KIND_RENAME && active && isAtOrBelow(a.GetPath(), row.FromPath) {
		return &workspacev1.MoveAnchor{
			AnchorId: a.GetId(), FromPath: a.GetPath(), ToPath: row.Path + strings.TrimPrefix(a.GetPath(), row.FromPath), Seq: row.Seq,
		}, nil
	}
	if !mayChange(row, a.GetPath()) {
		return nil, nil
	}
	if active && row.leaves(a.GetPath()) {
		// If the drive has no entry there any more, a later row says why. That may be a rename, which a broken anchor does not follow.
		return nil, nil
	}
	found, err := exists(a.GetPath())
	switch {
	case err != nil:
		return nil, err
	case active && !found:
		return &workspacev1.BreakAnchor{AnchorId: a.GetId(), Path: a.GetPath(), Seq: row.Seq}, nil
	case !active && found:
		return &workspacev1.RepairAnchor{AnchorId: a.GetId(), Path: a.GetPath(), Seq: row.Seq}, nil
	}
	return nil, nil
}

// mayChange reports whether the operation of a row may have created or removed the file or folder at a path.
func mayChange(row Row, path string) bool {
	switch row.Kind {
	case activityv1.Kind_KIND_RESTORE:
		return true
	case activityv1.Kind_KIND_RENAME:
		return isAtOrBelow(path, row.Path) || isAtOrBelow(path, row.FromPath)
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_DELETE, activityv1.Kind_KIND_CHANGED_SUMMARY:
		return isAtOrBelow(path, row.Path)
	default:
		return false
	}
}

// isAtOrBelow reports whether a path is folder itself or lies below it.
func isAtOrBelow(path, folder string) bool {
	return folder != "" && (path == folder || strings.HasPrefix(path, folder+"/"))
}
