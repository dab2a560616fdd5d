package drive

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Remove takes a file, or a folder with all below it, off the drive at once; its space is freed in the background.
// A refusal is NotFound or Linked.
func (d *Drive) Remove(ctx context.Context, path string, c Change) (err error) {
	defer func() { d.drives.metrics.ended("delete", err) }()
	if err := checkChange(path); err != nil {
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
	if err := a.guard(); err != nil {
		return err
	}
	op := d.operation(activityv1.Kind_KIND_DELETE, at.entryKind(), path, c.Author)
	if op.Count, err = d.count(ctx, at, path); err != nil {
		return fromOS(err)
	}
	return a.settle(ctx, op, 0, func() (bool, error) {
		if err := at.parent.rename(at.name, d.aside, a.trash(), false); err != nil {
			return false, err
		}
		return true, errors.Join(at.parent.Sync(), d.aside.Sync())
	})
}

// count tells how many entries the folder at a path is, with all below it; 0 for a file.
func (d *Drive) count(ctx context.Context, at *place, path string) (total uint64, err error) {
	if !at.isFolder() {
		return 0, nil
	}
	leave, err := d.drives.counting.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	err = d.walk(path, &walk{ctx: ctx, enter: func(string, int) (bool, error) {
		total++
		return true, nil
	}, file: func(handle, string, string, *unix.Stat_t, int) error {
		total++
		return nil
	}})
	return total, err
}
