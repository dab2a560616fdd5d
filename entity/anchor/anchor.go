// Package anchor tells what becomes of a workspace's anchors by what happens on its drive.
//
//	rename of the path, or of a folder above it   the anchor moves along
//	the path is gone                              the anchor breaks
//	the path is there again                       a broken anchor is repaired
//
// A row of activity says where to look. What is there is asked of the drive as it is now, which may be ahead of the row:
// a path that was taken away and is there again breaks nothing. Rows may come again, also many of them: an anchor keeps the
// last that it followed, or that came before somebody bound it to its path, and follows no older one. Rows are compared by
// their seq alone: a clock may be set back between two of them.
package anchor

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Row is what a row of activity says of paths.
type Row struct {
	Kind           activityv1.Kind
	Seq            uint64
	Path, FromPath string
}

// Moves tells whether rows of a kind may concern anchors.
func Moves(k activityv1.Kind) bool {
	switch k {
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_DELETE, activityv1.Kind_KIND_RENAME,
		activityv1.Kind_KIND_CHANGED_SUMMARY, activityv1.Kind_KIND_RESTORE:
		return true
	default:
		return false
	}
}

// Parse reads a row as it is stored.
func Parse(stored activity.Stored) (Row, error) {
	var row struct {
		Seq   uint64
		Event struct {
			Path, FromPath string
		}
	}
	if len(stored) == 0 {
		return Row{}, fmt.Errorf("an empty row of activity")
	}
	if err := json.Unmarshal(stored.JSON(), &row); err != nil {
		return Row{}, fmt.Errorf("a row of activity: %w", err)
	}
	return Row{
		Kind: stored.Kind(), Seq: row.Seq, Path: row.Event.Path, FromPath: row.Event.FromPath,
	}, nil
}

// Step is a command that follows for an anchor.
type Step struct {
	AnchorID string
	Command  workspacev1.Command
}

// Follow tells what follows from a row for anchors. exists asks the drive; its error ends it.
func Follow(row Row, anchors []*workspacev1.Anchor, exists func(path string) (bool, error)) ([]Step, error) {
	var steps []Step
	for _, a := range anchors {
		command, err := follow(row, a, exists)
		if err != nil {
			return nil, err
		}
		if command != nil {
			steps = append(steps, Step{a.GetId(), command})
		}
	}
	return steps, nil
}

func follow(row Row, a *workspacev1.Anchor, exists func(path string) (bool, error)) (workspacev1.Command, error) {
	state := a.GetState()
	if state != workspacev1.AnchorState_ANCHOR_STATE_ACTIVE && state != workspacev1.AnchorState_ANCHOR_STATE_BROKEN {
		return nil, nil
	}
	if row.Seq > 0 && row.Seq <= a.GetSeq() {
		return nil, nil
	}
	active := state == workspacev1.AnchorState_ANCHOR_STATE_ACTIVE
	if row.Kind == activityv1.Kind_KIND_RENAME && active && within(a.GetPath(), row.FromPath) {
		return &workspacev1.MoveAnchor{
			AnchorId: a.GetId(), FromPath: a.GetPath(), ToPath: row.Path + strings.TrimPrefix(a.GetPath(), row.FromPath), Seq: row.Seq,
		}, nil
	}
	if !touched(row, a.GetPath()) {
		return nil, nil
	}
	there, err := exists(a.GetPath())
	switch {
	case err != nil:
		return nil, err
	case active && !there:
		return &workspacev1.BreakAnchor{AnchorId: a.GetId(), Path: a.GetPath(), Seq: row.Seq}, nil
	case !active && there:
		return &workspacev1.RepairAnchor{AnchorId: a.GetId(), Path: a.GetPath(), Seq: row.Seq}, nil
	}
	return nil, nil
}

// touched tells whether what is at a path may have come or gone.
func touched(row Row, path string) bool {
	switch row.Kind {
	case activityv1.Kind_KIND_RESTORE:
		return true
	case activityv1.Kind_KIND_RENAME:
		return within(path, row.Path) || within(path, row.FromPath)
	case activityv1.Kind_KIND_WRITE, activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_DELETE, activityv1.Kind_KIND_CHANGED_SUMMARY:
		return within(path, row.Path)
	default:
		return false
	}
}

// within tells whether a path is another or below it.
func within(path, folder string) bool {
	return folder != "" && (path == folder || strings.HasPrefix(path, folder+"/"))
}
