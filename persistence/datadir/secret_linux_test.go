package datadir_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/persistence/datadir"
)

// TestPrepareWithoutChecksum prepares a used directory of an earlier version in which the checksum of the secret cannot be written, as on a
// full disk: the path of the directory is so long that the name of the temporary file does not fit.
func TestPrepareWithoutChecksum(t *testing.T) {
	const maxPath = 4095
	journal := filepath.Join(t.TempDir(), "data")
	if _, err := prepare(t, journal); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for left := maxPath - len("/secret.sum") - len(dir); left > 0; left = maxPath - len("/secret.sum") - len(dir) {
		n := min(left-1, 200)
		if left-1-n == 1 {
			n-- // the rest would be a name without letters
		}
		dir += "/" + strings.Repeat("d", n)
	}
	secret := bytes.Repeat([]byte{7}, 32)
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "drives"), 0o700), os.WriteFile(filepath.Join(dir, "secret"), secret, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := datadir.Prepare(dir, quietJournal(journal))
	if err != nil || !bytes.Equal(got, secret) {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "secret.sum")); !os.IsNotExist(err) {
		t.Errorf("the checksum was written: %v", err)
	}
}
