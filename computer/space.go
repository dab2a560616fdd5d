package computer

import (
	"context"
	"errors"
	"log/slog"

	"github.com/atelier-run/atelier/entity"
)

// CheckSpace returns LimitReached if no process may run on the drive of a workspace, Unavailable if that cannot be determined, and ctx's
// error. drives.CheckSpace returns InsufficientStorage if the drive or the disk is full, and calls suspend, if it is not nil, around a decision
// during which the processes must not write.
func CheckSpace(ctx context.Context, drives interface {
	CheckSpace(ctx context.Context, workspaceID string, suspend func(bool)) error
}, workspaceID string, suspend func(bool), log *slog.Logger) error {
	err := drives.CheckSpace(ctx, workspaceID, suspend)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if refusal, is := errors.AsType[*entity.Error](err); is && refusal.Code == entity.InsufficientStorage {
		return entity.Errorf(entity.LimitReached, "%s", refusal.Message)
	}
	log.Error("cannot measure a drive", slog.String("workspace", workspaceID), slog.Any("error", err))
	return entity.Errorf(entity.Unavailable, "cannot measure the drive of workspace %s; try again", workspaceID)
}
