package drive

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const writeOnly = os.O_WRONLY | unix.O_NONBLOCK

// An Upload is the content for a file.
type Upload struct {
	Body io.Reader
	// Size is the announced length of Body in bytes; -1: unknown.
	Size int64
}

// Put creates or replaces a file atomically: readers see the old content until the new content is durable. It returns the
// new entry and whether the path is new. "The life of a change" in the package comment describes its steps.
//
// It returns Broken if the body fails or does not have the announced size; NoParent, IsFolder, Linked, LimitReached or
// Full; the errors of the change's functions; and Unavailable. After Unavailable, or a failed sync of the disk, the
// change may have been made; after other errors nothing was changed.
func (d *Drive) Put(ctx context.Context, path string, upload Upload, c Change) (entry Entry, created bool, err error) {
	kind := "write"
	defer func() { d.drives.metrics.countOperation(kind, err) }()
	if err := validateChangePath(path); err != nil {
		return Entry{}, false, err
	}
	a, err := d.begin(c)
	if err != nil {
		return Entry{}, false, err
	}
	defer a.end()
	// Refuse before the body is read, if possible. The same checks run again under the lock.
	if err := d.preflightPut(ctx, path, upload.Size, a); err != nil {
		return Entry{}, false, err
	}
	file, err := d.staging.create(a.stagedName(), 0o644)
	if err != nil {
		return Entry{}, false, fromOS(err)
	}
	defer file.Close()
	defer a.removeStaged()
	if err := d.receive(ctx, file, upload, c.Modified); err != nil {
		return Entry{}, false, err
	}
	if err := a.lock(ctx, path); err != nil {
		return Entry{}, false, err
	}
	at, err := d.locateFile(path)
	if err != nil {
		return Entry{}, false, err
	}
	defer at.close()
	if created = !at.exists(); created {
		kind = "create"
	}
	entry, err = a.commitUpload(file, at, path)
	return entry, created, err
}

// commitUpload installs a received upload at its locked location.
func (a *attempt) commitUpload(file *os.File, at *location, path string) (Entry, error) {
	if err := a.checkGuard(at.written(path)); err != nil {
		return Entry{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return Entry{}, fromOS(err)
	}
	if err := at.inheritAttributes(file, info.Mode()); err != nil {
		return Entry{}, fromOS(err)
	}
	// The row of a write has no entry kind, because only files are written.
	kind, entryKind := activityv1.Kind_KIND_WRITE, activityv1.EntryKind_ENTRY_KIND_UNSPECIFIED
	if !at.exists() {
		kind, entryKind = activityv1.Kind_KIND_CREATE, activityv1.EntryKind_ENTRY_KIND_FILE
	}
	d, entry := a.drive, newEntry(at.name, info)
	op := d.operation(kind, entryKind, path, a.change.Author)
	return entry, a.commit(op, entry.inode, func() (bool, error) {
		if err := d.staging.rename(a.stagedName(), at.parent, at.name, at.exists()); err != nil {
			return false, err
		}
		a.isInstalled = true
		return true, errors.Join(at.parent.Sync(), d.syncStaging())
	})
}

// smallUpload is the greatest size in bytes of an upload that preflightPut checks without a look at the disk: the system
// calls would cost more than an upload that is received in vain.
const smallUpload = 64 << 10

// preflightPut returns the error of Put if Put would refuse an upload of the announced size now. For a small upload it
// looks at the quota, calls the guard and checks the locks on the path only.
func (d *Drive) preflightPut(ctx context.Context, path string, size int64, a *attempt) error {
	if err := d.drives.quota.Fits(ctx, d.workspaceID, need(max(size, 0), true)); err != nil {
		return err
	}
	if size >= 0 && size <= smallUpload {
		return a.checkGuard(locks.Effect{Path: path})
	}
	at, err := d.locateFile(path)
	if err != nil {
		return err
	}
	at.close()
	return a.checkGuard(at.written(path))
}

// locateFile is locate for an upload. It returns IsFolder if the path is a folder, and LimitReached if a new file would be too
// deep.
func (d *Drive) locateFile(path string) (*location, error) {
	at, err := d.locate(path)
	if err != nil {
		return nil, err
	}
	switch {
	case at.isFolder():
		err = errIsFolder
	case !at.exists():
		err = validateDepth(path)
	}
	if err != nil {
		at.close()
		return nil, err
	}
	return at, nil
}

// receive copies an upload to a file, sets the modification time and syncs the file: step 4 of "The life of a change" in
// the package comment. It returns the errors of Put that concern the body and the disk.
func (d *Drive) receive(ctx context.Context, file *os.File, upload Upload, modified time.Time) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	body := &body{ctx: ctx, Reader: upload.Body}
	if err := d.require(ctx, 0, true); err != nil {
		return err
	}
	n, err := copyFull(boundedFile{file, ctx, d}, body, *buffer)
	d.drives.metrics.bytes.WithLabelValues("in").Add(float64(n))
	switch {
	case body.err != nil:
		return body.err
	case err != nil:
		return fromOS(err)
	case upload.Size >= 0 && n != upload.Size:
		return entity.Errorf(Broken, "the upload is incomplete: %d bytes were announced and %d arrived", upload.Size, n)
	}
	if err := setModified(file, modified); err != nil {
		return fromOS(err)
	}
	return fromOS(file.Sync())
}

// copyFull is io.CopyBuffer, except that it fills the buffer before each write: a small body arrives in several pieces, and a
// write to the disk costs more than a read from memory.
func copyFull(to io.Writer, from io.Reader, buffer []byte) (copied int64, err error) {
	for {
		n, ended := io.ReadFull(from, buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return copied, err
			}
			copied += int64(n)
		}
		switch ended {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return copied, nil
		default:
			return copied, ended
		}
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// A body reads an upload. It records its error, which distinguishes a failed body from a failed disk.
type body struct {
	io.Reader
	ctx context.Context
	err error
}

func (b *body) Read(p []byte) (int, error) {
	if b.err = b.ctx.Err(); b.err != nil {
		return 0, b.err
	}
	n, err := b.Reader.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	if known, is := errors.AsType[*entity.Error](err); is && known.Code == Broken {
		b.err = known
	} else {
		b.err = entity.Errorf(Broken, "the upload was interrupted")
	}
	return n, err
}

// inheritAttributes gives a new file, which has a mode, the mode and dead properties of the file that it replaces, and the
// location's ownership. It syncs the file if that changes the file; the content is durable already.
func (l *location) inheritAttributes(file *os.File, mode fs.FileMode) error {
	ownership, err := l.ownership()
	if err != nil {
		return err
	}
	if err := ownership.applyTo(file); err != nil {
		return err
	}
	isChanged := !ownership.isProcess()
	if l.isFile() {
		// Before the mode, which may forbid it.
		props, err := readProps(l.parent, l.name)
		if err != nil {
			return err
		}
		if len(props) > 0 {
			if err := writeProps(file, props); err != nil {
				return err
			}
			isChanged = true
		}
		if inherited := l.st.Mode & 0o777; inherited != uint32(mode.Perm()) {
			if err := unix.Fchmod(int(file.Fd()), inherited); err != nil {
				return err
			}
			isChanged = true
		}
	}
	if !isChanged {
		return nil
	}
	return file.Sync()
}

// MakeFolder creates an empty folder. It returns Exists, NoParent, Linked or LimitReached; the errors of the change's
// functions; and Unavailable. After Unavailable, or a failed sync of the disk, the change may have been made; after other
// errors nothing was changed.
func (d *Drive) MakeFolder(ctx context.Context, path string, c Change) (err error) {
	defer func() { d.drives.metrics.countOperation("folder", err) }()
	if err := cmp.Or(validateChangePath(path), validateDepth(path)); err != nil {
		return err
	}
	a, err := d.begin(c)
	if err != nil {
		return err
	}
	defer a.end()
	if err := d.require(ctx, 1, true); err != nil {
		return err
	}
	if err := d.tmp.Mkdir(a.stagedName(), 0o755); err != nil {
		return fromOS(err)
	}
	defer a.removeStaged()
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
	if err := a.checkGuard(at.written(path)); err != nil {
		return err
	}
	inode, err := d.prepareFolder(a.stagedName(), at)
	if err != nil {
		return fromOS(err)
	}
	op := d.operation(activityv1.Kind_KIND_CREATE, activityv1.EntryKind_ENTRY_KIND_FOLDER, path, c.Author)
	return a.commit(op, inode, func() (bool, error) {
		if err := d.staging.rename(a.stagedName(), at.parent, at.name, false); err != nil {
			return false, err
		}
		return true, errors.Join(at.parent.Sync(), d.syncStaging())
	})
}

// prepareFolder gives a staged folder the ownership for its location, durably, and returns its inode.
func (d *Drive) prepareFolder(name string, at *location) (inode uint64, err error) {
	folder, err := d.staging.openFolder(name)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	ownership, err := at.ownership()
	if err != nil {
		return 0, err
	}
	if err := ownership.applyTo(folder.File); err != nil {
		return 0, err
	}
	st, err := folder.stat(".")
	if err != nil {
		return 0, err
	}
	return st.Ino, folder.Sync()
}
