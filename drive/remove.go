package drive

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Remove deletes a file, or a folder with all entries below it, by one rename to the trash. The sweep frees the space in
// the background. It returns NotFound or Linked; the errors of the change's functions; and Unavailable. After
// Unavailable, or a failed sync of the disk, the change may have been made; after other errors nothing was changed.
func (d *Drive) Remove(ctx context.Context, path string, c Change) (err error) {
	defer func() { d.drives.metrics.countOperation("delete", err) }()
	if err := validateChangePath(path); err != nil {
		return err
	}
	a, err := d.begin(c)
	if err != nil {
		return err
	}
	defer d.sweep()
	defer a.end()
	if err := a.lock(ctx, path); err != nil {
		return err
	}
	at, err := d.locateExisting(path)
	if err != nil {
		return err
	}
	defer at.close()
	if err := a.checkGuard(removed(path)); err != nil {
		return err
	}
	op := d.operation(activityv1.Kind_KIND_DELETE, at.entryKind(), path, c.Author)
	if op.Count, err = d.count(ctx, at, path); err != nil {
		return fromOS(err)
	}
	return a.commit(op, 0, func() (bool, error) {
		if err := at.parent.discard(at.name, d.staging, a.trashName()); err != nil {
			return false, err
		}
		return true, errors.Join(at.parent.Sync(), d.syncStaging())
	})
}

// count returns the number of entries of the folder at a path, itself included, or 0 for a file. It does not count the entries of
// folders that this process may not read: they are deleted nevertheless.
func (d *Drive) count(ctx context.Context, at *location, path string) (total uint64, err error) {
	if !at.isFolder() {
		return 0, nil
	}
	release, err := d.drives.countSlots.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	err = d.walk(path, &walk{ctx: ctx, enter: func(string, int) (bool, error) {
		total++
		return true, nil
	}, file: func(handle, string, string, *unix.Stat_t, int) error {
		total++
		return nil
	}, unreadable: skipUnreadable})
	if errors.Is(err, fs.ErrPermission) { // of the folder itself
		return 1, nil
	}
	return total, err
}

// sweep starts deleting, in the background, the entries of tmp that belong to no unfinished operation.
func (d *Drive) sweep() { d.drives.sweep(d.workspaceID) }

// sweepLeftovers starts a sweep if tmp has any entry.
func (d *Drive) sweepLeftovers() {
	folder, err := d.staging.openFolder(".")
	if err != nil {
		return // the next operation with leftovers starts a sweep
	}
	defer folder.Close()
	if names, _ := folder.Readdirnames(1); len(names) > 0 {
		d.sweep()
	}
}

// sweep starts the sweeper of a drive, or has the running one sweep once more. The sweeper reserves descriptors after
// it has a slot, so that a drive that only waits to be swept can be evicted.
func (d *Drives) sweep(workspaceID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, running := d.sweeping[workspaceID]; running {
		d.sweeping[workspaceID] = true
		return
	}
	if d.closed {
		return
	}
	d.sweeping[workspaceID] = true
	d.background.Go(func() { d.sweepUntilClean(d.running, workspaceID) })
}

func (d *Drives) sweepUntilClean(ctx context.Context, workspaceID string) {
	select {
	case d.sweepSlots <- struct{}{}:
		defer func() { <-d.sweepSlots }()
	case <-ctx.Done():
	}
	for d.takeSweep(ctx, workspaceID) {
		err := d.sweepOnce(ctx, workspaceID)
		for errors.Is(err, errInUse) && ctx.Err() == nil {
			err = d.sweepOnce(ctx, workspaceID)
		}
		if err != nil && ctx.Err() == nil {
			d.log.Error("cannot delete leftovers of drive operations; the next sweep tries again", "workspace", workspaceID, "error", err)
		}
	}
}

// takeSweep reports whether a sweep was requested since the last one. If not, it unregisters the sweeper.
func (d *Drives) takeSweep(ctx context.Context, workspaceID string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.sweeping[workspaceID] || ctx.Err() != nil {
		delete(d.sweeping, workspaceID)
		return false
	}
	d.sweeping[workspaceID] = false
	return true
}

func (d *Drives) sweepOnce(ctx context.Context, workspaceID string) error {
	drive, release, err := d.acquire(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	if !drive.recovered.Load() {
		if err := drive.recoverOnce(ctx); err != nil {
			return err
		}
	}
	return drive.deleteLeftovers(ctx)
}

// deleteLeftovers deletes the entries of tmp that belong to no unfinished operation, and adopts the markers of images (images.go). It moves the subfolders of a folder up
// to tmp before it deletes them, so that it neither recurses nor holds more descriptors for a deeper tree. It returns the
// errors of the entries that it could not delete, which stay for the next sweep.
func (d *Drive) deleteLeftovers(ctx context.Context) error {
	for {
		progress, failed := false, error(nil)
		folder, err := d.staging.openFolder(".")
		if err != nil {
			return err
		}
		err = folder.eachName(func(name string) error {
			if ctx.Err() != nil || d.isInFlight(strings.TrimSuffix(name, trashSuffix)) {
				return ctx.Err()
			}
			if image, isMarker := d.isMarker(name); isMarker {
				d.drives.adoptMarkers([]imageName{image})
				return nil
			}
			removed, err := d.deleteLeftover(ctx, name)
			progress = progress || removed
			failed = errors.Join(failed, err)
			return nil
		})
		if err = errors.Join(err, folder.Close()); err != nil {
			return err
		}
		if !progress {
			return failed
		}
		d.drives.quota.Freed(d.workspaceID)
	}
}

// deleteLeftover deletes an entry of tmp, or moves its subfolders to tmp. It reports whether it changed anything.
func (d *Drive) deleteLeftover(ctx context.Context, name string) (changed bool, err error) {
	st, err := d.staging.stat(name)
	if err != nil || st == nil {
		return false, err
	}
	if !isFolder(st) {
		err := d.staging.unlink(name, 0)
		return err == nil, err
	}
	changed, err = d.empty(ctx, name, st)
	if err != nil {
		return changed, err
	}
	err = d.staging.unlink(name, unix.AT_REMOVEDIR)
	return changed || err == nil, err
}

// empty deletes the entries of a folder of tmp, but moves its subfolders up to tmp. It reports whether it changed anything.
// Processes may have left folders without permissions for their owner; empty changes the mode of such a folder.
func (d *Drive) empty(ctx context.Context, name string, st *unix.Stat_t) (changed bool, err error) {
	if st.Mode&unix.S_IRWXU != unix.S_IRWXU {
		if err := d.staging.makeAccessible(name); err != nil {
			return false, err
		}
	}
	folder, err := d.staging.openFolder(name)
	if err != nil {
		return false, err
	}
	defer folder.Close()
	var failed error
	err = folder.eachName(func(child string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := d.deleteOrMoveUp(folder, child)
		changed = changed || err == nil
		failed = errors.Join(failed, err)
		return nil
	})
	return changed, errors.Join(err, failed)
}

// deleteOrMoveUp deletes an entry of a folder of tmp, or moves it up to tmp if it is a folder that is not empty.
func (d *Drive) deleteOrMoveUp(folder handle, name string) error {
	st, err := folder.stat(name)
	if err != nil || st == nil {
		return err
	}
	if !isFolder(st) {
		return folder.unlink(name, 0)
	}
	if folder.unlink(name, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	// Moving a folder to another parent needs write permission on the folder itself.
	if st.Mode&unix.S_IRWXU != unix.S_IRWXU {
		if err := folder.makeAccessible(name); err != nil {
			return err
		}
	}
	return folder.rename(name, d.staging, newOperationID()+trashSuffix, false)
}

// isInFlight reports whether an id belongs to an unfinished operation of this process.
func (d *Drive) isInFlight(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, found := d.inFlight[id]
	return found
}

// freeSpace frees the space of a staged entry but keeps its inode. An intent may name the inode: as long as it exists, no
// other file can get the same number and be mistaken for it.
func (d *Drive) freeSpace(ctx context.Context, name string) {
	drive, release, err := d.drives.acquire(ctx, d.workspaceID)
	if err != nil {
		return // the space is freed when the outcome is known
	}
	defer release()
	if err := drive.truncateStaged(ctx, name); err != nil {
		d.drives.log.Error("cannot free the space of staged content", "workspace", d.workspaceID, "error", err)
	}
	drive.sweep()
}

// truncateStaged deletes the content of a staged file or folder.
func (d *Drive) truncateStaged(ctx context.Context, name string) error {
	st, err := d.staging.stat(name)
	if err != nil || st == nil {
		return err
	}
	if isFolder(st) {
		_, err := d.empty(ctx, name, st)
		return err
	}
	f, err := d.tmp.OpenFile(name, writeOnly, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Close())
}
