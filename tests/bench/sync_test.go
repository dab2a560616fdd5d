package bench

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncTree makes the file system of a folder durable.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}
