package drive

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// sweep removes in the background whatever in tmp belongs to no running operation.
func (d *Drive) sweep() { d.drives.sweep(d.workspaceID) }

// sweepLeftovers does so where there is something.
func (d *Drive) sweepLeftovers() {
	folder, err := d.aside.folder(".")
	if err != nil {
		return // the next operation that leaves something has it swept
	}
	defer folder.Close()
	if names, _ := folder.Readdirnames(1); len(names) > 0 {
		d.sweep()
	}
}

// sweep runs one sweeper for each drive. The sweeper reserves descriptors only once it has room to remove, so that a drive
// that waits for it can be evicted.
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
	case d.removing <- struct{}{}:
		defer func() { <-d.removing }()
	case <-ctx.Done():
	}
	for d.sweepAgain(ctx, workspaceID) {
		err := d.sweepOnce(ctx, workspaceID)
		for errors.Is(err, errInUse) && ctx.Err() == nil {
			err = d.sweepOnce(ctx, workspaceID)
		}
		if err != nil && ctx.Err() == nil {
			d.log.Error("cannot remove leftovers now", "workspace", workspaceID, "error", err)
		}
	}
}

func (d *Drives) sweepAgain(ctx context.Context, workspaceID string) bool {
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
	return drive.removeLeftovers(ctx)
}

// removeLeftovers removes the entries of tmp that belong to no running operation. It takes the folders of a folder up to
// tmp before it removes them, so that it neither recurses nor holds more descriptors however deep a tree is. What cannot
// be removed stays for the next sweep.
func (d *Drive) removeLeftovers(ctx context.Context) error {
	for {
		progress, failed := false, error(nil)
		folder, err := d.aside.folder(".")
		if err != nil {
			return err
		}
		err = folder.names(func(name string) error {
			if ctx.Err() != nil || d.isLive(strings.TrimSuffix(name, trashSuffix)) {
				return ctx.Err()
			}
			removed, err := d.removeAside(ctx, name)
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
	}
}

// removeAside removes an entry of tmp. It returns whether it changed anything.
func (d *Drive) removeAside(ctx context.Context, name string) (changed bool, err error) {
	st, err := d.aside.stat(name)
	if err != nil || st == nil {
		return false, err
	}
	if !isFolder(st) {
		err := d.aside.unlink(name, 0)
		return err == nil, err
	}
	changed, err = d.empty(ctx, name, st)
	if err != nil {
		return changed, err
	}
	err = d.aside.unlink(name, unix.AT_REMOVEDIR)
	return changed || err == nil, err
}

// empty removes what a folder of tmp holds, but takes its folders up to tmp for a sweep to remove. It returns whether it
// changed anything. Processes may have left folders that not even their owner may empty.
func (d *Drive) empty(ctx context.Context, name string, st *unix.Stat_t) (changed bool, err error) {
	if st.Mode&unix.S_IRWXU != unix.S_IRWXU {
		if err := d.aside.allow(name); err != nil {
			return false, err
		}
	}
	folder, err := d.aside.folder(name)
	if err != nil {
		return false, err
	}
	defer folder.Close()
	var failed error
	err = folder.names(func(child string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := d.takeOut(folder, child)
		changed = changed || err == nil
		failed = errors.Join(failed, err)
		return nil
	})
	return changed, errors.Join(err, failed)
}

// takeOut removes an entry of a folder of tmp, or takes it up to tmp where it is a folder that is not empty.
func (d *Drive) takeOut(folder handle, name string) error {
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
	// The kernel wants the right to write to a folder that comes to another parent.
	if st.Mode&unix.S_IRWXU != unix.S_IRWXU {
		if err := folder.allow(name); err != nil {
			return err
		}
	}
	return folder.rename(name, d.aside, newOperationID()+trashSuffix, false)
}

func (d *Drive) isLive(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, live := d.live[id]
	return live
}

// freeSpace frees the space of what was made aside, and keeps its inode, which an intent may name: while it exists no
// other file can be taken for it.
func (d *Drive) freeSpace(ctx context.Context, name string) {
	drive, release, err := d.drives.acquire(ctx, d.workspaceID)
	if err != nil {
		return // the space stays taken until the outcome is known
	}
	defer release()
	if err := drive.hollow(ctx, name); err != nil {
		d.drives.log.Error("cannot free space", "workspace", d.workspaceID, "error", err)
	}
	drive.sweep()
}

func (d *Drive) hollow(ctx context.Context, name string) error {
	st, err := d.aside.stat(name)
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
