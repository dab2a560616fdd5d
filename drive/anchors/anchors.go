// Package anchors has a workspace's anchors follow what happens on its drive.
//
// A row of activity that moves or removes a path leads to commands for the anchors at that path. The drive is asked what is
// there now. Where it cannot be asked, the workspace opens a task by which all of its anchors are checked later. Nothing is
// kept in memory: any process that leads the workspace's partition may react to a row or run a check.
package anchors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/anchor"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Drives tells what is on the drives of workspaces.
type Drives interface {
	Exists(ctx context.Context, workspaceID, path string) (bool, error)
}

// Asker sends commands to entities.
type Asker interface {
	Ask(ctx context.Context, c entity.Command) (proto.Message, error)
}

// Follower sends the commands by which anchors follow drives. It is safe for concurrent use; the rows of one workspace are
// passed to it in their order.
type Follower struct {
	drives Drives
	asker  Asker
	log    *slog.Logger
}

// New returns a follower.
func New(drives Drives, asker Asker, log *slog.Logger) *Follower {
	return &Follower{drives: drives, asker: asker, log: log}
}

// React follows a row of activity as it is stored. A drive that cannot be asked is no error: the workspace is asked to have
// its anchors checked later. Errors: those of Asker, and ctx's; the row is to be followed again.
func (f *Follower) React(ctx context.Context, workspaceID string, stored []byte) error {
	if !anchor.Moves(activity.Stored(stored).Kind()) {
		return nil
	}
	row, err := anchor.Parse(stored)
	if err != nil {
		f.log.Error("a row cannot be followed", slog.String("workspace", workspaceID), slog.Any("error", err))
		return nil
	}
	err = f.follow(ctx, workspaceID, row)
	var unasked *driveError
	if !errors.As(err, &unasked) || ctx.Err() != nil {
		return err
	}
	f.log.Warn("anchors wait for their drive", slog.String("workspace", workspaceID), slog.Any("error", err))
	_, err = f.ask(ctx, workspaceID, rowID(workspaceID, row, "check"), &workspacev1.RequestAnchorCheck{})
	return err
}

// Check looks at all anchors of a workspace, as after a restore, and returns the report that ends the check. Errors: those
// of the drive and of Asker, and ctx's; the check is to be made again.
func (f *Follower) Check(ctx context.Context, workspaceID string, c *workspacev1.AnchorCheck) (proto.Message, error) {
	if err := f.follow(ctx, workspaceID, anchor.Row{Kind: activityv1.Kind_KIND_RESTORE}); err != nil {
		return nil, err
	}
	return &workspacev1.ReportAnchorsChecked{Check: c.GetCheck()}, nil
}

// driveError is the error of a drive that did not tell what is on it.
type driveError struct{ error }

func (e *driveError) Unwrap() error { return e.error }

func (f *Follower) follow(ctx context.Context, workspaceID string, row anchor.Row) error {
	reply, err := f.ask(ctx, workspaceID, "", &workspacev1.ListAnchors{})
	if err != nil {
		return err
	}
	all, ok := reply.(*workspacev1.Anchors)
	if !ok {
		return fmt.Errorf("unexpected reply %T", reply)
	}
	steps, err := anchor.Follow(row, all.GetAnchors(), func(path string) (bool, error) {
		there, err := f.drives.Exists(ctx, workspaceID, path)
		if err != nil {
			return false, &driveError{err}
		}
		return there, nil
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
			f.log.Warn("an anchor does not follow", slog.String("workspace", workspaceID), slog.String("anchor", s.AnchorID), slog.Any("error", err))
		}
	}
	return nil
}

// rowID returns the id of the command that follows from a row for a subject; empty where there is no row. A row may be
// passed on twice, and a person may have undone since what followed from it the first time.
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
