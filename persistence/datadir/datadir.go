// Package datadir prepares the data directory of a node and opens the journal in it.
//
// A data directory has a journal, a folder with the drives, a secret, and a file with the journal's marks. The secret and the
// folder of drives are made before the journal: if there is a journal, they were there once, and a missing one means that the
// directory was not copied completely. A node does not start on such a directory until its operator has accepted it.
package datadir

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

// The parts of a data directory. A running node makes others, such as backups/ and the socket of the operators.
const (
	// JournalName is the folder of the journal.
	JournalName = "journal"
	// DrivesName is the folder of the drives.
	DrivesName = "drives"
	// AppsName is the folder of the logs of apps.
	AppsName   = "apps"
	secretName = "secret"
	// sumName is the file with the checksum of the secret.
	sumName = "secret.sum"
	// marksName is the file with the marks of the journal; see persistence.Options.Marks. It is beside the journal, so that it
	// is not lost with it.
	marksName = "installation"
)

// secretBytes is the length of the secret.
const secretBytes = 32

// ErrIncomplete means that a part of the data directory is missing or damaged. Nothing was changed.
var ErrIncomplete = errors.New("the data directory is incomplete or damaged, and was not changed: restore all of it from one copy, " +
	"or run \"atelier accept\" to continue without the missing parts (docs/operations.md)")

// Prepare makes a new data directory, or checks that no part of a used one is missing, and returns the secret. journal is the
// result of JournalOptions. It returns ErrIncomplete, and has made nothing, if a part is missing or damaged.
func Prepare(dir string, journal persistence.Options) (secret []byte, err error) {
	if err := checkRestored(dir); err != nil {
		return nil, err
	}
	hasJournal, err := persistence.Inspect(journal)
	switch {
	case errors.Is(err, persistence.ErrDamaged):
		return nil, incomplete("%w", err)
	case err != nil:
		return nil, err
	case hasJournal:
		return readParts(dir, journal.Logger)
	}
	if err := checkUnused(dir); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	return makeParts(dir, journal.Logger)
}

// exists reports whether a file or folder exists.
func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// incomplete returns an ErrIncomplete with a reason.
func incomplete(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), ErrIncomplete)
}

// readParts returns the secret of a directory with a journal, or ErrIncomplete if a part is missing.
func readParts(dir string, log *slog.Logger) ([]byte, error) {
	drives := filepath.Join(dir, DrivesName)
	if there, err := exists(drives); err != nil {
		return nil, err
	} else if !there {
		return nil, incomplete("%s is missing beside a journal", drives)
	}
	secret, err := readSecret(dir)
	if err != nil {
		return nil, err
	}
	return secret, ensureSum(dir, secret, log)
}

// ForeignFiles returns the names in a directory that a node does not make. It returns none if the directory has a journal: a
// data directory may have other files, which a node does not touch. lost+found, which file systems make, is not foreign.
func ForeignFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var foreign []string
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == JournalName:
			return nil, nil
		case !slices.Contains(ownNames, name) && !isTemporary(name):
			foreign = append(foreign, name)
		}
	}
	return foreign, nil
}

// ownNames are the names in a data directory except the name of the journal, and the names that file systems make.
var ownNames = []string{DrivesName, AppsName, secretName, sumName, marksName, "backups", "atelier.sock", "quickstart.key", "lost+found", restoringName}

// isTemporary reports whether a file of this name may be left of an interrupted write, by WriteDurably or of the journal's
// marks.
func isTemporary(name string) bool {
	return name == marksName+".new" || slices.ContainsFunc(ownNames, func(own string) bool { return strings.HasPrefix(name, "."+own+"-") })
}

// checkUnused returns ErrIncomplete if a directory without a journal has drives.
func checkUnused(dir string) error {
	drives, err := os.ReadDir(filepath.Join(dir, DrivesName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if slices.ContainsFunc(drives, fs.DirEntry.IsDir) {
		return incomplete("%s is missing beside the drives of workspaces", filepath.Join(dir, JournalName))
	}
	return nil
}

// makeParts makes the folder of drives and the secret, unless they exist, and returns the secret.
func makeParts(dir string, log *slog.Logger) ([]byte, error) {
	drives := filepath.Join(dir, DrivesName)
	if err := os.MkdirAll(drives, 0o750); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, secretName)
	secret, err := os.ReadFile(path)
	switch {
	case err == nil && len(secret) == secretBytes:
		return secret, errors.Join(ensureSum(dir, secret, log), syncDir(dir))
	case err == nil:
		return nil, fmt.Errorf("%s does not have %d bytes: remove it, and the next start makes another one", path, secretBytes)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	secret = make([]byte, secretBytes)
	rand.Read(secret)
	// The checksum of an earlier secret is replaced first: after a crash in between, the directory has a checksum and no secret.
	return secret, errors.Join(WriteDurably(filepath.Join(dir, sumName), sumOf(secret)), WriteDurably(path, secret))
}

// JournalOptions returns the options of the journal in a data directory; the other options come from o.
func JournalOptions(dir string, o persistence.Options) persistence.Options {
	o.Dir, o.Marks = filepath.Join(dir, JournalName), filepath.Join(dir, marksName)
	return o
}

// OpenJournal opens the journal of a prepared directory. It returns ErrIncomplete if the journal is damaged, and the errors of
// persistence.Open.
func OpenJournal(o persistence.Options) (*persistence.Store, error) {
	journal, err := persistence.Open(o)
	if errors.Is(err, persistence.ErrDamaged) {
		return nil, incomplete("%w", err)
	}
	return journal, err
}

// CursorSecret returns the key of cursors, which is derived from the secret and a timeline of the journal: cursors of one
// timeline are invalid in another.
func CursorSecret(secret []byte, timeline string) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, nil, "timeline "+timeline, secretBytes)
}

// CertificatesKey returns the key that encrypts the files of the store of certificates, which is derived from the secret. A backup of
// the journal without the secret shows no private key.
func CertificatesKey(secret []byte) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, nil, "certificates", secretBytes)
}

// Accept lets a node start on a data directory in which parts are missing. Operators call it after they have restored only
// some parts, or if they do without the missing ones. It starts a new timeline, which invalidates all cursors. It returns an error if the journal cannot be read or a node
// has it open.
func Accept(dir string, log *slog.Logger) (persistence.Acceptance, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return persistence.Acceptance{}, err
	}
	if err := checkRestored(dir); err != nil {
		return persistence.Acceptance{}, err
	}
	accepted, err := persistence.Accept(JournalOptions(dir, persistence.Options{Logger: log}))
	if err != nil {
		return accepted, err
	}
	_, err = makeParts(dir, log)
	return accepted, err
}

// WriteDurably writes a file of mode 0600 and returns when it is durable. After a crash the file has the old content or the new
// one.
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

// makeDir makes the data directory and makes its name in the parent durable.
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
