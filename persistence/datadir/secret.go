package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/atelier-run/atelier/persistence"
)

// sumOf returns the content of sumName: the SHA-256 hash of the secret as hexadecimal digits, and a line break. The secret is random,
// so that the hash reveals nothing of it.
func sumOf(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return append(hex.AppendEncode(nil, sum[:]), '\n')
}

// readSecret returns the secret of a directory with a journal. It returns ErrIncomplete, which names the file, if the secret is missing or
// differs from its checksum. A directory of an earlier version has no checksum.
func readSecret(dir string) ([]byte, error) {
	path, sumPath := filepath.Join(dir, secretName), filepath.Join(dir, sumName)
	secret, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, incomplete("%s is missing beside a journal", path)
	case err != nil:
		return nil, err
	case len(secret) != secretBytes:
		return nil, incomplete("%s does not hold %d bytes", path, secretBytes)
	}
	sum, err := os.ReadFile(sumPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return secret, nil
	case err != nil:
		return nil, err
	case string(sum) != string(sumOf(secret)):
		return nil, incomplete("%s differs from its checksum in %s: one of the two files has changed", path, sumPath)
	}
	return secret, nil
}

// makeSum makes the checksum of a secret durable, unless the directory has it.
func makeSum(dir string, secret []byte) error {
	path := filepath.Join(dir, sumName)
	sum, err := os.ReadFile(path)
	if err == nil && string(sum) == string(sumOf(secret)) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return WriteDurably(path, sumOf(secret))
}

// ensureSum makes the checksum of a secret durable. A directory without a checksum may remain so: on a full disk, the node starts, so that
// operators can free space, and the next start repeats it. ensureSum fails if a checksum of another secret remains.
func ensureSum(dir string, secret []byte, log *slog.Logger) error {
	err := makeSum(dir, secret)
	if err == nil {
		return nil
	}
	if _, readErr := os.ReadFile(filepath.Join(dir, sumName)); !errors.Is(readErr, fs.ErrNotExist) {
		return err
	}
	if log == nil {
		log = slog.Default()
	}
	log.Error("cannot write the checksum of the secret; the next start repeats it", slog.Any("error", err))
	return nil
}

// Check checks that a data directory with a journal has the folder of drives, and that the secret agrees with its checksum. It reports each
// fault, and returns the secret, or nil if that is damaged. It fails if the directory does not exist, or if a restore into the directory has
// not ended. Other parts belong to persistence.Check.
func Check(dir string, report func(persistence.Fault)) (secret []byte, err error) {
	if err := checkRestored(dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	drives := filepath.Join(dir, DrivesName)
	if there, err := exists(drives); err != nil {
		return nil, err
	} else if !there {
		report(persistence.Fault{File: drives, What: "the folder is missing"})
	}
	if secret, err = readSecret(dir); errors.Is(err, ErrIncomplete) {
		what, _, _ := strings.Cut(err.Error(), ": "+ErrIncomplete.Error())
		report(persistence.Fault{File: filepath.Join(dir, secretName), What: what})
		return nil, nil
	}
	return secret, err
}
