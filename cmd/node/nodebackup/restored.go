package nodebackup

import (
	"context"
	"time"

	"github.com/atelier-run/atelier/computer/archive"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A RestoredNode is a node without timers, tasks and server. It implements Target.
type RestoredNode struct {
	Drives *drive.Drives
	Asker  entity.Asker
	// Archive is an archive of the drives in the bucket of the backup.
	Archive *archive.Archive
	// Journal has the workspaces, in the partitions that Partition returns.
	Journal   *persistence.Store
	Partition func(identity string) persistence.Partition
	// Stop stops the node.
	Stop func(ctx context.Context) error
}

// RestoredReason is the reason of the tasks that a restore of the node cancels.
const RestoredReason = "the node was restored from a backup"

// RestoreDrive implements Target. It cancels a backup, restore or verification that was in progress.
func (n RestoredNode) RestoreDrive(
	ctx context.Context, workspaceID string, backup *computerv1.Backup, report func(done, total int64),
) (isKnown bool, err error) {
	if isKnown, err = n.hasWorkspace(workspaceID); err != nil || !isKnown {
		return isKnown, err
	}
	if err := n.Drives.Provision(ctx, workspaceID); err != nil {
		return true, err
	}
	_, err = n.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindComputer, Identity: workspaceID, Principal: entity.Platform(), Message: &computerv1.CancelTask{Reason: RestoredReason},
	})
	if err != nil && !entity.IsRefusal(err) { // other tasks continue when the node starts
		return true, err
	}
	return true, n.Archive.Load(ctx, workspaceID, backup.GetId(), backup, report)
}

// hasWorkspace reports whether the journal has a workspace, even a deleted one.
func (n RestoredNode) hasWorkspace(workspaceID string) (bool, error) {
	v, err := n.Journal.View()
	if err != nil {
		return false, err
	}
	defer v.Close()
	head, err := v.Head(n.Partition(workspaceID), persistence.Stream(entity.KindWorkspace+"/"+workspaceID))
	return head > 0, err
}

// stopTime limits the end of the node after a restore.
const stopTime = time.Minute

// Close implements Target.
func (n RestoredNode) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return n.Stop(ctx)
}
