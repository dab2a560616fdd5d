package drive

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const (
	// markAttribute is on the root of a tree that a restore put there, and says which.
	markAttribute = "user.atelier.restore"
	maxMark       = 128
	// spared is how much room a restore leaves on the disk, in bytes.
	spared = 64 << 20
)

// Restore puts what an archive of Export holds in the place of all that is on the drive, as one operation. The tree is
// made aside and verify is asked, with the number of entries and when the archive has been read to its end, before
// anything is replaced; whatever fails until then leaves the drive as it was. Readers keep the files that they have open.
//
// mark names the restore: one whose tree is in place already is done. A refusal is Corrupt, Full, or verify's.
func (d *Drive) Restore(ctx context.Context, mark string, archive io.Reader, verify func(entries int64) error, c Change) (err error) {
	defer func() { d.drives.metrics.ended("restore", err) }()
	if d.marked(mark) {
		return nil
	}
	a, err := d.begin(c)
	if err != nil {
		return err
	}
	// The sweep takes away what is left aside: the tree that was replaced, or else the one that was to replace it.
	defer d.sweep()
	defer a.end()
	fresh, err := d.stageArchive(ctx, a.staged(), mark, archive, verify)
	if err != nil {
		return fromOS(err)
	}
	kept := false
	defer func() {
		if !kept {
			fresh.close()
		}
	}()
	// Whoever is at work on a path comes before or after, and nobody in between.
	if err := a.lock(ctx, ""); err != nil {
		return err
	}
	if err := a.guard(); err != nil {
		return err
	}
	staged, err := d.aside.stat(a.staged())
	if err != nil || staged == nil {
		return errors.Join(fromOS(err), errNotFound)
	}
	op := d.operation(activityv1.Kind_KIND_RESTORE, activityv1.EntryKind_ENTRY_KIND_UNSPECIFIED, "", c.Author)
	return a.settle(ctx, op, staged.Ino, func() (bool, error) {
		err := d.exchange(a.staged())
		if err != nil {
			return false, err
		}
		kept = true
		d.setTree(fresh)
		return true, errors.Join(d.syncHome(), d.aside.Sync())
	})
}

// stageArchive makes an archive's tree aside, durably, and opens it.
func (d *Drive) stageArchive(ctx context.Context, name, mark string, archive io.Reader, verify func(entries int64) error) (*tree, error) {
	if err := d.tmp.Mkdir(name, 0o755); err != nil {
		return nil, err
	}
	root, err := d.aside.folder(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	u, err := newUnpacker(ctx, root, d.room)
	if err != nil {
		return nil, err
	}
	defer u.close()
	if err := u.unpack(archive); err != nil {
		return nil, err
	}
	// What follows the end of the archive belongs to what is verified.
	if _, err := io.Copy(io.Discard, whileRunning{ctx, archive}); err != nil {
		return nil, u.unreadable(err)
	}
	if err := verify(u.entries); err != nil {
		return nil, err
	}
	if err := setMark(root, mark); err != nil {
		return nil, err
	}
	if err := unix.Syncfs(d.aside.fd()); err != nil {
		return nil, err
	}
	return openTree(d.tmp, name)
}

// room refuses what the disk has no room for.
func (d *Drive) room(size int64) error {
	_, available, err := d.Space()
	if err != nil {
		return err
	}
	if uint64(size)+spared > available {
		return unix.ENOSPC
	}
	return nil
}

// exchange swaps what is aside with the drive's tree, in one step.
func (d *Drive) exchange(staged string) error {
	home, err := d.openHome()
	if err != nil {
		return err
	}
	defer home.Close()
	err = eintr(func() error {
		return unix.Renameat2(d.aside.fd(), staged, int(home.Fd()), "files", unix.RENAME_EXCHANGE)
	})
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: staged, New: "files", Err: err}
	}
	return nil
}

// openHome opens the folder that holds files and tmp.
func (d *Drive) openHome() (*os.File, error) { return d.drives.root.Open(d.workspaceID) }

func (d *Drive) syncHome() error {
	home, err := d.openHome()
	if err != nil {
		return err
	}
	return errors.Join(home.Sync(), home.Close())
}

// restored tells whether the tree of an intent is the drive's, and makes durable that it is.
func (d *Drive) restored(inode uint64) (bool, error) {
	home, err := d.openHome()
	if err != nil {
		return false, err
	}
	defer home.Close()
	st, err := handle{home}.stat("files")
	if err != nil || st == nil || st.Ino != inode {
		return false, err
	}
	return true, errors.Join(home.Sync(), d.aside.Sync())
}

// setMark says on a tree's root which restore it is of. Where that cannot be kept, a restore that was cut off between
// its end and its report is done again.
func setMark(root handle, mark string) error {
	if err := unix.Fsetxattr(root.fd(), markAttribute, []byte(mark), 0); !absent(err) {
		return err
	}
	return nil
}

func (d *Drive) marked(mark string) bool {
	value := make([]byte, maxMark)
	tree, done := d.useTree()
	defer done()
	n, err := unix.Fgetxattr(tree.files.fd(), markAttribute, value)
	return err == nil && mark != "" && string(value[:n]) == mark
}
