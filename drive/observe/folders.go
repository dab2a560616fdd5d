package observe

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxFolders bounds the folders with known paths, and maxMoves the moves that are remembered to correct these paths.
	// When there are more, all paths are forgotten and looked up again.
	maxFolders = 1 << 15
	maxMoves   = 512
)

// folders finds the path of the folder that a handle identifies, as of the moment of an event.
//
// An event names a folder by its handle. The kernel only tells where that folder is now, which may be elsewhere than at the
// time of the event: later events, which may not be read yet, can have moved or removed it. folders therefore looks up a folder
// only once, when it is first named, and from then on follows the moves in the order of the events. See batch.locate for the
// first time.
type folders struct {
	mount int
	// dir is the absolute path of the folder of all drives.
	dir   string
	known map[handle]*folder
	// moves are the moves of folders into, out of and inside of the folder of all drives, in their order.
	moves []move
	// arrivals counts the moves from outside.
	arrivals int
	// roots are the folders that are never forgotten.
	roots map[handle]string
}

// A folder is the last known location of the folder with a handle. Its path is relative to the folder of all drives.
type folder struct {
	handle handle
	// isLocated reports that path or isOutside is set, as of the first applied moves and arrivals.
	isLocated bool
	path      string
	applied   int
	isOutside bool
	arrivals  int
}

// A move is a move of a folder. A path is relative to the folder of all drives; it is "" if that is not below it.
type move struct{ from, to string }

func newFolders(mount int, dir string) *folders {
	return &folders{mount: mount, dir: dir, known: map[handle]*folder{}, roots: map[handle]string{}}
}

// addRoot makes the path of an open folder known, and of the folders above it up to the folder of all drives.
func (f *folders) addRoot(fd int, path string) error {
	h, err := handleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return err
	}
	f.roots[h] = path
	f.set(f.of([]byte(h)), path)
	return nil
}

// of returns the entry of a handle, and creates it if needed.
func (f *folders) of(h []byte) *folder {
	if found := f.known[handle(h)]; found != nil {
		return found
	}
	created := &folder{handle: handle(h)}
	f.known[created.handle] = created
	return created
}

// set sets the path of a folder as of the last move.
func (f *folders) set(d *folder, path string) {
	d.isLocated, d.isOutside, d.path, d.applied = true, false, path, len(f.moves)
}

func (f *folders) setOutside(d *folder) {
	d.isLocated, d.isOutside, d.path, d.arrivals = true, true, "", f.arrivals
}

// update applies the moves since the last update to a folder's path. It reports whether the folder is located: a folder that
// was outside is not after a folder has arrived from there.
func (f *folders) update(d *folder) bool {
	if d.isLocated && d.isOutside && d.arrivals != f.arrivals {
		d.isLocated = false
	}
	if !d.isLocated || d.isOutside {
		return d.isLocated
	}
	for ; d.applied < len(f.moves); d.applied++ {
		m := f.moves[d.applied]
		if m.from == "" || !within(d.path, m.from) {
			continue
		}
		if m.to == "" {
			f.setOutside(d)
			return true
		}
		d.path = m.to + d.path[len(m.from):]
	}
	return true
}

// addMove appends a move of a folder, which applies to all folders that are located.
func (f *folders) addMove(m move) {
	f.moves = append(f.moves, m)
	if m.from == "" {
		f.arrivals++
	}
}

// bound forgets all paths if there are too many. No event that was read may wait for them.
func (f *folders) bound() {
	if len(f.known) > maxFolders || len(f.moves) > maxMoves {
		f.forget()
	}
}

// forget forgets all paths but the paths of the roots.
func (f *folders) forget() {
	for h, d := range f.known {
		if _, isRoot := f.roots[h]; isRoot {
			f.update(d)
		}
	}
	roots := map[handle]*folder{}
	for h := range f.roots {
		if d := f.known[h]; d != nil && d.isLocated {
			d.applied = 0
			roots[h] = d
		}
	}
	f.known, f.moves = roots, nil
}

// find returns the present path of a folder, relative to the folder of all drives. gone is set if the folder was removed.
func (f *folders) find(h handle) (path string, outside, gone bool) {
	fd, err := h.open(f.mount, unix.O_PATH)
	if err != nil {
		return "", false, true
	}
	defer func() { _ = unix.Close(fd) }() // opened without any access
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Nlink == 0 {
		return "", false, true
	}
	absolute, err := readLink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", true, false
	}
	path, below := strings.CutPrefix(absolute, f.dir+"/")
	return path, !below, false
}

// parent returns the handle of the folder above a folder.
func (f *folders) parent(h handle) (handle, error) {
	fd, err := h.open(f.mount, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }() // opened without any access
	return handleAt(fd, "..", 0)
}

func readLink(path string) (string, error) {
	buffer := make([]byte, 1<<15)
	n, err := unix.Readlink(path, buffer)
	if err == nil && n == len(buffer) {
		err = errors.New("observe: a path is too long")
	}
	return string(buffer[:max(n, 0)]), err
}

// within reports whether a path is equal to folder or below it.
func within(path, folder string) bool {
	return strings.HasPrefix(path, folder) && (len(path) == len(folder) || path[len(folder)] == '/')
}

// splitDrive splits a path relative to the folder of all drives into a workspace and a path on its drive. ok is false if the
// path is not on a drive.
func splitDrive(path string) (workspaceID, onDrive string, ok bool) {
	workspaceID, rest, _ := strings.Cut(path, "/")
	onDrive, ok = strings.CutPrefix(rest, "files")
	if !ok || onDrive != "" && onDrive[0] != '/' {
		return "", "", false
	}
	return workspaceID, strings.TrimPrefix(onDrive, "/"), true
}

// joinPath returns the path of an entry of a folder, "" for the root of a drive.
func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// realPath returns a path without links.
func realPath(path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(absolute)
}
