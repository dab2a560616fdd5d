// Package computer runs the tasks of workspaces' computers and monitors the running computers.
//
//	entity/computer                             Fleet                    Driver, Archive
//	   Tasks ──actors' task executor──► Run ──────► Provision, Release, Save, Load, Remove
//	   ComputerProvisioned … ◄──Report*───┘
//	   RecordSample, ReportMissing ◄── Follow ────► Sample
//
// The rules in entity/computer decide which tasks a computer has. Fleet.Run runs one task and returns the command that
// reports its outcome. A task without a reported outcome runs again, also after a crash, so drivers and archives are
// idempotent.
//
// A task that fails with a temporary error is retried with exponential backoff; a task that is refused is reported as failed.
// Backups and restores, which may take hours, have a concurrency limit of their own and do not delay provisioning.
//
// # The flow of a backup
//
//  1. POST .../backups of the operator's API in package http sends the command BackUp to the computer's entity. The response
//     has the id of the task.
//  2. Decide of entity/computer returns TaskRequested, unless another task is open. Tasks of entity/computer declares the open
//     task, and the journal takes its row in one batch with the event.
//  3. The task executor of package actors, in the process that owns the workspace's partition, finds the row and calls
//     Fleet.Run, within the limit of Kinds.
//  4. Fleet.Run calls Fleet.runTask, which calls Archive.Save. computer/archive exports the drive with drive.Drive.Export, while
//     the drive is in use, compresses it and streams it to the bucket. The object has the workspace's and the backup's ids as
//     its name, so that a repetition replaces it.
//  5. Fleet.Run returns ReportBackedUp with size, hash and number of entries. If Save fails it returns an error, and the
//     executor runs the task again, until Fleet.Run gives up and returns ReportFailed. Save refuses a bucket that cannot be
//     used, and Fleet.Run then returns ReportFailed at once. The entity drops the failed backup, because an attempt may have
//     stored it and lost the answer of the bucket.
//  6. The executor sends the report to the entity. Decide returns BackupTaken, which records the backup and completes the task,
//     and names the oldest backup as dropped if there are too many. If the task has ended in the meantime, it drops the new
//     backup.
//  7. Tasks declares a task for each dropped backup. Fleet.Run calls Fleet.removeBackup for it, which calls Archive.Remove and
//     returns ReportRemoved.
//
// A restore takes the same way with the command Restore, Archive.Load and drive.Drive.Restore, and a verification with
// VerifyBackup, Archive.Verify and ReportVerified. A scheduled backup begins with the command BackUpOnSchedule of a timer;
// Fleet.runTask then compares the activity's sequence with the sequence of the last good backup, and returns ReportCovered if nothing was
// recorded in between. CancelTask ends the task: its row disappears with the event, and the executor cancels the context of
// Fleet.Run.
package computer

import (
	"context"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// A Driver provisions and releases computers. Drivers that run processes are a Host as well. All methods are idempotent and return soon after ctx is canceled. They may be
// called concurrently for different workspaces.
//
// If entity.IsRefusal reports that an error is a refusal, the task fails; after any other error it is retried.
type Driver interface {
	// Provision provides a workspace with a computer of the given name and with its drive. It replaces a computer of
	// another name.
	Provision(ctx context.Context, workspaceID, vmName string) (Machine, error)
	// Sample measures a computer. Unavailable means that it could not be measured now; any other error means that the
	// computer was not found.
	Sample(ctx context.Context, workspaceID string) (*computerv1.Sample, error)
	// Release gives up a workspace's computer, ends its processes and keeps its drive. It returns nil if the workspace has no
	// computer.
	Release(ctx context.Context, workspaceID string) error
	// Recover ends everything that an earlier process of the node has left on the machine, and returns it. It is called once,
	// before the other methods.
	Recover(ctx context.Context) ([]Leftover, error)
}

// A Machine describes a provisioned computer.
type Machine struct {
	VMName string
	// ImageRef is the reference of the image that the computer was created from.
	ImageRef string
}

// An Archive stores backups of drives. Errors are like a Driver's. Save and Load call report, from one goroutine at a
// time, with the bytes processed so far and the total, which may be an estimate.
type Archive interface {
	// Sequence returns the seq of the last row of a workspace's activity.
	Sequence(ctx context.Context, workspaceID string) (uint64, error)
	// Save stores a backup of a workspace's drive, durably. It replaces a backup with the same id.
	Save(ctx context.Context, workspaceID, backupID string, report func(done, total int64)) (*computerv1.Backup, error)
	// Load replaces the content of a drive by a backup, once for each task id. It verifies the whole backup first: after an
	// error the drive is unchanged.
	Load(ctx context.Context, workspaceID, taskID string, backup *computerv1.Backup, report func(done, total int64)) error
	// Verify reads a backup whole. failure says how the backup differs from the saved drive; it is empty if the backup is good. After
	// an error the result is unknown.
	Verify(ctx context.Context, backup *computerv1.Backup, report func(done, total int64)) (failure string, err error)
	// Remove deletes a backup. It returns nil if the backup does not exist.
	Remove(ctx context.Context, workspaceID string, backup *computerv1.Backup) error
}
