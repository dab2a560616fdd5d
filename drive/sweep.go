package drive

import (
	"context"
	"strings"
)

// sweep removes in the background whatever in tmp belongs to no running operation. One sweeper runs a drive.
func (d *Drive) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty = true
	if d.sweeping || !d.recovered.Load() {
		return
	}
	d.sweeping = d.drives.spawn(func(ctx context.Context) {
		select {
		case d.drives.removing <- struct{}{}:
			defer func() { <-d.drives.removing }()
		case <-ctx.Done():
		}
		for d.sweepAgain(ctx) {
			d.removeLeftovers(ctx)
		}
	})
}

func (d *Drive) sweepAgain(ctx context.Context) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweeping = d.dirty && ctx.Err() == nil
	d.dirty = false
	return d.sweeping
}

func (d *Drive) removeLeftovers(ctx context.Context) {
	folder, err := d.aside.folder(".")
	if err != nil {
		d.drives.log.Error("cannot list leftovers", "workspace", d.workspaceID, "error", err)
		return
	}
	defer folder.Close()
	err = folder.names(func(name string) error {
		if ctx.Err() != nil || d.isLive(strings.TrimSuffix(name, trashSuffix)) {
			return ctx.Err()
		}
		if err := d.clear(name); err != nil {
			d.drives.log.Error("cannot remove a leftover", "workspace", d.workspaceID, "name", name, "error", err)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		d.drives.log.Error("cannot read leftovers", "workspace", d.workspaceID, "error", err)
	}
}

func (d *Drive) isLive(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, live := d.live[id]
	return live
}

// hollow frees the space of what was made aside, and keeps its inode, which an intent may name: while it exists no
// other file can be taken for it.
func (d *Drive) hollow(name string) {
	st, err := d.aside.stat(name)
	if err != nil || st == nil {
		return
	}
	if folder, err := d.aside.folder(name); err == nil {
		defer folder.Close()
		err = folder.names(func(child string) error { return d.clear(name + "/" + child) })
		if err != nil {
			d.drives.log.Error("cannot free space", "workspace", d.workspaceID, "error", err)
		}
		return
	}
	if f, err := d.tmp.OpenFile(name, writeOnly, 0); err == nil {
		defer f.Close()
		if err := f.Truncate(0); err != nil {
			d.drives.log.Error("cannot free space", "workspace", d.workspaceID, "error", err)
		}
	}
}
