// Package computer carries out what is to be done to the computers of workspaces, and looks after those that run.
//
//	entity/computer                             Fleet                    Driver, Archive
//	   Tasks ──actors' task executor──► Run ──────► Provision, Release, Save, Load, Remove
//	   ComputerProvisioned … ◄──Report*───┘
//	   RecordSample, ReportMissing ◄── Follow ────► Sample
//
// The rules decide what a computer's tasks are; the tasks of package actors are run by Run, which returns the command
// that reports the outcome. What was not reported is run again, after a crash too. So everything below is idempotent.
//
// What may succeed later is tried again, with pauses that grow; what cannot is reported as failed. Backups and restores,
// which may take minutes, have a limit of their own and do not delay provisioning.
package computer

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Driver makes computers and gives them up. What is done twice is done once. All methods end soon after ctx does, and
// may be called at the same time for different workspaces.
//
// An *entity.Error with a code other than Unavailable and Internal says that trying again does not help; after any other
// error it is tried again.
type Driver interface {
	// Provision makes a workspace's computer of a name ready, with its drive, in place of one of another name. Processes
	// that the workspace's computer is to run are run by the one that was provisioned last.
	Provision(ctx context.Context, workspaceID, vmName string) (Machine, error)
	// Sample measures a computer. An error says that it was not found.
	Sample(ctx context.Context, workspaceID string) (*computerv1.Sample, error)
	// Release gives a workspace's computer up. Its drive stays. One that is not there was released before.
	Release(ctx context.Context, workspaceID string) error
}

// A Machine is a computer that was made.
type Machine struct {
	VMName string
	// ImageRef names what it was made from.
	ImageRef string
}

// Archive keeps backups of drives. Errors are like a Driver's.
type Archive interface {
	// Save takes a backup of a workspace's drive. One of the same id that is there already is replaced.
	Save(ctx context.Context, workspaceID, backupID string) (*computerv1.Backup, error)
	// Load puts a backup in the place of a drive, once for a task. It verifies all of it before it replaces anything:
	// after an error the drive is as it was.
	Load(ctx context.Context, workspaceID, taskID string, backup *computerv1.Backup) error
	// Remove forgets a backup. One that is not there was removed before.
	Remove(ctx context.Context, workspaceID string, backup *computerv1.Backup) error
}

// Asker reaches computers' entities; see entity/computer.
type Asker interface {
	Ask(ctx context.Context, c entity.Command) (proto.Message, error)
}
