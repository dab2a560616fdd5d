package drive

import (
	"cmp"
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
	if err := cmp.Or(checkTransfer(from, to), checkDepth(to)); err != nil {
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
	if op.Count, err = d.stageCopy(ctx, source, from, a.staged(), to, shallow); err != nil {
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

// stageCopy copies what is at a path to a name in tmp, durably, and counts the entries where it is a folder.
func (d *Drive) stageCopy(ctx context.Context, source *place, from, name, to string, shallow bool) (uint64, error) {
	owner, err := d.ownerAt(to)
	if err != nil {
		return 0, err
	}
	c := &copier{ctx: ctx, tmp: d.tmp, owner: owner, staged: name, to: to}
	if !source.isFolder() {
		return 0, errors.Join(c.entry(source.parent, source.name, source.st, name, true), d.aside.Sync())
	}
	source.close() // the walk opens what it needs
	if !shallow {
		leave, err := d.drives.copying.enter(ctx)
		if err != nil {
			return 0, err
		}
		defer leave()
	}
	w := &walk{ctx: ctx, enter: c.enter, leave: c.leave}
	if !shallow {
		w.file = c.visit
	}
	c.shallow = shallow
	if err := d.walk(from, w); err != nil {
		return 0, err
	}
	// One flush of the file system costs less than one of each file.
	return c.count, unix.Syncfs(d.aside.fd())
}

// ownerAt is the owner of what is to be made at a path.
func (d *Drive) ownerAt(path string) (owner, error) {
	target, err := d.locate(path)
	if err != nil {
		return owner{}, err
	}
	defer target.close()
	return target.owner()
}

// A copier copies entries of a drive to tmp.
type copier struct {
	ctx     context.Context
	tmp     *os.Root
	owner   owner
	shallow bool
	// staged is the name in tmp, to the path that the copy is for.
	staged, to string
	count      uint64
}

// at is the name in tmp of the copy of what is at a path of the walk.
func (c *copier) at(path string) string {
	if path == "" {
		return c.staged
	}
	return join(c.staged, path)
}

// enter makes a folder, which leave finishes.
func (c *copier) enter(path string, depth int) (visit bool, err error) {
	if c.shallow && depth > 0 {
		return false, nil
	}
	if err := tooDeep(c.to, depth); err != nil {
		return false, err
	}
	c.count++
	return true, c.tmp.Mkdir(c.at(path), 0o700)
}

func (c *copier) leave(folder handle, path string) error {
	st, err := folder.stat(".")
	if err != nil || st == nil {
		return err
	}
	target, err := c.tmp.Open(c.at(path))
	if err != nil {
		return err
	}
	defer target.Close()
	return c.dress(target, folder, ".", st)
}

func (c *copier) visit(from handle, name, path string, st *unix.Stat_t, depth int) error {
	if err := tooDeep(c.to, depth); err != nil {
		return err
	}
	err := c.entry(from, name, st, c.at(path), false)
	if err == nil {
		c.count++
	}
	return err
}

// entry copies what is no folder. Pipes, sockets and devices are no content of a drive.
func (c *copier) entry(from handle, name string, st *unix.Stat_t, to string, sync bool) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.file(from, name, st, to, sync)
	case unix.S_IFLNK:
		return c.link(from, name, to)
	}
	return errNotFound
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
