package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// restoringName is the folder in which a restore builds the parts of a data directory. As long as it exists, no node starts.
const restoringName = "restoring"

// The files in restoringName beside the parts: the id of the backup that is restored, and a mark that all parts are complete.
const (
	sourceName   = "backup"
	completeName = "complete"
)

// ErrRestoring means that a restore into the data directory has not ended.
var ErrRestoring = errors.New("a restore into this data directory has not ended: run the same \"atelier restore\" again, " +
	"or empty the directory to give the restore up")

// A Restoration builds a data directory from a backup. Its parts are built in a folder of the data directory, and are moved to
// their places when all of them are complete. It can be continued after an interruption at any time.
type Restoration struct {
	// Dir is the folder of the parts. It has the layout of a data directory, with drives and a secret. The journal is in
	// Journal when it is complete.
	Dir     string
	Journal string
	// IsComplete reports that all parts were complete before an interruption, so that only Finish has to be called.
	IsComplete bool

	target string
	lock   *os.File
}

// BeginRestore begins or continues the restore of a backup with an id. It fails if the directory has other files, or an
// unfinished restore of another backup, or if another process restores into it. The caller must call Close.
func BeginRestore(dir, backupID string) (_ *Restoration, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	r := &Restoration{target: dir, Dir: filepath.Join(dir, restoringName)}
	r.Journal = filepath.Join(r.Dir, JournalName)
	// The lock comes before all checks, because another restore that ends changes their results.
	if r.lock, err = os.Open(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := unix.Flock(int(r.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another process restores into %s: %w", dir, err)
	}
	if r.IsComplete, err = exists(filepath.Join(r.Dir, completeName)); err != nil {
		return nil, err
	}
	if err := r.checkUnused(); err != nil {
		return nil, err
	}
	if err := makeDir(r.Dir); err != nil {
		return nil, err
	}
	if err := r.checkSource(backupID); err != nil {
		return nil, err
	}
	if !r.IsComplete {
		if _, err := makeParts(r.Dir, slog.Default()); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// checkUnused returns an error if the data directory has files that do not belong to this restore.
func (r *Restoration) checkUnused() error {
	entries, err := os.ReadDir(r.target)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		isOwn := name == restoringName || name == "lost+found" || strings.HasPrefix(name, "."+restoringName+"-")
		if !isOwn && !(r.IsComplete && slices.Contains(parts, name)) {
			return fmt.Errorf("%s has the file %s: name a directory that is empty or does not exist", r.target, name)
		}
	}
	return nil
}

// checkSource stores the id of the backup, or compares it with the id that the unfinished restore has stored.
func (r *Restoration) checkSource(backupID string) error {
	path := filepath.Join(r.Dir, sourceName)
	stored, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return WriteDurably(path, []byte(backupID))
	case err != nil:
		return err
	case string(stored) != backupID:
		return fmt.Errorf("%s has an unfinished restore of backup %s, not of %s: finish that one, or empty the directory", r.target, stored, backupID)
	}
	return nil
}

// parts are the parts of a data directory, in the order in which a restore moves them.
var parts = []string{DrivesName, secretName, sumName, marksName, JournalName}

// Finish moves the parts to their places, durably. The caller has closed the journal and made the drives durable.
func (r *Restoration) Finish() error {
	if !r.IsComplete {
		for _, name := range parts {
			if there, err := exists(filepath.Join(r.Dir, name)); err != nil || !there {
				return errors.Join(err, fmt.Errorf("the restore has not made %s", name))
			}
		}
		if err := WriteDurably(filepath.Join(r.Dir, completeName), nil); err != nil {
			return err
		}
	}
	for _, name := range parts {
		err := os.Rename(filepath.Join(r.Dir, name), filepath.Join(r.target, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := syncDir(r.target); err != nil {
		return err
	}
	// From this rename on, a node starts.
	done := filepath.Join(r.target, "."+restoringName+"-done")
	if err := errors.Join(os.RemoveAll(done), os.Rename(r.Dir, done), syncDir(r.target)); err != nil {
		return err
	}
	return os.RemoveAll(done)
}

// Close ends the lock of the directory. A restore that was not finished can be continued.
func (r *Restoration) Close() error { return r.lock.Close() }

// checkRestored returns ErrRestoring if a restore into the directory has not ended.
func checkRestored(dir string) error {
	unfinished, err := exists(filepath.Join(dir, restoringName))
	if err == nil && unfinished {
		err = fmt.Errorf("%s: %w", dir, ErrRestoring)
	}
	return err
}
