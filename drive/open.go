package drive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
)

// Open returns a workspace's drive for one operation, recovered: what an earlier process left unfinished on it, on this
// machine or while another one hosted it, is completed or undone before the drive is returned. The caller calls release
// when the operation has ended, and uses neither the drive nor a Folder of it afterwards; files that it opened stay usable.
//
// It refuses with Unavailable where the drive is not provisioned, cannot be recovered now, or too many drives are in use.
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

// Recover brings a workspace's drive and its sequence to agreement after a crash: it completes or abandons each intent
// that no running operation owns. Open does the same by itself; calling Recover first saves the first operation the wait.
// A drive that is not provisioned has nothing to recover. Recover returns an error where the activity does not answer; the
// drive then stays closed until a later attempt.
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

// acquire reserves the descriptors of one operation and returns the drive with its files open, recovered or not.
func (d *Drives) acquire(ctx context.Context, workspaceID string) (_ *Drive, release func(), err error) {
	if err := checkID(workspaceID); err != nil {
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

// awaitFiles opens the files of a reserved drive, or waits for the caller that is opening them.
func (d *Drives) awaitFiles(r *reservation) error {
	if r.opens {
		err := r.drive.openFiles()
		d.cache.opened(r, err)
		return err
	}
	d.cache.mu.Lock()
	opening := r.drive.opening
	d.cache.mu.Unlock()
	if opening != nil {
		<-opening // a few system calls
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

// openFiles opens what an open drive holds: driveDescriptors.
func (d *Drive) openFiles() (err error) {
	defer func() {
		if err == nil {
			return
		}
		_ = errors.Join(d.closeFiles()...) // the error of opening says more
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
	d.aside.File, err = d.tmp.Open(".")
	return err
}

// closeFiles closes what openFiles opened.
func (d *Drive) closeFiles() (errs []error) {
	if d.tmp != nil {
		errs = append(errs, d.tmp.Close())
	}
	if d.aside.File != nil {
		errs = append(errs, d.aside.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tree != nil {
		errs = append(errs, d.tree.close())
	}
	return errs
}

// forgetFiles makes room for files that are opened again. Nobody uses the drive.
func (d *Drive) forgetFiles() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tmp, d.aside, d.tree, d.attached = nil, handle{}, nil, nil
}

// A tree is the open root of a drive's files. Reading goes through inside, which keeps links from leading out.
type tree struct {
	inside *os.Root
	files  handle
	// uses counts the callers that are using it, under the drive's mu. A tree that was replaced is closed with the last.
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

// useTree returns the drive's tree as it is now. It stays open until done is called, whatever takes its place.
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

// setTree makes a tree the drive's. The one before is closed as soon as nobody uses it.
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

// closeReplaced closes a tree that was replaced and that nobody uses. The caller holds mu.
func (d *Drive) closeReplaced(t *tree) {
	if !t.replaced || t.uses > 0 {
		return
	}
	if err := t.close(); err != nil {
		d.drives.log.Error("cannot close a replaced tree", "workspace", d.workspaceID, "error", err)
	}
}

// Attached returns what a protocol keeps in memory of the drive while it is open, such as its locks. The first call makes
// it. It is forgotten when the drive is evicted, so that whatever must last is on disk. Callers use one type.
func (d *Drive) Attached(load func() (any, error)) (any, error) {
	d.attaching.Lock()
	defer d.attaching.Unlock()
	if d.attached != nil {
		return d.attached, nil
	}
	attached, err := load()
	if err == nil {
		d.attached = attached
	}
	return attached, err
}
