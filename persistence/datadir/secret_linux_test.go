package datadir_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/persistence/datadir"
)

// dirWithoutChecksum returns a directory of an earlier version with the parts beside a journal, in which the checksum of the secret cannot
// be written, as on a full disk: the path of the directory is so long that the name of the temporary file does not fit.
func dirWithoutChecksum(t *testing.T, secret []byte) string {
	t.Helper()
	const maxPath = 4095
	dir := t.TempDir()
	for left := maxPath - len("/secret.sum") - len(dir); left > 0; left = maxPath - len("/secret.sum") - len(dir) {
		n := min(left-1, 200)
		if left-1-n == 1 {
			n-- // the rest would be a name without letters
		}
		dir += "/" + strings.Repeat("d", n)
	}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "drives"), 0o700), os.WriteFile(filepath.Join(dir, "secret"), secret, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestPrepareWithoutChecksum prepares directories in which the checksum cannot be written: with a journal, and without a journal. The parts
// of a directory without a journal are made as Accept makes them.
func TestPrepareWithoutChecksum(t *testing.T) {
	used := filepath.Join(t.TempDir(), "data")
	if _, err := prepare(t, used); err != nil {
		t.Fatal(err)
	}
	secret := bytes.Repeat([]byte{7}, 32)
	for name, journal := range map[string]string{"with a journal": used, "without a journal": filepath.Join(t.TempDir(), "data")} {
		dir := dirWithoutChecksum(t, secret)
		got, err := datadir.Prepare(dir, quietJournal(journal))
		if err != nil || !bytes.Equal(got, secret) {
			t.Errorf("%s: %x, %v", name, got, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "secret.sum")); !os.IsNotExist(err) {
			t.Errorf("%s: the checksum was written: %v", name, err)
		}
	}
}
