package drive

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// Open returns a workspace's drive for one operation. Operations that an earlier process left unfinished, on this machine or
// on another that hosted the drive, are completed or undone first. The caller calls release when the operation has
// ended, and uses neither the drive nor a Folder of it afterwards; files that it opened stay usable.
//
// Open returns Unavailable if the drive is not provisioned, cannot be recovered now, or too many drives are in use.
func (d *Drives) Open(ctx context.Context, workspaceID string) (_ *Drive, release func(), err error) {
	drive, release, err := d.acquire(ctx, workspaceID)
	if err != nil {
		return nil, nil, err
	}
	if !drive.recovered.Load() {
		if err := drive.recoverOnce(ctx); err != nil {
			release()
			return nil, nil, err
		}
		drive.sweepLeftovers()
	}
	return drive, release, nil
}

// Recover makes a workspace's drive and its sequence agree after a crash: it completes or abandons each intent that belongs
// to no running operation. Open does the same; calling Recover first saves the first operation the wait. Recover does
// nothing if the drive is not provisioned. It returns Unavailable if the activity does not answer or the disk cannot be
// read; operations on the drive then fail until a later attempt succeeds.
func (d *Drives) Recover(ctx context.Context, workspaceID string) error {
	drive, release, err := d.acquire(ctx, workspaceID)
	if errors.Is(err, errUnprovisioned) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if err := drive.recover(ctx); err != nil {
		return err
	}
	drive.sweepLeftovers()
	return nil
}

// recoverPage limits the workspaces that RecoverAll lists at once.
const recoverPage = 64

// RecoverAll calls Recover for each workspace that list returns, one after the other, until list returns no more or ctx ends.
// list returns at most limit workspaces, in the order of their ids, beginning after one id. RecoverAll logs errors; a drive that
// cannot be recovered does not prevent the recovery of the others, and is recovered again when it is opened.
func (d *Drives) RecoverAll(ctx context.Context, list func(after string, limit int) ([]string, error)) {
	for after := ""; ctx.Err() == nil; {
		page, err := list(after, recoverPage)
		if err != nil && ctx.Err() == nil {
			d.log.Error("cannot list the drives with unfinished operations", slog.Any("error", err))
		}
		if err != nil || len(page) == 0 {
			return
		}
		for _, id := range page {
			err := d.Recover(ctx, id)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				d.log.Error("cannot recover a drive; it is recovered when it is opened", slog.String("workspace", id), slog.Any("error", err))
			default:
				d.log.Info("recovered a drive", slog.String("workspace", id))
			}
		}
		after = page[len(page)-1]
	}
}

// acquire reserves the descriptors of one operation and returns the drive with its files open. It does not recover the drive.
func (d *Drives) acquire(ctx context.Context, workspaceID string) (_ *Drive, release func(), err error) {
	if err := validateWorkspaceID(workspaceID); err != nil {
		return nil, nil, err
	}
	r, err := d.cache.reserve(ctx, workspaceID)
	if err != nil {
		return nil, nil, err
	}
	drive := r.drive
	release = sync.OnceFunc(func() { d.cache.release(r) })
	if err := d.awaitFiles(r); err != nil {
		release()
		return nil, nil, err
	}
	return drive, release, nil
}

// awaitFiles opens the files of a reserved drive, or waits until the reservation that has to open them has done so.
func (d *Drives) awaitFiles(r *reservation) error {
	if r.mustOpen {
		err := r.drive.openFiles()
		d.cache.finishOpening(r, err)
		return err
	}
	d.cache.mu.Lock()
	opening := r.drive.opening
	d.cache.mu.Unlock()
	if opening != nil {
		<-opening // takes a few system calls
	}
	d.cache.mu.Lock()
	defer d.cache.mu.Unlock()
	switch {
	case r.drive.isOpen:
		return nil
	case r.drive.openError != nil:
		return r.drive.openError
	}
	return errClosing
}

// openFiles opens the files that an open drive holds, driveDescriptors of them. It returns errUnprovisioned if a folder of
// the drive is missing.
func (d *Drive) openFiles() (err error) {
	defer func() {
		if err == nil {
			return
		}
		_ = errors.Join(d.closeFiles()...) // the error of opening is the one to report
		d.forgetFiles()
		if errors.Is(err, fs.ErrNotExist) {
			err = errUnprovisioned
		}
		err = fromOS(err)
	}()
	home, err := d.drives.root.OpenRoot(d.workspaceID)
	if err != nil {
		return err
	}
	defer home.Close()
	files, err := openTree(home, "files")
	if err != nil {
		return err
	}
	d.setTree(files)
	if d.tmp, err = home.OpenRoot("tmp"); err != nil {
		return err
	}
	d.staging.File, err = d.tmp.Open(".")
	return err
}

// closeFiles closes the files that openFiles has opened.
func (d *Drive) closeFiles() (errs []error) {
	if d.tmp != nil {
		errs = append(errs, d.tmp.Close())
	}
	if d.staging.File != nil {
		errs = append(errs, d.staging.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tree != nil {
		errs = append(errs, d.tree.close())
	}
	return errs
}

// forgetFiles clears the fields of the closed files, so that openFiles can set them again. The drive is not in use.
func (d *Drive) forgetFiles() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tmp, d.staging, d.tree, d.table = nil, handle{}, nil, nil
}

// A tree is the open root folder of a drive's files, opened twice: reads go through inside, which follows links but not out
// of the tree; changes go through files, which follows none.
type tree struct {
	inside *os.Root
	files  handle
	// uses counts the callers of useTree. The drive's mu guards it. A replaced tree is closed by its last user.
	uses     int
	replaced bool
}

func openTree(parent *os.Root, name string) (_ *tree, err error) {
	t := &tree{}
	if t.inside, err = parent.OpenRoot(name); err != nil {
		return nil, err
	}
	if t.files.File, err = t.inside.Open("."); err != nil {
		return nil, errors.Join(err, t.inside.Close())
	}
	return t, nil
}

func (t *tree) close() error { return errors.Join(t.inside.Close(), t.files.Close()) }

// useTree returns the drive's current tree. The tree stays open until done is called, even if a restore replaces it.
func (d *Drive) useTree() (t *tree, done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t = d.tree
	t.uses++
	return t, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		t.uses--
		d.closeReplaced(t)
	}
}

// setTree makes t the drive's tree. The tree that it replaces is closed as soon as it is not in use.
func (d *Drive) setTree(t *tree) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.tree
	d.tree = t
	if before != nil {
		before.replaced = true
		d.closeReplaced(before)
	}
}

// closeReplaced closes a tree that was replaced and is not in use. The caller holds mu.
func (d *Drive) closeReplaced(t *tree) {
	if !t.replaced || t.uses > 0 {
		return
	}
	if err := t.close(); err != nil {
		d.drives.log.Error("cannot close a replaced tree", "workspace", d.workspaceID, "error", err)
	}
}
