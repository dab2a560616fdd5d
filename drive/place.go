package drive

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A place is where an operation changes the drive: an open folder, a name in it, and what is there now.
type place struct {
	parent handle
	name   string
	// st is nil where nothing is there.
	st *unix.Stat_t
}

// locate opens the place of a path. It follows no link: a path through one is Linked.
func (d *Drive) locate(at string) (*place, error) {
	dir, name := path.Split(at)
	tree, done := d.useTree()
	defer done()
	parent, err := tree.files.descend(strings.TrimSuffix(dir, "/"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, errNoParent
	}
	if err != nil {
		return nil, fromOS(err)
	}
	st, err := parent.stat(name)
	if err != nil {
		parent.Close()
		return nil, fromOS(err)
	}
	return &place{parent: parent, name: name, st: st}, nil
}

// locateExisting is locate for a path where something must be.
func (d *Drive) locateExisting(at string) (*place, error) {
	p, err := d.locate(at)
	switch {
	case errors.Is(err, errNoParent):
		return nil, errNotFound
	case err != nil:
		return nil, err
	case p.st == nil:
		p.close()
		return nil, errNotFound
	}
	return p, nil
}

func (p *place) close() { p.parent.Close() }

func (p *place) exists() bool { return p.st != nil }

func (p *place) isFolder() bool { return p.st != nil && p.st.Mode&unix.S_IFMT == unix.S_IFDIR }

func (p *place) isFile() bool { return p.st != nil && p.st.Mode&unix.S_IFMT == unix.S_IFREG }

func (p *place) entryKind() activityv1.EntryKind {
	if p.isFolder() {
		return activityv1.EntryKind_ENTRY_KIND_FOLDER
	}
	return activityv1.EntryKind_ENTRY_KIND_FILE
}

// checkChange tells why a path cannot be changed.
func checkChange(at string) error {
	if at == "" {
		return errRoot
	}
	if err := entity.CheckPath(at); err != nil {
		return err
	}
	return nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
