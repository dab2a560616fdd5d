package drive

import (
	"context"

	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
)

// Locks returns the locks of the drive. The first call reads them from the disk and returns the error of reading. They stay in memory as
// long as the drive is open.
func (d *Drive) Locks() (*locks.Table, error) {
	d.loading.Lock()
	defer d.loading.Unlock()
	if d.table != nil {
		return d.table, nil
	}
	table, err := locks.Load(d, d.drives.log)
	if err == nil {
		d.table = table
	}
	return table, err
}

// DropLocks deletes the locks that a person holds on a workspace's drive, when the person has lost write access. It does nothing if the
// drive does not exist, and returns the errors of Open and of writing the locks.
func (d *Drives) DropLocks(ctx context.Context, workspaceID, userID string) error {
	drive, release, err := d.Open(ctx, workspaceID)
	if entity.HasCode(err, entity.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	table, err := drive.Locks()
	if err != nil {
		return err
	}
	return table.DeleteByCreator(userID)
}
