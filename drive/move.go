package drive

import (
	"context"
	"errors"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Move gives a file or folder another path. It tells whether something was replaced there. Refusals are NotFound,
// NoParent, Exists without overwrite, Overlap, Linked, and LimitReached where an entry would be deeper than MaxDepth.
func (d *Drive) Move(ctx context.Context, from, to string, overwrite bool, c Change) (replaced bool, err error) {
	defer func() { d.drives.metrics.ended("rename", err) }()
	if err := checkTransfer(from, to); err != nil {
		return false, err
	}
	a, err := d.begin(c)
	if err != nil {
		return false, err
	}
	defer d.sweep()
	defer a.end()
	if err := a.lock(ctx, from, to); err != nil {
		return false, err
	}
	source, err := d.locateExisting(from)
	if err != nil {
		return false, err
	}
	defer source.close()
	target, err := d.locateTarget(to, overwrite)
	if err != nil {
		return false, err
	}
	defer target.close()
	if err := a.guard(); err != nil {
		return false, err
	}
	if err := d.checkMove(ctx, source, from, to); err != nil {
		return false, fromOS(err)
	}
	op := d.operation(activityv1.Kind_KIND_RENAME, source.entryKind(), to, c.Author)
	op.FromPath, op.FromTree = from, d.drives.tree(from)
	return target.exists(), a.settle(ctx, op, source.st.Ino, func() (bool, error) {
		if err := a.install(source.parent, source.name, source.st, target); err != nil {
			return false, err
		}
		return true, errors.Join(target.parent.Sync(), source.parent.Sync(), d.aside.Sync())
	})
}

func checkTransfer(from, to string) error {
	if err := checkChange(from); err != nil {
		return err
	}
	if err := checkChange(to); err != nil {
		return err
	}
	if Within(from, to) || Within(to, from) {
		return errOverlap
	}
	return nil
}

func (d *Drive) locateTarget(to string, overwrite bool) (*place, error) {
	target, err := d.locate(to)
	if err != nil {
		return nil, err
	}
	if target.exists() && !overwrite {
		target.close()
		return nil, errExists
	}
	return target, nil
}
