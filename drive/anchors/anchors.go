// Package anchors updates the anchors of workspaces when entries of their drives are moved or removed.
//
// A row of activity that moves or removes a path leads to commands for the anchors at that path. Before it sends them, the
// Follower looks up on the drive whether the path still exists. If the drive cannot be read, the Follower requests a check:
// the workspace opens a task, which calls Check later. A Follower keeps no state in memory, so any process that owns the
// workspace's partition can react to a row or run a check.
package anchors

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/anchor"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Drives looks up paths on the drives of workspaces.
type Drives interface {
	// Exists reports whether a path leads to a file or folder; "" is the root. It returns an error if the drive cannot be
	// read.
	Exists(ctx context.Context, workspaceID, path string) (bool, error)
}

// A Follower sends the commands that update anchors. It is safe for concurrent use, but the caller passes the rows of one
// workspace in their order, one at a time.
type Follower struct {
	drives Drives
	asker  entity.Asker
	log    *slog.Logger
}

// New returns a Follower.
func New(drives Drives, asker entity.Asker, log *slog.Logger) *Follower {
	return &Follower{drives: drives, asker: asker, log: log}
}

// React updates a workspace's anchors for a stored row of its activity. If the drive cannot be read, React requests a
// check and returns nil. It returns ctx's error and the errors of Asker except refusals; the caller then calls React
// again with the row.
func (f *Follower) React(ctx context.Context, workspaceID string, stored []byte) error {
	if !anchor.Moves(activity.Stored(stored).Kind()) {
		return nil
	}
	row, err := anchor.Parse(stored)
	if err != nil {
		f.log.Error("cannot parse a row of activity; anchors do not follow it", slog.String("workspace", workspaceID), slog.Any("error", err))
		return nil
	}
	err = f.follow(ctx, workspaceID, row)
	var unreadable *driveError
	if !errors.As(err, &unreadable) || ctx.Err() != nil {
		return err
	}
	f.log.Warn("cannot read a drive; its anchors are checked later", slog.String("workspace", workspaceID), slog.Any("error", err))
	_, err = f.ask(ctx, workspaceID, rowID(workspaceID, row, "check"), &workspacev1.RequestAnchorCheck{})
	return err
}

// Check updates all anchors of a workspace, as after a restore of its drive, and returns the command that completes the check.
// It returns the errors of the drive, ctx's error, and the errors of Asker except refusals; the task is then retried.
func (f *Follower) Check(ctx context.Context, workspaceID string, c *workspacev1.AnchorCheck) (proto.Message, error) {
	if err := f.follow(ctx, workspaceID, anchor.Row{Kind: activityv1.Kind_KIND_RESTORE}); err != nil {
		return nil, err
	}
	return &workspacev1.ReportAnchorsChecked{Check: c.GetCheck()}, nil
}

// A driveError means that a drive could not be read.
type driveError struct{ error }

func (e *driveError) Unwrap() error { return e.error }

// follow sends the commands that follow from a row for the workspace's anchors. It logs refused commands.
func (f *Follower) follow(ctx context.Context, workspaceID string, row anchor.Row) error {
	all, err := entity.ReplyAs[*workspacev1.Anchors](f.ask(ctx, workspaceID, "", &workspacev1.ListAnchors{}))
	if err != nil {
		return err
	}
	steps, err := anchor.Follow(row, all.GetAnchors(), func(path string) (bool, error) {
		exists, err := f.drives.Exists(ctx, workspaceID, path)
		if err != nil {
			return false, &driveError{err}
		}
		return exists, nil
	})
	if err != nil {
		return err
	}
	for _, s := range steps {
		_, err := f.ask(ctx, workspaceID, rowID(workspaceID, row, s.AnchorID), s.Command)
		if err != nil && !entity.IsRefusal(err) {
			return err
		}
		if err != nil {
			f.log.Warn("the command to update an anchor was refused", slog.String("workspace", workspaceID),
				slog.String("anchor", s.AnchorID), slog.Any("error", err))
		}
	}
	return nil
}

// rowID returns the id of the command that follows from a row for a subject, or "" for the row of a check, which has no seq.
// With the id, a row that is passed to React twice takes effect once, even if a person has changed the anchor in between.
func rowID(workspaceID string, row anchor.Row, subject string) string {
	if row.Seq == 0 {
		return ""
	}
	return "trail:" + workspaceID + ":" + strconv.FormatUint(row.Seq, 10) + ":" + subject
}

func (f *Follower) ask(ctx context.Context, workspaceID, id string, m proto.Message) (proto.Message, error) {
	return f.asker.Ask(ctx, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(), ID: id, Message: m,
	})
}
