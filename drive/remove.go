package drive

import (
	"context"
	"errors"

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
	if op.Count, err = at.count(ctx, d.drives.counting); err != nil {
		return fromOS(err)
	}
	return a.settle(ctx, op, 0, func() (bool, error) {
		if err := at.parent.rename(at.name, d.aside, a.trash(), false); err != nil {
			return false, err
		}
		return true, errors.Join(at.parent.Sync(), d.aside.Sync())
	})
}

// count tells how many entries a folder is with all below it; 0 for a file.
func (p *place) count(ctx context.Context, walks walks) (uint64, error) {
	if !p.isFolder() {
		return 0, nil
	}
	leave, err := walks.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	return countBelow(ctx, p.parent, p.name, 1)
}

func countBelow(ctx context.Context, parent handle, name string, depth int) (uint64, error) {
	if depth > maxDepth {
		return 0, errTooDeep
	}
	folder, err := parent.folder(name)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	total := uint64(1)
	err = folder.names(func(child string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		st, err := folder.stat(child)
		if err != nil || st == nil {
			return err
		}
		if !isFolder(st) {
			total++
			return nil
		}
		below, err := countBelow(ctx, folder, child, depth+1)
		total += below
		return err
	})
	return total, err
}
