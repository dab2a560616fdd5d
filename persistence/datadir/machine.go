package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// MachineName returns a name of a data directory that is unique on this machine. The drivers use it in the names of control
// groups and containers. A copy of the directory has another name.
func MachineName(dir string) (string, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:6]), nil
}
