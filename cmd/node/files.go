package node

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/persistence"
)

// The parts of a data directory, beside backups/ and what a running node makes.
const (
	journalName = "journal"
	drivesName  = "drives"
	secretName  = "secret"
	// marksName is the file that says what the journal held. It lies beside the journal, so that it survives it.
	marksName = "installation"
)

const secretBytes = 32

// ErrIncomplete says that a part of the data directory is missing or damaged. Nothing has been changed.
var ErrIncomplete = errors.New("the data directory is incomplete or damaged, and was left as it is: restore all of it from one copy, " +
	"or, where what is there is what you want to go on with, run \"atelier accept\" (docs/operations.md)")

// prepareDir makes a new data directory, or checks that no part of one that was used is missing. Secret and drives are
// made before the journal: where there is a journal, they were there. Errors: ErrIncomplete, having made nothing.
func prepareDir(o Options) (secret []byte, err error) {
	hasJournal, err := persistence.Inspect(journalOptions(o))
	switch {
	case errors.Is(err, persistence.ErrDamaged):
		return nil, incomplete("%w", err)
	case err != nil:
		return nil, err
	case hasJournal:
		return readParts(o.Dir)
	}
	if err := checkUnused(o.Dir); err != nil {
		return nil, err
	}
	if err := makeDir(o.Dir); err != nil {
		return nil, err
	}
	return makeParts(o.Dir)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func incomplete(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), ErrIncomplete)
}

// readParts returns the secret of a directory that has a journal.
func readParts(dir string) ([]byte, error) {
	drives := filepath.Join(dir, drivesName)
	if there, err := exists(drives); err != nil {
		return nil, err
	} else if !there {
		return nil, incomplete("%s is missing beside a journal", drives)
	}
	path := filepath.Join(dir, secretName)
	secret, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, incomplete("%s is missing beside a journal", path)
	case err != nil:
		return nil, err
	case len(secret) != secretBytes:
		return nil, incomplete("%s does not hold %d bytes", path, secretBytes)
	}
	return secret, nil
}

// ForeignFiles returns the names in a directory that a node does not make, if no node has used the directory yet. A directory
// with a journal may hold other files besides, which stay as they are. lost+found, which file systems make, is no such file.
func ForeignFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var foreign []string
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == journalName:
			return nil, nil
		case !slices.Contains(ownNames, name) && !isTemporary(name):
			foreign = append(foreign, name)
		}
	}
	return foreign, nil
}

// ownNames are the names in a data directory beside the journal's, and what file systems put there.
var ownNames = []string{drivesName, secretName, marksName, "backups", "atelier.sock", "quickstart.key", "lost+found"}

// isTemporary reports whether a file of this name may have been left by a write that was cut off: WriteDurably's, or that of
// the journal's marks.
func isTemporary(name string) bool {
	return name == marksName+".new" || slices.ContainsFunc(ownNames, func(own string) bool { return strings.HasPrefix(name, "."+own+"-") })
}

// checkUnused returns ErrIncomplete where a directory without a journal holds the drives of workspaces.
func checkUnused(dir string) error {
	drives, err := os.ReadDir(filepath.Join(dir, drivesName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if slices.ContainsFunc(drives, fs.DirEntry.IsDir) {
		return incomplete("%s is missing beside the drives of workspaces", filepath.Join(dir, journalName))
	}
	return nil
}

// makeParts makes what is still missing of the secret, which is the key of cursors, and the folder of drives.
func makeParts(dir string) ([]byte, error) {
	drives := filepath.Join(dir, drivesName)
	if err := os.MkdirAll(drives, 0o750); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, secretName)
	secret, err := os.ReadFile(path)
	switch {
	case err == nil && len(secret) == secretBytes:
		return secret, syncDir(dir)
	case err == nil:
		return nil, fmt.Errorf("%s does not hold %d bytes: remove it, and another is made", path, secretBytes)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	secret = make([]byte, secretBytes)
	rand.Read(secret)
	return secret, WriteDurably(path, secret)
}

// cursorSecret returns the key of cursors: those of one timeline mean nothing in another.
func cursorSecret(secret []byte, timeline string) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, nil, "timeline "+timeline, secretBytes)
}

// Accept makes a data directory start as it stands: its operator has restored it in parts, or gives up what is missing.
// It needs a journal that can be read, and no node may have it open. Cursors from before end.
func Accept(dir string, log *slog.Logger) (persistence.Acceptance, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return persistence.Acceptance{}, err
	}
	accepted, err := persistence.Accept(journalOptions(Options{Dir: dir, Log: log}))
	if err != nil {
		return accepted, err
	}
	_, err = makeParts(dir)
	return accepted, err
}

// WriteDurably makes a file of mode 0600 that is either there whole or not at all.
func WriteDurably(path string, content []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// makeDir makes the data directory, whose name in its parent is durable like what it will hold.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
