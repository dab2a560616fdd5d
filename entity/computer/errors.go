package computer

import (
	"time"

	"github.com/atelier-run/atelier/entity"
)

var (
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a computer")
	errTaskID         = entity.Errorf(entity.InvalidRequest, "taskId must have 1 to %d bytes", maxID)
	errBackupID       = entity.Errorf(entity.InvalidRequest, "backupId must have 1 to %d bytes", maxID)
	errNoBackup       = entity.Errorf(entity.NotFound, "no such backup")
	errBusy           = later(5*time.Second, "the computer is busy with another task")
	errNotThere       = later(5*time.Second, "the computer is not ready")
)

// maxID bounds the ids that arrive inside commands.
const maxID = 64

func later(after time.Duration, message string) *entity.Error {
	e := entity.Errorf(entity.Unavailable, "%s", message)
	e.RetryAfter = after
	return e
}

func checkID(id string, refusal *entity.Error) error {
	if id == "" || len(id) > maxID {
		return refusal
	}
	return nil
}
