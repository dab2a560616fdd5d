package datadir_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/datadir"
)

// quietJournal returns the options of a small journal.
func quietJournal(dir string) persistence.Options {
	return datadir.JournalOptions(dir, persistence.Options{Logger: slog.New(slog.DiscardHandler), CacheBytes: 4 << 20, Partitions: 1})
}

// prepare prepares a directory and opens and closes its journal, as a node does.
func prepare(t *testing.T, dir string) (secret []byte, err error) {
	t.Helper()
	o := quietJournal(dir)
	if secret, err = datadir.Prepare(dir, o); err != nil {
		return nil, err
	}
	journal, err := datadir.OpenJournal(o)
	if err != nil {
		return nil, err
	}
	return secret, journal.Close()
}

func TestPrepare(t *testing.T) {
	for name, test := range map[string]struct {
		// damage changes a directory that was used.
		damage     func(dir string) error
		incomplete bool
	}{
		"used directory":      {func(string) error { return nil }, false},
		"secret is missing":   {func(dir string) error { return os.Remove(filepath.Join(dir, "secret")) }, true},
		"secret is truncated": {func(dir string) error { return os.Truncate(filepath.Join(dir, "secret"), 5) }, true},
		"secret has a flipped bit": {func(dir string) error {
			path := filepath.Join(dir, "secret")
			content, err := os.ReadFile(path)
			content[7] ^= 4
			return errors.Join(err, os.WriteFile(path, content, 0o600))
		}, true},
		"checksum of the secret is truncated":        {func(dir string) error { return os.Truncate(filepath.Join(dir, "secret.sum"), 5) }, true},
		"directory from before there was a checksum": {func(dir string) error { return os.Remove(filepath.Join(dir, "secret.sum")) }, false},
		"drives are missing":                         {func(dir string) error { return os.Remove(filepath.Join(dir, "drives")) }, true},
		"marks are missing":                          {func(dir string) error { return os.Remove(filepath.Join(dir, "installation")) }, true},
		"journal is missing beside drives": {func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "drives", "ws_1"), 0o700), os.RemoveAll(filepath.Join(dir, "journal")))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			secret, err := prepare(t, dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := test.damage(dir); err != nil {
				t.Fatal(err)
			}
			again, err := prepare(t, dir)
			if test.incomplete != errors.Is(err, datadir.ErrIncomplete) || !test.incomplete && !bytes.Equal(secret, again) {
				t.Errorf("secret %x, then %x, %v", secret, again, err)
			}
		})
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"notes.txt", "lost+found", ".secret-123", "installation.new"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := datadir.ForeignFiles(dir); err != nil || !slices.Equal(got, []string{"notes.txt"}) {
		t.Errorf("directory without a journal: %v, %v", got, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := datadir.ForeignFiles(dir); err != nil || len(got) != 0 {
		t.Errorf("directory with a journal: %v, %v", got, err)
	}
}
