package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const secretBytes = 32

// installationSecret is the key from which cursors are made: kept in the data directory, made at the first start.
func installationSecret(dir string) ([]byte, error) {
	path := filepath.Join(dir, "secret")
	secret, err := os.ReadFile(path)
	switch {
	case err == nil && len(secret) == secretBytes:
		return secret, nil
	case err == nil:
		return nil, fmt.Errorf("%s does not hold %d bytes", path, secretBytes)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	secret = make([]byte, secretBytes)
	rand.Read(secret)
	return secret, WriteDurably(path, secret)
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
