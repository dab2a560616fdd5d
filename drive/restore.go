package drive

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/quota"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const (
	// markAttribute is an extended attribute of the root of a restored tree. Its value identifies the restore.
	markAttribute = "user.atelier.restore"
	// maxMark is the maximum length of the value in bytes.
	maxMark = 128
)

// Restore replaces the whole tree of the drive by the content of an archive that Export has written, as one operation.
// Readers keep the files that they have open.
//
// Restore unpacks the archive in the staging folder, reads it to its end, and calls verify with the number of entries.
// Then the unpacked tree must be within the quota of the drive, without the tree that it replaces; a file counts once for all its links.
// If one of these steps fails, the drive is unchanged. mark identifies the restore: if the drive's tree already has that mark,
// Restore does nothing.
//
// It returns Corrupt, Full, verify's error, the errors of the change's functions, and Unavailable.
func (d *Drive) Restore(ctx context.Context, mark string, archive io.Reader, verify func(entries int64) error, c Change) (err error) {
	defer func() { d.drives.metrics.countOperation("restore", err) }()
	if d.hasMark(mark) {
		return nil
	}
	a, err := d.begin(c)
	if err != nil {
		return err
	}
	// The sweep deletes the tree in the staging folder: the replaced one, or after an error the unpacked one.
	defer d.sweep()
	defer a.end()
	fresh, err := d.stageArchive(ctx, a.stagedName(), mark, archive, verify)
	if err != nil {
		return fromOS(err)
	}
	installed := false
	defer func() {
		if !installed {
			fresh.close()
		}
	}()
	// Locking the root waits for all operations on the drive and blocks later ones.
	if err := a.lock(ctx, ""); err != nil {
		return err
	}
	if d.hasMark(mark) { // another attempt at the same restore has replaced the tree meanwhile
		return nil
	}
	if err := a.checkGuard(); err != nil {
		return err
	}
	staged, err := d.staging.stat(a.stagedName())
	if err != nil || staged == nil {
		return errors.Join(fromOS(err), errNotFound)
	}
	op := d.operation(activityv1.Kind_KIND_RESTORE, activityv1.EntryKind_ENTRY_KIND_UNSPECIFIED, "", c.Author)
	return a.commit(op, staged.Ino, func() (bool, error) {
		err := d.exchange(a.stagedName())
		if err != nil {
			return false, err
		}
		installed = true
		d.setTree(fresh)
		return true, errors.Join(d.syncHome(), d.syncStaging())
	})
}

// stageArchive unpacks and verifies an archive in tmp, marks its root, makes the tree durable and opens it.
func (d *Drive) stageArchive(ctx context.Context, name, mark string, archive io.Reader, verify func(entries int64) error) (*tree, error) {
	if err := d.tmp.Mkdir(name, 0o755); err != nil {
		return nil, err
	}
	root, err := d.staging.openFolder(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// Before the archive gives the root its mode: an attribute needs write permission. The mark counts when the tree is in place.
	if err := setMark(root, mark); err != nil {
		return nil, err
	}
	u, err := newUnpacker(ctx, root, func(size int64) error { return d.requireSpace(ctx, size) }, func(used quota.Usage, links uint64) error {
		return d.drives.quota.RequireLimit(d.workspaceID, links, func() (quota.Usage, error) { return used, nil })
	})
	if err != nil {
		return nil, err
	}
	defer u.close()
	if err := u.unpack(archive); err != nil {
		return nil, err
	}
	// Verification, such as a hash, covers the bytes behind the end of the archive as well.
	if _, err := io.Copy(io.Discard, contextReader{ctx, archive}); err != nil {
		return nil, u.readError(err)
	}
	if err := verify(u.entries); err != nil {
		return nil, err
	}
	if err := unix.Syncfs(d.staging.fd()); err != nil {
		return nil, err
	}
	if err := requireLimit(ctx, d, name, u.links); err != nil {
		return nil, err
	}
	return openTree(d.tmp, name)
}

// requireSpace returns Full if the disk has no space for size bytes beside the space that the drive leaves free. It
// ignores the quota, which requireLimit checks, because the tree replaces another tree.
func (d *Drive) requireSpace(ctx context.Context, size int64) error {
	return d.drives.quota.RequireFree(ctx, d.workspaceID, quota.Usage{Bytes: uint64(size), Files: 1})
}

// exchange swaps a staged tree and the drive's tree atomically.
func (d *Drive) exchange(staged string) error {
	home, err := d.openHome()
	if err != nil {
		return err
	}
	defer home.Close()
	err = retryEINTR(func() error {
		return unix.Renameat2(d.staging.fd(), staged, int(home.Fd()), "files", unix.RENAME_EXCHANGE)
	})
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: staged, New: "files", Err: err}
	}
	return nil
}

// openHome opens the folder that contains files and tmp.
func (d *Drive) openHome() (*os.File, error) { return d.drives.root.Open(d.workspaceID) }

func (d *Drive) syncHome() error {
	home, err := d.openHome()
	if err != nil {
		return err
	}
	return errors.Join(home.Sync(), home.Close())
}

// isRestored reports whether the drive's tree is the tree that an intent names, and makes the folders that show it durable.
func (d *Drive) isRestored(inode uint64) (bool, error) {
	home, err := d.openHome()
	if err != nil {
		return false, err
	}
	defer home.Close()
	st, err := handle{home}.stat("files")
	if err != nil || st == nil || st.Ino != inode {
		return false, err
	}
	return true, errors.Join(home.Sync(), d.syncStaging())
}

// setMark records on the root of a tree which restore it belongs to. On a file system without extended attributes it does
// nothing; a restore then runs again if a crash came before its completion was reported.
func setMark(root handle, mark string) error {
	if err := unix.Fsetxattr(root.fd(), markAttribute, []byte(mark), 0); !isAbsent(err) {
		return err
	}
	return nil
}

// hasMark reports whether the drive's tree belongs to the restore that mark identifies.
func (d *Drive) hasMark(mark string) bool {
	value := make([]byte, maxMark)
	tree, done := d.useTree()
	defer done()
	n, err := unix.Fgetxattr(tree.files.fd(), markAttribute, value)
	return err == nil && mark != "" && string(value[:n]) == mark
}
