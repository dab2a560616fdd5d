// Package computer has the operations of the computers of workspaces that take several steps. The work of a computer is tasks (entity/computer).
package computer

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/service"
)

// errTaskEnded is a refusal, because a repetition cannot succeed.
var errTaskEnded = entity.Errorf(entity.NotFound, "the task has ended before the drive was changed")

// Describe describes the computer of a workspace, as the platform. Errors: not_found.
func Describe(r service.Request, workspaceID string) (*computerv1.Computer, error) {
	return service.SendAsPlatform[*computerv1.Computer](r, entity.KindComputer, workspaceID, &computerv1.DescribeComputer{})
}

// CancelTask cancels the task in progress of a computer; with a taskID only if the task has that id. It returns the id of the task that was
// cancelled; "" if there is none: a task that has ended meanwhile is no error.
func CancelTask(r service.Request, workspaceID, taskID string) (cancelled string, err error) {
	before, err := Describe(r, workspaceID)
	if err != nil {
		return "", err
	}
	id := before.GetTask().GetId()
	if id == "" || taskID != "" && taskID != id {
		return "", nil
	}
	after, err := service.Send[*computerv1.Computer](r, service.PlatformCommand(r, entity.KindComputer, workspaceID, &computerv1.CancelTask{TaskId: id}))
	if err != nil || after.GetFailed().GetTaskId() != id {
		return "", err
	}
	return id, nil
}

// RequireTask returns an error unless a task of a computer is in progress. It is for the last moment before the task changes something: the
// executor learns a moment later that the task was cancelled. Errors: not_found.
func RequireTask(ctx context.Context, asker entity.Asker, workspaceID, taskID string) error {
	state, err := entity.AskAsPlatform[*computerv1.Computer](ctx, asker, entity.KindComputer, workspaceID, &computerv1.DescribeComputer{})
	if err == nil && state.GetTask().GetId() != taskID {
		return errTaskEnded
	}
	return err
}
