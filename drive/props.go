package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
)

// A Property is a WebDAV dead property (RFC 4918, section 4.1): the namespace and local name of its element, and the element's
// attributes and content as XML. Processes can store any text as any of them, so that readers validate them.
type Property struct {
	Space string `json:"s,omitempty"`
	Local string `json:"l"`
	Attrs string `json:"a,omitempty"`
	Inner string `json:"v,omitempty"`
}

const (
	// propsAttribute is the extended attribute that stores the properties of an entry, as JSON.
	propsAttribute = "user.atelier.props"
	// maxProps is the kernel's limit for the size of an extended attribute, in bytes; file systems may have a lower one.
	maxProps = 64 << 10
)

// Properties returns the dead properties of the entry at a path. It returns NotFound if there is no entry, and no
// properties if the server lacks the permission to read them.
func (d *Drive) Properties(at string) ([]Property, error) {
	tree, done := d.useTree()
	defer done()
	file, err := tree.inside.OpenFile(orDot(at), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EWOULDBLOCK) { // a process holds a lease: do not open the file
		dir, name := path.Split(at)
		folder, err := d.OpenFolder(strings.TrimSuffix(dir, "/"))
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		return folder.Properties(name)
	}
	if err != nil {
		return nil, ignoreForbidden(asOpenError(err))
	}
	defer file.Close()
	props, err := parseProps(func(into []byte) (int, error) {
		return unix.Fgetxattr(int(file.Fd()), propsAttribute, into)
	})
	return props, ignoreForbidden(err)
}

// ignoreForbidden is fromOS for reading properties: an entry that the server may not read is listed without them.
func ignoreForbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fromOS(err)
}

// Patch replaces the dead properties of the entry at a path by the result of edit, and sets its modification time to the one of the change, if
// there is one, durably. It records no row. It returns NotFound or Linked, the errors of the change's functions and of edit, Full if the file
// system has no space for the properties or does not support them, and TimeOutOfRange. After an error nothing was changed.
func (d *Drive) Patch(ctx context.Context, path string, c Change, edit func([]Property) ([]Property, error)) (err error) {
	defer func() { d.drives.metrics.countOperation("patch", err) }()
	unlock, err := d.locks.acquire(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.checkGuard(c, locks.Effect{Path: path}); err != nil {
		return err
	}
	if err := c.confirm(); err != nil {
		return err
	}
	file, err := d.openToPatch(path)
	if err != nil {
		return err
	}
	defer file.Close()
	props, err := parseProps(func(into []byte) (int, error) {
		return unix.Fgetxattr(int(file.Fd()), propsAttribute, into)
	})
	if err != nil {
		return fromOS(err)
	}
	if props, err = edit(props); err != nil {
		return err
	}
	undo, err := patchModified(file, c.Modified)
	if err != nil {
		return fromOS(err)
	}
	if err := writeProps(file, props); err != nil {
		return fromOS(errors.Join(err, undo()))
	}
	return fromOS(file.Sync())
}

// patchModified sets the modification time of a file or folder, unless the time is zero. It returns TimeOutOfRange, with nothing changed, if the
// file system stores another second in its place. undo sets the time as it was.
func patchModified(file *os.File, at time.Time) (undo func() error, err error) {
	if at.IsZero() {
		return func() error { return nil }, nil
	}
	before, err := file.Stat()
	if err != nil {
		return nil, err
	}
	undo = func() error { return setModified(file, before.ModTime()) }
	if err := setModified(file, at); err != nil {
		return nil, err
	}
	after, err := file.Stat()
	if err == nil && after.ModTime().Unix() != at.Unix() {
		err = entity.Errorf(TimeOutOfRange, "the file system has no such modification time")
	}
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

func (d *Drive) openToPatch(path string) (*os.File, error) {
	if path == "" {
		tree, done := d.useTree()
		defer done()
		root, err := tree.files.openFolder(".")
		return root.File, fromOS(err)
	}
	at, err := d.locateExisting(path)
	if err != nil {
		return nil, err
	}
	defer at.close()
	if at.isFolder() {
		folder, err := at.parent.openFolder(at.name)
		return folder.File, fromOS(err)
	}
	file, err := at.parent.openFile(at.name)
	if errors.Is(err, unix.ELOOP) {
		return nil, errLinked
	}
	return file, fromOS(err)
}

// readProps reads the properties of an entry by name, without opening it. Linux has no getxattrat before 6.13, so the
// path goes through the folder's descriptor in /proc.
func readProps(folder handle, name string) ([]Property, error) {
	path := "/proc/self/fd/" + strconv.Itoa(folder.fd()) + "/" + name
	return parseProps(func(into []byte) (int, error) { return unix.Lgetxattr(path, propsAttribute, into) })
}

func parseProps(read func(into []byte) (int, error)) ([]Property, error) {
	// Most entries have no properties, so ask for the size before allocating.
	n, err := read(nil)
	if isAbsent(err) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value := make([]byte, maxProps)
	if n, err = read(value); isAbsent(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var props []Property
	if json.Unmarshal(value[:n], &props) != nil {
		// A process has overwritten the attribute. Treat it as absent.
		return nil, nil
	}
	return props, nil
}

// isAbsent reports whether an error of reading an attribute means that the entry has none.
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT)
}

var errNoPropertySpace = entity.Errorf(Full, "the file system has no space for the properties, or does not support them")

func writeProps(file *os.File, props []Property) error {
	if len(props) == 0 {
		if err := unix.Fremovexattr(int(file.Fd()), propsAttribute); !isAbsent(err) {
			return err
		}
		return nil
	}
	var value bytes.Buffer
	encoder := json.NewEncoder(&value)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(props); err != nil {
		return err
	}
	if value.Len() > maxProps {
		return errNoPropertySpace
	}
	err := unix.Fsetxattr(int(file.Fd()), propsAttribute, value.Bytes(), 0)
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT, unix.ENOTSUP, unix.E2BIG, unix.ERANGE, unix.EPERM} {
		if errors.Is(err, full) {
			return errNoPropertySpace
		}
	}
	return err
}
