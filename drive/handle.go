package drive

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A handle is an open folder. Its methods take the name of an entry, a single segment, and never follow a link.
type handle struct{ *os.File }

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (h handle) fd() int { return int(h.Fd()) }

// stat returns an entry's attributes, or nil without an error if it does not exist.
func (h handle) stat(name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := retryEINTR(func() error { return unix.Fstatat(h.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return &st, nil
}

// openFolder opens a folder in it for reading.
func (h handle) openFolder(name string) (handle, error) {
	return h.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// openFile opens a regular file in it for reading. Opening a pipe, socket or device does not block and fails with errNotFound.
func (h handle) openFile(name string) (*os.File, error) {
	f, err := h.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, asOpenError(err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errNotFound, err, f.Close())
	}
	return f.File, nil
}

// create creates a file with a mode in it, for writing. It fails with EEXIST if the name is in use.
func (h handle) create(name string, mode uint32) (*os.File, error) {
	f, err := h.openMode(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode)
	return f.File, err
}

func (h handle) open(name string, flags int) (handle, error) { return h.openMode(name, flags, 0) }

func (h handle) openMode(name string, flags int, mode uint32) (handle, error) {
	var fd int
	err := retryEINTR(func() (err error) {
		fd, err = unix.Openat(h.fd(), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return handle{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return handle{os.NewFile(uintptr(fd), name)}, nil
}

// rename moves an entry to another folder. With replace it may replace a file; otherwise it fails with EEXIST if the new
// name is in use.
func (h handle) rename(name string, to handle, newName string, replace bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	err := retryEINTR(func() error { return unix.Renameat2(h.fd(), name, to.fd(), newName, flags) })
	if err != nil {
		return &os.LinkError{Op: "rename", Old: name, New: newName, Err: err}
	}
	return nil
}

// setModified sets the modification time of an open file or folder, unless the time is zero. It leaves the time of the last access.
func setModified(file *os.File, at time.Time) error {
	if at.IsZero() {
		return nil
	}
	return setModifiedAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(file.Fd())), at, 0)
}

// setModified is the function setModified for an entry of the folder; a link gets the time itself.
func (h handle) setModified(name string, at time.Time) error {
	if at.IsZero() {
		return nil
	}
	return setModifiedAt(h.fd(), name, at, unix.AT_SYMLINK_NOFOLLOW)
}

func setModifiedAt(folder int, name string, at time.Time, flags int) error {
	// Not by nanoseconds since the Unix epoch in one number, which end in 2262.
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: at.Unix(), Nsec: int64(at.Nanosecond())}}
	return retryEINTR(func() error { return unix.UtimesNanoAt(folder, name, times, flags) })
}

// unlink deletes an entry of the folder; flags are those of unlinkat(2). It succeeds if the entry does not exist.
func (h handle) unlink(name string, flags int) error {
	err := retryEINTR(func() error { return unix.Unlinkat(h.fd(), name, flags) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// makeAccessible gives the owner of a folder all permissions on it. It changes the mode through a descriptor, because the
// name could be replaced by a link in between.
func (h handle) makeAccessible(name string) error {
	folder, err := h.open(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer folder.Close()
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(folder.fd()), 0o700)
}

// discard moves an entry that is to be deleted to the folder trash. Processes may have left a folder without permissions for its
// owner, and moving a folder to another parent needs write permission on the folder itself.
func (h handle) discard(name string, trash handle, newName string) error {
	err := h.rename(name, trash, newName, false)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	st, failed := h.stat(name)
	if failed != nil || st == nil || !isFolder(st) || st.Mode&unix.S_IWUSR != 0 || h.makeAccessible(name) != nil {
		return err
	}
	return h.rename(name, trash, newName, false)
}

// eachName calls visit with the name of each entry. It reads the names in batches, so that memory does not grow with
// the folder, and ends with visit's first error.
func (h handle) eachName(visit func(name string) error) error {
	for {
		names, err := h.Readdirnames(256)
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if err != nil && !isEOF(err) {
				return err
			}
			return nil
		}
	}
}

// descend opens the folder at a path below it, segment by segment. It fails with errLinked if a segment is a link.
func (h handle) descend(path string) (handle, error) {
	if path == "" {
		return h.openFolder(".")
	}
	at := h
	for segment := range strings.SplitSeq(path, "/") {
		next, err := at.openFolder(segment)
		if err != nil {
			if st, _ := at.stat(segment); st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
				err = errLinked
			}
			next = handle{}
		}
		if at != h {
			at.Close()
		}
		if err != nil {
			return handle{}, err
		}
		at = next
	}
	return at, nil
}

func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// A location is the target of an operation: an open parent folder, a name in it, and the attributes of the entry that has
// the name.
type location struct {
	parent handle
	name   string
	// st is nil if no entry has the name.
	st *unix.Stat_t
}

// locate opens the location of a path. It returns NoParent if the parent folder does not exist, and Linked if the
// path goes through a link. The caller closes the location.
func (d *Drive) locate(at string) (*location, error) {
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
	return &location{parent: parent, name: name, st: st}, nil
}

// locateExisting is locate for a path that must exist. It returns NotFound if there is no entry.
func (d *Drive) locateExisting(at string) (*location, error) {
	l, err := d.locate(at)
	switch {
	case errors.Is(err, errNoParent):
		return nil, errNotFound
	case err != nil:
		return nil, err
	case l.st == nil:
		l.close()
		return nil, errNotFound
	}
	return l, nil
}

// touch sets the modification time of the entry with the attributes st that was moved to the location, unless the time is zero. The entry keeps
// its time if the server lacks the permission to set it, or a process has taken the entry away meanwhile. The time of a file or folder is
// durable afterwards.
func (l *location) touch(st *unix.Stat_t, at time.Time) error {
	if at.IsZero() {
		return nil
	}
	if err := l.parent.setModified(l.name, at); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return ignorePermission(err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return nil
	}
	entry, err := l.parent.open(l.name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil // an entry that the server may not read
	}
	defer entry.Close()
	return entry.Sync()
}

func (l *location) close() { l.parent.Close() }

func (l *location) exists() bool { return l.st != nil }

func (l *location) isFolder() bool { return l.st != nil && isFolder(l.st) }

func (l *location) isFile() bool { return l.st != nil && l.st.Mode&unix.S_IFMT == unix.S_IFREG }

func (l *location) entryKind() activityv1.EntryKind {
	if l.isFolder() {
		return activityv1.EntryKind_ENTRY_KIND_FOLDER
	}
	return activityv1.EntryKind_ENTRY_KIND_FILE
}

func isFolder(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// validateChangePath returns an error if an operation may not change the path: the root stays, other paths must satisfy
// entity.CheckPath.
func validateChangePath(at string) error {
	if at == "" {
		return errRoot
	}
	if err := entity.CheckPath(at); err != nil {
		return err // not returned directly: a nil *entity.Error is not a nil error
	}
	return nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// An ownership is the user and group of an entry. New entries get an ownership that lets the workspace's processes use them.
type ownership struct{ uid, gid uint32 }

// ownership returns the ownership for a new entry at the location. The new entry gets it from the file that it replaces,
// or else from the parent folder.
func (l *location) ownership() (ownership, error) {
	if l.isFile() {
		return ownership{l.st.Uid, l.st.Gid}, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(l.parent.fd(), &st); err != nil {
		return ownership{}, err
	}
	return ownership{st.Uid, st.Gid}, nil
}

// applyTo changes the ownership of an open file. Without the privilege to do so it leaves the server's.
func (o ownership) applyTo(file *os.File) error {
	if o.isProcess() {
		return nil
	}
	return ignorePermission(unix.Fchown(int(file.Fd()), int(o.uid), int(o.gid)))
}

// applyToLink is applyTo for a link in a folder, which cannot be opened.
func (o ownership) applyToLink(folder handle, name string) error {
	if o.isProcess() {
		return nil
	}
	return ignorePermission(unix.Fchownat(folder.fd(), name, int(o.uid), int(o.gid), unix.AT_SYMLINK_NOFOLLOW))
}

// applyToPath is applyTo for a link at a path below root.
func (o ownership) applyToPath(root *os.Root, path string) error {
	if o.isProcess() {
		return nil
	}
	return ignorePermission(root.Lchown(path, int(o.uid), int(o.gid)))
}

// isProcess reports whether entries that this process creates have the ownership anyway.
func (o ownership) isProcess() bool { return o == processOwnership }

// processOwnership is the ownership of entries that this process creates.
var processOwnership = ownership{uint32(os.Geteuid()), uint32(os.Getegid())}

func ignorePermission(err error) error {
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
