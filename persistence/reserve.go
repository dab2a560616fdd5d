package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/volume"
)

// A reserve is a file system that holds spare files in the data directory, so that the journal can create and write the files that it
// needs when others have filled the disk. A spare file is empty and has preallocated blocks: it stands for one inode and for
// some bytes.
//
//   - If the disk has no inode for a new file, a spare file is renamed to the file's name. Other processes cannot take the inode
//     in between. The blocks of the spare file are the first ones of the new file.
//   - If the disk has no block for a write, or for an entry of a directory, a spare file is removed and the operation is tried again.
//
// Compactions, checkpoints and backups may not use the reserve, because the journal continues without them. Flushes may not
// use its last quarter, except while the store is opened: it belongs to logs, manifests and marks, and to the next opening.
//
// refill makes new spare files as soon as the disk has room for them, and regain keeps the last ones.
type reserve struct {
	vfs.FS
	// dir is the folder of the spare files. folders are the folders of the files that may use the spare files.
	dir     string
	folders []string
	size    int64
	// freeFiles returns the number of files that can be made on the disk.
	freeFiles func() uint64
	logger    *slog.Logger
	// isOpened is set when the store has been opened.
	isOpened atomic.Bool

	mu sync.Mutex
	// spares are the paths of the spare files; last is the number in the name of the last one that was made.
	spares []string
	last   int
	// left is the number of spare files.
	left atomic.Int32
}

const (
	reserveName = "reserve"
	// spareFiles is the number of spare files of a full reserve. Together they have Options.MinFreeBytes, and each has at most
	// maxSpareBytes: a start writes the content of the logs to tables, and needs space for the tables.
	spareFiles    = 64
	maxSpareBytes = 1 << 20
	// lastReserve is the number of spare files that flushes leave. With fewer, no proposal is accepted on a full disk.
	lastReserve = spareFiles / 4
	// rationReserve is the number of spare files below which no rationed proposal is accepted: so the other proposals cannot use up
	// the space that essential proposals need.
	rationReserve = spareFiles / 2
	// sharedFiles and sharedBytes are the files and bytes that the reserve leaves to others on a full disk: a starting node
	// makes a socket, for example.
	sharedFiles = 8
	sharedBytes = 1 << 20

	compactionCategory = "pebble-compaction"
	flushCategory      = "pebble-memtable-flush"
)

// newReserve returns the reserve of a data directory with the spare files that it has. It changes nothing on the disk.
func newReserve(o Options) (*reserve, error) {
	fs := o.FS
	r := &reserve{
		FS: fs, dir: fs.PathJoin(o.Dir, reserveName), folders: []string{o.Dir, fs.PathJoin(o.Dir, storeName), fs.PathDir(o.Marks)},
		size:      int64(min(o.MinFreeBytes/spareFiles, maxSpareBytes)),
		freeFiles: func() uint64 { return math.MaxUint64 }, logger: o.Logger,
	}
	if fs == vfs.Default {
		r.freeFiles = func() uint64 {
			u, err := volume.Measure(o.Dir)
			if err != nil {
				return volume.Unlimited
			}
			return u.FreeFiles
		}
	}
	if err := r.list(); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return r, nil
}

// list finds the spare files. It is called again when the directory is locked, because a process that ended meanwhile may have used some.
// A file with content is no spare file: after a crash, a renamed one may have its old name again.
func (r *reserve) list() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, err := r.FS.List(r.dir)
	if err != nil && !oserror.IsNotExist(err) {
		return err
	}
	r.spares = nil
	for _, name := range names {
		var n int
		path := r.FS.PathJoin(r.dir, name)
		if _, err := fmt.Sscanf(name, "%d", &n); err != nil {
			continue
		}
		r.last = max(r.last, n)
		if info, err := r.FS.Stat(path); err == nil && info.Size() == 0 {
			r.spares = append(r.spares, path)
		}
	}
	r.left.Store(int32(len(r.spares)))
	return nil
}

// Unwrap returns the wrapped file system; see vfs.FS.
func (r *reserve) Unwrap() vfs.FS { return r.FS }

// hasNoSpace reports whether an error means that the disk has no block or no inode left.
func hasNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// least returns the number of spare files that a file may not use; spareFiles: it may use none.
func (r *reserve) least(name string, category vfs.DiskWriteCategory) int {
	switch {
	case category == compactionCategory, !slices.Contains(r.folders, r.FS.PathDir(name)):
		return spareFiles
	case category == flushCategory && r.isOpened.Load():
		return lastReserve
	}
	return 0
}

// release removes a spare file, so that the disk has room for an operation. It returns false if there is none beyond the least number.
func (r *reserve) release(least int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.spares) > least {
		if err := r.FS.Remove(r.pop()); err == nil {
			return true
		}
	}
	return false
}

// pop returns the path of a spare file that is no longer one. The caller holds mu.
func (r *reserve) pop() string {
	end := len(r.spares) - 1
	path := r.spares[end]
	r.spares = r.spares[:end]
	r.left.Store(int32(end))
	return path
}

// turn makes a spare file the file of a name. ok is false if there is none beyond the least number, or the disk has no block for the
// entry in the directory.
func (r *reserve) turn(name string, category vfs.DiskWriteCategory, least int) (file vfs.File, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spares) <= least {
		return nil, false
	}
	path := r.pop()
	file, err := r.FS.ReuseForWrite(path, name, category)
	if err != nil {
		_ = r.FS.Remove(path) // another file system, or no block: then its own may do
		return nil, false
	}
	return file, true
}

// Create creates a file, from a spare file if the disk is full.
func (r *reserve) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	least := r.least(name, category)
	for {
		file, err := r.FS.Create(name, category)
		if !hasNoSpace(err) || least == spareFiles {
			return r.wrap(file, err, least)
		}
		if file, ok := r.turn(name, category, least); ok {
			return r.wrap(file, nil, least)
		}
		if r.left.Load() <= int32(least) {
			return file, err
		}
	}
}

// ReuseForWrite renames an obsolete file, for the caller to overwrite it.
func (r *reserve) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	least := r.least(to, category)
	for {
		file, err := r.FS.ReuseForWrite(from, to, category)
		if !hasNoSpace(err) || !r.release(least) {
			return r.wrap(file, err, least)
		}
	}
}

// Rename renames a file. A file that had the name before is removed.
func (r *reserve) Rename(from, to string) error {
	least := r.least(to, vfs.WriteCategoryUnspecified)
	for {
		err := r.FS.Rename(from, to)
		if err == nil {
			r.regain()
		}
		if !hasNoSpace(err) || !r.release(least) {
			return err
		}
	}
}

// Remove removes a file.
func (r *reserve) Remove(name string) error {
	err := r.FS.Remove(name)
	if err == nil {
		r.regain()
	}
	return err
}

// regain makes a spare file of the space of a file that the journal has just removed, if the disk is full and only spare files for the
// next opening are left. Each opening needs files before it removes the files that they replace, which others would take on a full disk:
// after a few openings nothing would be left for the next one.
func (r *reserve) regain() {
	if r.left.Load() >= lastReserve {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spares) < lastReserve {
		_ = r.makeSpare() // refill tries again
	}
}

// wrap returns a reservedFile for a file that may use the reserve, and other files and errors unchanged.
func (r *reserve) wrap(file vfs.File, err error, least int) (vfs.File, error) {
	if err != nil || least == spareFiles {
		return file, err
	}
	return &reservedFile{file, r, least}, nil
}

// A reservedFile is a file that may use the reserve when it is written.
type reservedFile struct {
	vfs.File
	reserve *reserve
	least   int
}

func (f *reservedFile) Write(p []byte) (written int, err error) {
	for {
		n, err := f.File.Write(p[written:])
		written += n
		if !hasNoSpace(err) || !f.reserve.release(f.least) {
			return written, err
		}
	}
}

func (f *reservedFile) WriteAt(p []byte, at int64) (written int, err error) {
	for {
		n, err := f.File.WriteAt(p[written:], at+int64(written))
		written += n
		if !hasNoSpace(err) || !f.reserve.release(f.least) {
			return written, err
		}
	}
}

// isFree reports whether the disk has so many free files and bytes.
func (r *reserve) isFree(files, bytes uint64) bool {
	usage, err := r.FS.GetDiskUsage(r.FS.PathDir(r.dir))
	return (err != nil || usage.AvailBytes >= bytes) && r.freeFiles() >= files
}

// share removes spare files until others can make sharedFiles files, or all spare files are removed but the files for the next opening.
func (r *reserve) share() {
	for n := 0; n < sharedFiles && !r.isFree(sharedFiles, sharedBytes) && r.release(lastReserve); n++ {
	}
}

// refill makes the missing spare files as far as the disk has room.
func (r *reserve) refill() {
	if r.left.Load() == spareFiles {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.spares) < spareFiles && r.isFree(sharedFiles+1, sharedBytes+uint64(r.size)) {
		if err := r.makeSpare(); err != nil {
			r.logger.Warn("cannot make a spare file of the journal, will retry", "folder", r.dir, "error", err)
			return
		}
	}
}

// makeSpare makes a spare file. The caller holds mu.
func (r *reserve) makeSpare() error {
	if err := r.FS.MkdirAll(r.dir, 0o750); err != nil {
		return err
	}
	path := r.FS.PathJoin(r.dir, fmt.Sprintf("%08d", r.last+1))
	file, err := r.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	r.last++
	err = file.Preallocate(0, r.size)
	if !hasNoSpace(err) {
		err = nil // a file system that cannot preallocate blocks reserves inodes alone
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, r.FS.Remove(path))
	}
	r.spares = append(r.spares, path)
	r.left.Store(int32(len(r.spares)))
	return nil
}
