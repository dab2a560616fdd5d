package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// A Property is a WebDAV dead property: its element's name, the attributes as they are written, and what is inside.
type Property struct {
	Space string `json:"s,omitempty"`
	Local string `json:"l"`
	Attrs string `json:"a,omitempty"`
	Inner string `json:"v,omitempty"`
}

const (
	propsAttribute = "user.atelier.props"
	// maxProps is the kernel's bound for an extended attribute; file systems may hold less.
	maxProps = 64 << 10
)

// Properties are the dead properties of a path.
func (d *Drive) Properties(path string) ([]Property, error) {
	tree, done := d.useTree()
	defer done()
	file, err := tree.inside.OpenFile(orDot(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, unlessForbidden(err)
	}
	defer file.Close()
	props, err := parseProps(func(into []byte) (int, error) {
		return unix.Fgetxattr(int(file.Fd()), propsAttribute, into)
	})
	return props, unlessForbidden(err)
}

// unlessForbidden is fromOS for reading properties: what cannot be read is listed without them.
func unlessForbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return fromOS(err)
}

// Patch changes the dead properties of a path as a whole, durably. It is Full where they cannot be kept.
func (d *Drive) Patch(ctx context.Context, path string, c Change, edit func([]Property) []Property) (err error) {
	defer func() { d.drives.metrics.ended("patch", err) }()
	unlock, err := d.locks.acquire(ctx, path)
	if err != nil {
		return err
	}
	defer unlock()
	if c.Guard != nil {
		if err := c.Guard(); err != nil {
			return err
		}
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
	if err := writeProps(file, edit(props)); err != nil {
		return fromOS(err)
	}
	return fromOS(file.Sync())
}

func (d *Drive) openToPatch(path string) (*os.File, error) {
	if path == "" {
		tree, done := d.useTree()
		defer done()
		root, err := tree.files.folder(".")
		return root.File, fromOS(err)
	}
	at, err := d.locateExisting(path)
	if err != nil {
		return nil, err
	}
	defer at.close()
	if at.isFolder() {
		folder, err := at.parent.folder(at.name)
		return folder.File, fromOS(err)
	}
	file, err := at.parent.file(at.name)
	if errors.Is(err, unix.ELOOP) {
		return nil, errLinked
	}
	return file, fromOS(err)
}

// readProps reads them by name: through the descriptor's entry in /proc, for want of a call that takes a folder.
func readProps(folder handle, name string) ([]Property, error) {
	path := "/proc/self/fd/" + strconv.Itoa(folder.fd()) + "/" + name
	return parseProps(func(into []byte) (int, error) { return unix.Lgetxattr(path, propsAttribute, into) })
}

func parseProps(read func(into []byte) (int, error)) ([]Property, error) {
	// Most entries have none: ask for the size first.
	n, err := read(nil)
	if absent(err) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value := make([]byte, maxProps)
	if n, err = read(value); absent(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var props []Property
	if json.Unmarshal(value[:n], &props) != nil {
		// A process wrote it; what cannot be read is as good as absent.
		return nil, nil
	}
	return props, nil
}

func absent(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT)
}

var errNoRoom = entity.Errorf(Full, "there is no room for the properties here")

func writeProps(file *os.File, props []Property) error {
	if len(props) == 0 {
		if err := unix.Fremovexattr(int(file.Fd()), propsAttribute); !absent(err) {
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
		return errNoRoom
	}
	err := unix.Fsetxattr(int(file.Fd()), propsAttribute, value.Bytes(), 0)
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT, unix.ENOTSUP, unix.E2BIG, unix.ERANGE, unix.EPERM} {
		if errors.Is(err, full) {
			return errNoRoom
		}
	}
	return err
}
