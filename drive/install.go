package drive

import (
	"errors"

	"golang.org/x/sys/unix"
)

// install renames what is ready to its place. A file takes a file's place in one step. What else is there goes to the
// trash first, and comes back where the second step fails.
func (a *attempt) install(from handle, name string, st *unix.Stat_t, target *place) error {
	if !target.exists() {
		return from.rename(name, target.parent, target.name, false)
	}
	// Renaming one hard link onto another of the same file does nothing.
	if target.isFile() && !isFolder(st) && target.st.Ino != st.Ino {
		return from.rename(name, target.parent, target.name, true)
	}
	aside := a.drive.aside
	if err := target.parent.rename(target.name, aside, a.trash(), false); err != nil {
		return err
	}
	if err := from.rename(name, target.parent, target.name, false); err != nil {
		if back := aside.rename(a.trash(), target.parent, target.name, false); back != nil {
			return errors.Join(errStranded, err, back)
		}
		return errors.Join(err, target.parent.Sync(), aside.Sync())
	}
	return nil
}

// errStranded says that what was in the way is in the trash and would not come back.
var errStranded = errors.New("drive: a replaced entry is stranded in the trash")

func isFolder(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }
