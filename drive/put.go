package drive

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

const writeOnly = os.O_WRONLY | unix.O_NONBLOCK

// Put stores a file's content whole: readers see the old content until the new one is there and durable. size is the
// length that was announced, -1 where none was. It tells the new entry and whether the path is new.
//
// A body that fails or ends early is Broken and leaves everything as it was; refusals are NoParent, IsFolder, Linked
// and Full.
func (d *Drive) Put(ctx context.Context, path string, body io.Reader, size int64, c Change) (entry Entry, created bool, err error) {
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
	if err := d.receive(ctx, file, body, size); err != nil {
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
	if err := a.guard(); err != nil {
		return Entry{}, false, err
	}
	if err := at.bequeath(file); err != nil {
		return Entry{}, false, fromOS(err)
	}
	operation := activityv1.Kind_KIND_WRITE
	if !at.exists() {
		operation, kind, created = activityv1.Kind_KIND_CREATE, "create", true
	}
	info, err := file.Stat()
	if err != nil {
		return Entry{}, false, fromOS(err)
	}
	entry = entryOf(at.name, info)
	op := d.operation(operation, activityv1.EntryKind_ENTRY_KIND_FILE, path, c.Author)
	return entry, created, a.settle(ctx, op, entry.inode, func() (bool, error) {
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
	if at.isFolder() {
		at.close()
		return nil, errIsFolder
	}
	return at, nil
}

// receive streams a body to a file and makes it durable.
func (d *Drive) receive(ctx context.Context, file *os.File, body io.Reader, size int64) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	upload := &upload{ctx: ctx, body: body}
	n, err := io.CopyBuffer(struct{ io.Writer }{file}, upload, *buffer)
	d.drives.metrics.bytes.WithLabelValues("in").Add(float64(n))
	switch {
	case upload.err != nil:
		return upload.err
	case err != nil:
		return fromOS(err)
	case size >= 0 && n != size:
		return entity.Errorf(Broken, "%d of %d bytes arrived", n, size)
	}
	return fromOS(file.Sync())
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// upload remembers that it was the body that failed, and not the disk.
type upload struct {
	ctx  context.Context
	body io.Reader
	err  error
}

func (u *upload) Read(p []byte) (int, error) {
	if u.err = u.ctx.Err(); u.err != nil {
		return 0, u.err
	}
	n, err := u.body.Read(p)
	if err != nil && err != io.EOF {
		u.err = brokenBy(err)
	}
	return n, err
}

func brokenBy(err error) error {
	var known *entity.Error
	if errors.As(err, &known) {
		return err
	}
	return entity.Errorf(Broken, "the upload ended before its end")
}

// discard removes what was made aside unless it went into place or an unknown outcome needs it.
func (a *attempt) discard() {
	if a.kept {
		return
	}
	if st, err := a.drive.aside.stat(a.staged()); err != nil || st == nil {
		return
	}
	if err := a.drive.tmp.RemoveAll(a.staged()); err != nil {
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
