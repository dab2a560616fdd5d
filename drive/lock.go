package drive

import (
	"context"
	"errors"
	"strings"
	"time"

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
	mayExist := func(path string) bool {
		if path == "" {
			return true
		}
		at, err := d.locateExisting(path) // the entry itself, also if it is a link that leads nowhere
		if err == nil {
			at.close()
		}
		return !entity.HasCode(err, entity.NotFound)
	}
	table, err := locks.Load(d, d.drives.log, mayExist)
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

// checkGuard calls the guard of a change, if there is one, and returns a locks.Conflict if locks forbid one of the effects.
func (d *Drive) checkGuard(c Change, effects ...locks.Effect) error {
	if c.Guard != nil {
		if err := c.Guard(); err != nil {
			return err
		}
	}
	if len(effects) == 0 {
		return nil
	}
	table, err := d.Locks()
	if err != nil {
		return err
	}
	return table.Check(locks.CreatorOf(c.Author), c.Submits, effects...)
}

// written returns the effect of writing to the location.
func (l *location) written(path string) locks.Effect {
	return locks.Effect{Path: path, ChangesParent: !l.exists()}
}

// replaced returns the effect of replacing the entry at the location, with all entries below it.
func (l *location) replaced(path string) locks.Effect {
	return locks.Effect{Path: path, ChangesParent: !l.exists(), IsDeep: true}
}

// removed returns the effect of removing an entry with all entries below it.
func removed(path string) locks.Effect {
	return locks.Effect{Path: path, ChangesParent: true, IsDeep: true, Removes: true}
}

// endLocks deletes the locks on entries that a change has removed or replaced, and older locks on entries that the change has created. An error is
// only logged, because locks expire.
func (d *Drive) endLocks(c Change, effects []locks.Effect) {
	if len(effects) == 0 {
		return
	}
	table, err := d.Locks()
	if err == nil {
		err = table.End(locks.CreatorOf(c.Author), c.Submits, effects...)
	}
	if err != nil {
		d.drives.log.Warn("cannot delete the locks of removed paths; they remain until they expire", "workspace", d.workspaceID, "error", err)
	}
}

// Lock acquires a lock on a path that exists, while no operation on the path runs. The lock belongs to the author of the change. Lock
// returns NotFound, a locks.Conflict, LimitReached, the errors of the change's functions, and Unavailable.
func (d *Drive) Lock(ctx context.Context, wanted locks.Lock, timeout time.Duration, c Change) (*locks.Lock, error) {
	table, err := d.Locks()
	if err != nil {
		return nil, err
	}
	held, err := d.acquireLock(ctx, table, wanted, timeout, c)
	if err != nil {
		return nil, err
	}
	return confirmLock(table, held, c)
}

// acquireLock is Lock without the question, which other members may have to answer, whether the caller still has the access: the path is held
// for acquireLock alone.
func (d *Drive) acquireLock(ctx context.Context, table *locks.Table, wanted locks.Lock, timeout time.Duration, c Change) (*locks.Lock, error) {
	release, err := d.Hold(ctx, wanted.Path)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.checkGuard(c); err != nil {
		return nil, err
	}
	if _, err := d.Stat(wanted.Path); err != nil {
		return nil, err
	}
	wanted.Creator = locks.CreatorOf(c.Author)
	return table.Acquire(wanted, timeout)
}

// LockNew creates an empty file and acquires a lock on its path before another operation can reach the file. It returns Exists if the
// path exists, and the errors of Lock and Put.
func (d *Drive) LockNew(ctx context.Context, wanted locks.Lock, timeout time.Duration, c Change) (*locks.Lock, error) {
	table, err := d.Locks()
	if err != nil {
		return nil, err
	}
	wanted.Creator = locks.CreatorOf(c.Author)
	guarded := c
	guarded.Guard = func() error {
		if err := table.CheckFree(&wanted); err != nil {
			return err
		}
		if _, err := d.Stat(wanted.Path); err == nil {
			return entity.Errorf(Exists, "another request has created the path; try again")
		}
		return d.checkGuard(c)
	}
	var held *locks.Lock
	var failed error
	guarded.Done = func() { held, failed = table.Acquire(wanted, timeout) }
	_, _, err = d.Put(ctx, wanted.Path, Upload{Body: strings.NewReader("")}, guarded)
	if err != nil && held != nil {
		// The client does not get the token, so the lock would be of no use.
		failed = table.Release(held.Token, held.Path, held.Creator, false)
	}
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return confirmLock(table, held, c)
}

// confirmLock releases an acquired lock if the caller has lost the access. DropLocks runs after the access of a person was removed: either
// it has seen the lock, or the access is refused here.
func confirmLock(table *locks.Table, held *locks.Lock, c Change) (*locks.Lock, error) {
	if err := c.confirm(); err != nil {
		return nil, errors.Join(err, table.Release(held.Token, held.Path, held.Creator, false))
	}
	return held, nil
}
