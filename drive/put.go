package drive

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const writeOnly = os.O_WRONLY | unix.O_NONBLOCK

// An Upload is the content of a file on its way in.
type Upload struct {
	Body io.Reader
	// Size is the length that was announced, -1 where none was.
	Size int64
	// Modified is the time that the file gets; zero: now.
	Modified time.Time
}

// Put stores a file's content whole: readers see the old content until the new one is there and durable. It tells the
// new entry and whether the path is new.
//
// A body that fails or ends early is Broken and leaves everything as it was; refusals are NoParent, IsFolder, Linked,
// LimitReached and Full.
func (d *Drive) Put(ctx context.Context, path string, upload Upload, c Change) (entry Entry, created bool, err error) {
	kind := "write"
	defer func() { d.drives.metrics.ended(kind, err) }()
	if err := checkChange(path); err != nil {
		return Entry{}, false, err
	}
	a, err := d.begin(c)
	if err != nil {
		return Entry{}, false, err
	}
	defer a.end()
	// Ask what can be refused before the body comes; it is asked again under the lock.
	if err := d.wouldPut(path, a); err != nil {
		return Entry{}, false, err
	}
	file, err := d.tmp.OpenFile(a.staged(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return Entry{}, false, fromOS(err)
	}
	defer file.Close()
	defer a.discard()
	if err := d.receive(ctx, file, upload); err != nil {
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
	entry, err = a.place(ctx, file, at, path)
	return entry, created, err
}

// place puts an upload that arrived into its place.
func (a *attempt) place(ctx context.Context, file *os.File, at *place, path string) (Entry, error) {
	if err := a.guard(); err != nil {
		return Entry{}, err
	}
	if err := at.bequeath(file); err != nil {
		return Entry{}, fromOS(err)
	}
	info, err := file.Stat()
	if err != nil {
		return Entry{}, fromOS(err)
	}
	// A row of a write names no kind of entry: it is of a file.
	kind, entryKind := activityv1.Kind_KIND_WRITE, activityv1.EntryKind_ENTRY_KIND_UNSPECIFIED
	if !at.exists() {
		kind, entryKind = activityv1.Kind_KIND_CREATE, activityv1.EntryKind_ENTRY_KIND_FILE
	}
	d, entry := a.drive, entryOf(at.name, info)
	op := d.operation(kind, entryKind, path, a.change.Author)
	return entry, a.settle(ctx, op, entry.inode, func() (bool, error) {
		if err := d.aside.rename(a.staged(), at.parent, at.name, at.exists()); err != nil {
			return false, err
		}
		return true, errors.Join(at.parent.Sync(), d.aside.Sync())
	})
}

func (d *Drive) wouldPut(path string, a *attempt) error {
	at, err := d.locateFile(path)
	if err != nil {
		return err
	}
	at.close()
	return a.guard()
}

// locateFile is locate for a path where a file is, or may be made.
func (d *Drive) locateFile(path string) (*place, error) {
	at, err := d.locate(path)
	if err != nil {
		return nil, err
	}
	switch {
	case at.isFolder():
		err = errIsFolder
	case !at.exists():
		err = checkDepth(path)
	}
	if err != nil {
		at.close()
		return nil, err
	}
	return at, nil
}

// receive streams an upload to a file and makes it durable.
func (d *Drive) receive(ctx context.Context, file *os.File, upload Upload) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	body := &body{ctx: ctx, Reader: upload.Body}
	n, err := io.CopyBuffer(struct{ io.Writer }{file}, body, *buffer)
	d.drives.metrics.bytes.WithLabelValues("in").Add(float64(n))
	switch {
	case body.err != nil:
		return body.err
	case err != nil:
		return fromOS(err)
	case upload.Size >= 0 && n != upload.Size:
		return entity.Errorf(Broken, "%d of %d bytes arrived", n, upload.Size)
	}
	if at := upload.Modified; !at.IsZero() {
		if err := unix.Futimes(int(file.Fd()), []unix.Timeval{unix.NsecToTimeval(at.UnixNano()), unix.NsecToTimeval(at.UnixNano())}); err != nil {
			return fromOS(err)
		}
	}
	return fromOS(file.Sync())
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// A body remembers that it was the body that failed, and not the disk.
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
	if err != nil && err != io.EOF {
		b.err = entity.Errorf(Broken, "the upload ended before its end")
	}
	return n, err
}

// discard removes what was made aside unless it went into place or an unknown outcome needs it. A folder with something
// in it stays for the sweep.
func (a *attempt) discard() {
	if a.kept {
		return
	}
	st, err := a.drive.aside.stat(a.staged())
	if err != nil || st == nil {
		return
	}
	flags := 0
	if isFolder(st) {
		flags = unix.AT_REMOVEDIR
	}
	if err := a.drive.aside.unlink(a.staged(), flags); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		a.drive.drives.log.Error("cannot remove what was made aside", "workspace", a.drive.workspaceID, "error", err)
	}
}

// bequeath gives a new file what it takes over: mode and properties of the file that it replaces, the owner of that
// or else of the folder. What it changed is durable when it ends.
func (p *place) bequeath(file *os.File) error {
	owner, err := p.owner()
	if err != nil {
		return err
	}
	props, err := p.heritage(file, owner)
	if err != nil {
		return err
	}
	if !p.isFile() && owner.isServer() {
		return nil
	}
	if len(props) > 0 {
		if err := writeProps(file, props); err != nil {
			return err
		}
	}
	return file.Sync()
}

// heritage gives owner and mode, and tells the properties to take over.
func (p *place) heritage(file *os.File, owner owner) ([]Property, error) {
	if err := owner.give(file); err != nil || !p.isFile() {
		return nil, err
	}
	if err := unix.Fchmod(int(file.Fd()), p.st.Mode&0o777); err != nil {
		return nil, err
	}
	return readProps(p.parent, p.name)
}
