package drive

import (
	"cmp"
	"context"
	"errors"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// MakeFolder makes an empty folder. Refusals are Exists, NoParent, Linked and LimitReached.
func (d *Drive) MakeFolder(ctx context.Context, path string, c Change) (err error) {
	defer func() { d.drives.metrics.ended("folder", err) }()
	if err := cmp.Or(checkChange(path), checkDepth(path)); err != nil {
		return err
	}
	a, err := d.begin(c)
	if err != nil {
		return err
	}
	defer a.end()
	if err := d.tmp.Mkdir(a.staged(), 0o755); err != nil {
		return fromOS(err)
	}
	defer a.discard()
	if err := a.lock(ctx, path); err != nil {
		return err
	}
	at, err := d.locate(path)
	if err != nil {
		return err
	}
	defer at.close()
	if at.exists() {
		return errExists
	}
	if err := a.guard(); err != nil {
		return err
	}
	inode, err := d.prepareFolder(a.staged(), at)
	if err != nil {
		return fromOS(err)
	}
	op := d.operation(activityv1.Kind_KIND_CREATE, activityv1.EntryKind_ENTRY_KIND_FOLDER, path, c.Author)
	return a.settle(ctx, op, inode, func() (bool, error) {
		if err := d.aside.rename(a.staged(), at.parent, at.name, false); err != nil {
			return false, err
		}
		return true, errors.Join(at.parent.Sync(), d.aside.Sync())
	})
}

// prepareFolder gives a folder in tmp the owner for its place, durably, and tells its inode.
func (d *Drive) prepareFolder(name string, at *place) (inode uint64, err error) {
	folder, err := d.aside.folder(name)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	owner, err := at.owner()
	if err != nil {
		return 0, err
	}
	if err := owner.give(folder.File); err != nil {
		return 0, err
	}
	st, err := folder.stat(".")
	if err != nil {
		return 0, err
	}
	return st.Ino, folder.Sync()
}
