package drive

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Move renames a file or folder, and reports whether it replaced an entry at the new path. "Rename" in the package comment
// describes its steps.
//
// It returns NotFound, NoParent, Exists if the new path exists and overwrite is false, Overlap, Linked, or LimitReached
// if an entry would be deeper than MaxDepth; the errors of the change's functions; and Unavailable. After Unavailable, or
// a failed sync of the disk, the change may have been made; after other errors nothing was changed.
func (d *Drive) Move(ctx context.Context, from, to string, overwrite bool, c Change) (replaced bool, err error) {
	defer func() { d.drives.metrics.countOperation("rename", err) }()
	if err := validateTransfer(from, to); err != nil {
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
	if err := a.checkGuard(removed(from), target.replaced(to)); err != nil {
		return false, err
	}
	if err := d.validateMoveDepth(ctx, source, from, to); err != nil {
		return false, fromOS(err)
	}
	op := d.operation(activityv1.Kind_KIND_RENAME, source.entryKind(), to, c.Author)
	op.FromPath, op.FromTree = from, d.drives.GeneratedTree(from)
	return target.exists(), a.commit(op, source.st.Ino, func() (bool, error) {
		// The activity may have taken long. After a crash, recovery looks for the inode that the intent names.
		if err := source.validateUnchanged(); err != nil {
			return false, err
		}
		if err := a.install(source.parent, source.name, source.st, target); err != nil {
			return false, err
		}
		return true, errors.Join(target.touch(source.st, c.Modified), target.parent.Sync(), source.parent.Sync(), d.syncStaging())
	})
}

// validateUnchanged returns Unavailable if a process has replaced the located entry by another, and NotFound if it is gone.
func (l *location) validateUnchanged() error {
	st, err := l.parent.stat(l.name)
	switch {
	case err != nil:
		return err
	case st == nil:
		return errNotFound
	case st.Ino != l.st.Ino:
		return unavailable("a process has replaced the file or folder; try again")
	}
	return nil
}

// validateTransfer returns an error if an entry cannot be moved or copied between the paths, without looking at the disk.
func validateTransfer(from, to string) error {
	if err := validateChangePath(from); err != nil {
		return err
	}
	if err := validateChangePath(to); err != nil {
		return err
	}
	if entity.Within(from, to) || entity.Within(to, from) {
		return errOverlap
	}
	return nil
}

// locateTarget is locate for a destination. It returns Exists if the path exists and overwrite is false.
func (d *Drive) locateTarget(to string, overwrite bool) (*location, error) {
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

// Copy copies a file or folder, and reports whether it replaced an entry at the new path. A shallow copy of a folder is
// empty. The copy is staged and appears as a whole. Copy returns the errors of Move, and Full.
//
// Each file in the copy is complete. A folder that changes during the copy is not copied as of one moment.
func (d *Drive) Copy(ctx context.Context, from, to string, overwrite, shallow bool, c Change) (replaced bool, err error) {
	defer func() { d.drives.metrics.countOperation("copy", err) }()
	if err := cmp.Or(validateTransfer(from, to), validateDepth(to)); err != nil {
		return false, err
	}
	a, err := d.begin(c)
	if err != nil {
		return false, err
	}
	defer d.sweep()
	defer a.end()
	// Refuse before a long copy, if possible. The same checks run again under the lock.
	if err := d.preflightCopy(to, overwrite, a); err != nil {
		return false, err
	}
	source, err := d.locateExisting(from)
	if err != nil {
		return false, err
	}
	defer source.close()
	defer a.removeStaged()
	op := d.operation(activityv1.Kind_KIND_CREATE, source.entryKind(), to, c.Author)
	if op.Count, err = d.stageCopy(ctx, source, from, a.stagedName(), to, shallow, c.Modified); err != nil {
		return false, fromOS(err)
	}
	if err := a.lock(ctx, to); err != nil {
		return false, err
	}
	target, err := d.locateTarget(to, overwrite)
	if err != nil {
		return false, err
	}
	defer target.close()
	if err := a.checkGuard(target.replaced(to)); err != nil {
		return false, err
	}
	staged, err := d.staging.stat(a.stagedName())
	if err != nil || staged == nil {
		return false, errors.Join(fromOS(err), errNotFound)
	}
	return target.exists(), a.commit(op, staged.Ino, func() (bool, error) {
		if err := a.install(d.staging, a.stagedName(), staged, target); err != nil {
			return false, err
		}
		return true, errors.Join(target.parent.Sync(), d.syncStaging())
	})
}

// preflightCopy returns the error of Copy if Copy would refuse the destination now.
func (d *Drive) preflightCopy(to string, overwrite bool, a *attempt) error {
	target, err := d.locateTarget(to, overwrite)
	if err != nil {
		return err
	}
	target.close()
	return a.checkGuard(target.replaced(to))
}

// stageCopy copies the source to a name in tmp, durably. It returns the number of entries of a folder, itself included, or 0
// for a file.
func (d *Drive) stageCopy(ctx context.Context, source *location, from, name, to string, shallow bool, modified time.Time) (uint64, error) {
	ownership, err := d.ownershipAt(to)
	if err != nil {
		return 0, err
	}
	c := &copier{ctx: ctx, drive: d, tmp: d.tmp, ownership: ownership, staged: name, to: to, modified: modified}
	if !source.isFolder() {
		return 0, errors.Join(c.copyEntry(source.parent, source.name, source.st, name, true), d.syncStaging())
	}
	source.close() // the walk opens the folder itself
	if !shallow {
		release, err := d.drives.copySlots.acquire(ctx)
		if err != nil {
			return 0, err
		}
		defer release()
	}
	w := &walk{ctx: ctx, enter: c.createFolder, leave: c.finishFolder}
	if !shallow {
		w.file = c.visitFile
	}
	c.shallow = shallow
	if err := d.walk(from, w); err != nil {
		return 0, err
	}
	// One sync of the file system costs less than one for each file.
	return c.count, unix.Syncfs(d.staging.fd())
}

// ownershipAt returns the ownership for a new entry at a path.
func (d *Drive) ownershipAt(path string) (ownership, error) {
	target, err := d.locate(path)
	if err != nil {
		return ownership{}, err
	}
	defer target.close()
	return target.ownership()
}

// A copier copies entries of a drive to tmp.
type copier struct {
	ctx       context.Context
	drive     *Drive
	tmp       *os.Root
	ownership ownership
	shallow   bool
	// staged is the name of the copy in tmp; to is the path at which it will be installed.
	staged, to string
	// modified is the modification time of the copy; zero: the time of the source. The entries below a folder keep their times.
	modified time.Time
	// count is the number of entries that were copied.
	count uint64
}

// stagedPath returns the path in tmp of the copy of a path of the walk.
func (c *copier) stagedPath(path string) string {
	if path == "" {
		return c.staged
	}
	return join(c.staged, path)
}

// createFolder creates the copy of a folder, with a mode that lets the copier fill it.
func (c *copier) createFolder(path string, depth int) (visit bool, err error) {
	if c.shallow && depth > 0 {
		return false, nil
	}
	if err := validateEntryDepth(c.to, depth); err != nil {
		return false, err
	}
	if err := c.drive.require(c.ctx, 1, true); err != nil {
		return false, err
	}
	c.count++
	return true, c.tmp.Mkdir(c.stagedPath(path), 0o700)
}

// finishFolder copies the attributes of a folder after its entries were copied.
func (c *copier) finishFolder(folder handle, path string) error {
	st, err := folder.stat(".")
	if err != nil || st == nil {
		return err
	}
	target, err := c.tmp.Open(c.stagedPath(path))
	if err != nil {
		return err
	}
	defer target.Close()
	return c.copyAttributes(target, c.stagedPath(path), folder, ".", st)
}

// visitFile copies and counts an entry that is not a folder.
func (c *copier) visitFile(from handle, name, path string, st *unix.Stat_t, depth int) error {
	if err := validateEntryDepth(c.to, depth); err != nil {
		return err
	}
	err := c.copyEntry(from, name, st, c.stagedPath(path), false)
	if err == nil {
		c.count++
	}
	return err
}

// copyEntry copies a file or link, and with sync makes a file's content durable. It returns errNotFound for pipes, sockets
// and devices, which are not content of a drive.
func (c *copier) copyEntry(from handle, name string, st *unix.Stat_t, to string, sync bool) error {
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return errNotFound
	}
	if err := c.drive.require(c.ctx, occupied(st), true); err != nil {
		return err
	}
	if kind == unix.S_IFLNK {
		return c.copyLink(from, name, st, to)
	}
	return c.copyFile(from, name, st, to, sync)
}

func (c *copier) copyFile(from handle, name string, st *unix.Stat_t, to string, sync bool) error {
	source, err := from.openFile(name)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := c.tmp.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	granted := occupied(st)
	// The attributes of the copy are not newer than its content, so that a client finds a change during the copy by its time.
	if st, err = statFile(source); err != nil {
		return err
	}
	if err := c.copyContent(target, source, st.Size, granted); err != nil {
		return err
	}
	if err := c.copyAttributes(target, to, from, name, st); err != nil || !sync {
		return err
	}
	return target.Sync()
}

// occupied returns the number of bytes that an entry occupies on the disk, as far as its attributes tell. Holes occupy none.
func occupied(st *unix.Stat_t) int64 { return min(st.Size, st.Blocks*statBlock) }

// copyContent copies the first size bytes of a file, with holes in place of holes, or less if a process truncates the file meanwhile. It copies
// in pieces, asks for the space of what is more than the granted bytes, and checks for cancellation between the pieces. The kernel copies
// each piece.
func (c *copier) copyContent(target, source *os.File, size, granted int64) error {
	for at := int64(0); at < size; {
		begin, end := nextData(source, at, size)
		end = min(end, begin+64<<20)
		if more := end - begin - granted; more > 0 {
			if err := c.drive.require(c.ctx, more, false); err != nil {
				return err
			}
		}
		granted = max(0, granted-(end-begin))
		copied, err := copyRange(target, source, begin, end)
		if err != nil {
			return err
		}
		if copied < end-begin {
			size = begin + copied
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		at = end
	}
	return target.Truncate(size)
}

// copyRange copies the bytes of a file from begin to end, or to the end of the file if that is earlier.
func copyRange(target, source *os.File, begin, end int64) (copied int64, err error) {
	for _, file := range []*os.File{target, source} {
		if _, err := file.Seek(begin, io.SeekStart); err != nil {
			return 0, err
		}
	}
	copied, err = io.CopyN(target, source, end-begin)
	if isEOF(err) {
		err = nil
	}
	return copied, err
}

// copyAttributes gives the copy at a path in tmp the mode, modification time and dead properties of its source, and the copier's ownership.
func (c *copier) copyAttributes(target *os.File, to string, from handle, name string, st *unix.Stat_t) error {
	props, err := readProps(from, name)
	if err != nil {
		return err
	}
	if len(props) > 0 {
		if err := writeProps(target, props); err != nil {
			return err
		}
	}
	if err := c.ownership.applyTo(target); err != nil {
		return err
	}
	if err := setModified(target, c.modifiedOf(to, st)); err != nil {
		return err
	}
	return unix.Fchmod(int(target.Fd()), st.Mode&0o777)
}

// modifiedOf returns the modification time of the copy at a path in tmp of an entry with the attributes st.
func (c *copier) modifiedOf(to string, st *unix.Stat_t) time.Time {
	if to == c.staged && !c.modified.IsZero() {
		return c.modified
	}
	return time.Unix(st.Mtim.Unix())
}

// copyLink copies a link as a link. Its target is not validated: the drive follows no link that leads out of it.
func (c *copier) copyLink(from handle, name string, st *unix.Stat_t, to string) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(from.fd(), name, target)
	if err != nil {
		return err
	}
	if err := c.tmp.Symlink(string(target[:n]), to); err != nil {
		return err
	}
	folder, err := c.tmp.Open(path.Dir(to))
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := (handle{folder}).setModified(path.Base(to), c.modifiedOf(to, st)); err != nil {
		return err
	}
	return c.ownership.applyToPath(c.tmp, to)
}
