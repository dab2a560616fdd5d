package drive

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Copy makes a copy of a file, or of a folder with all below it unless shallow. It tells whether something was
// replaced. The copy is made aside and appears whole. Refusals are those of Move, and Full.
//
// Each file in it is whole; a folder that changes meanwhile is copied as each part was when its turn came.
func (d *Drive) Copy(ctx context.Context, from, to string, overwrite, shallow bool, c Change) (replaced bool, err error) {
	defer func() { d.drives.metrics.ended("copy", err) }()
	if err := checkTransfer(from, to); err != nil {
		return false, err
	}
	a, err := d.begin(c)
	if err != nil {
		return false, err
	}
	defer d.sweep()
	defer a.end()
	// Ask what can be refused at once before copying for long; it is asked again under the lock.
	if err := d.wouldCopy(to, overwrite, a); err != nil {
		return false, err
	}
	source, err := d.locateExisting(from)
	if err != nil {
		return false, err
	}
	defer source.close()
	defer a.discard()
	op := d.operation(activityv1.Kind_KIND_CREATE, source.entryKind(), to, c.Author)
	if op.Count, err = d.stageCopy(ctx, source, a.staged(), to, shallow); err != nil {
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
	if err := a.guard(); err != nil {
		return false, err
	}
	staged, err := d.aside.stat(a.staged())
	if err != nil || staged == nil {
		return false, errors.Join(fromOS(err), errNotFound)
	}
	return target.exists(), a.settle(ctx, op, staged.Ino, func() (bool, error) {
		if err := a.install(d.aside, a.staged(), staged, target); err != nil {
			return false, err
		}
		return true, errors.Join(target.parent.Sync(), d.aside.Sync())
	})
}

func (d *Drive) wouldCopy(to string, overwrite bool, a *attempt) error {
	target, err := d.locateTarget(to, overwrite)
	if err != nil {
		return err
	}
	target.close()
	return a.guard()
}

// stageCopy copies to a name in tmp, durably, and counts the entries where it is a folder.
func (d *Drive) stageCopy(ctx context.Context, source *place, name, to string, shallow bool) (uint64, error) {
	target, err := d.locate(to)
	if err != nil {
		return 0, err
	}
	defer target.close()
	owner, err := target.owner()
	if err != nil {
		return 0, err
	}
	if source.isFolder() && !shallow {
		leave, err := d.drives.copying.enter(ctx)
		if err != nil {
			return 0, err
		}
		defer leave()
	}
	copier := &copier{ctx: ctx, tmp: d.tmp, owner: owner, shallow: shallow}
	if err := copier.entry(source.parent, source.name, source.st, name, 1); err != nil {
		return 0, err
	}
	if !source.isFolder() {
		return 0, d.aside.Sync()
	}
	// One flush of the file system costs less than one of each file.
	return copier.count, unix.Syncfs(d.aside.fd())
}

// A copier copies entries of a drive to tmp.
type copier struct {
	ctx     context.Context
	tmp     *os.Root
	owner   owner
	shallow bool
	count   uint64
}

func (c *copier) entry(from handle, name string, st *unix.Stat_t, to string, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	c.count++
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.file(from, name, st, to, depth == 1)
	case unix.S_IFDIR:
		return c.folder(from, name, st, to, depth)
	case unix.S_IFLNK:
		return c.link(from, name, to)
	}
	// Pipes, sockets and devices are no content of a drive.
	c.count--
	if depth == 1 {
		return errNotFound
	}
	return nil
}

func (c *copier) file(from handle, name string, st *unix.Stat_t, to string, sync bool) error {
	source, err := from.file(name)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := c.tmp.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer target.Close()
	if err := c.content(target, source); err != nil {
		return err
	}
	if err := c.dress(target, from, name, st); err != nil || !sync {
		return err
	}
	return target.Sync()
}

// content copies in pieces, so that a client that went away is noticed; the kernel does the copying.
func (c *copier) content(target, source *os.File) error {
	for {
		n, err := io.CopyN(target, source, 64<<20)
		if n == 0 || err != nil {
			if isEOF(err) {
				return nil
			}
			return err
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
}

// dress gives a copy mode, owner and properties.
func (c *copier) dress(target *os.File, from handle, name string, st *unix.Stat_t) error {
	props, err := readProps(from, name)
	if err != nil {
		return err
	}
	if len(props) > 0 {
		if err := writeProps(target, props); err != nil {
			return err
		}
	}
	if err := c.owner.give(target); err != nil {
		return err
	}
	return unix.Fchmod(int(target.Fd()), st.Mode&0o777)
}

func (c *copier) folder(from handle, name string, st *unix.Stat_t, to string, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	folder, err := from.folder(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := c.tmp.Mkdir(to, 0o700); err != nil {
		return err
	}
	if !c.shallow {
		if err := c.children(folder, to, depth); err != nil {
			return err
		}
	}
	target, err := c.tmp.Open(to)
	if err != nil {
		return err
	}
	defer target.Close()
	return c.dress(target, from, name, st)
}

func (c *copier) children(folder handle, to string, depth int) error {
	return folder.names(func(child string) error {
		st, err := folder.stat(child)
		if err != nil || st == nil {
			return err
		}
		return c.entry(folder, child, st, to+"/"+child, depth+1)
	})
}

// link copies a link as a link. Where it leads does not matter: nothing outside can be reached through it.
func (c *copier) link(from handle, name, to string) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(from.fd(), name, target)
	if err != nil {
		return err
	}
	if err := c.tmp.Symlink(string(target[:n]), to); err != nil {
		return err
	}
	return c.owner.giveName(c.tmp, to)
}
