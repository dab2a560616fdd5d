package drive

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/entity"
)

// Usage reads a workspace's drive a little, and tells the bytes in use and in all where it lies. It opens nothing for
// longer, and fails where the drive cannot be read.
func (d *Drives) Usage(workspaceID string) (used, total uint64, err error) {
	if err := checkID(workspaceID); err != nil {
		return 0, 0, err
	}
	r, err := d.cache.reserve(d.running, "")
	if err != nil {
		return 0, 0, err
	}
	defer d.cache.release(r)
	files, err := d.root.Open(workspaceID + "/files")
	if err != nil {
		return 0, 0, fromOS(err)
	}
	defer files.Close()
	if _, err := files.Readdirnames(1); err != nil && !isEOF(err) {
		return 0, 0, fromOS(err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(files.Fd()), &st); err != nil {
		return 0, 0, fromOS(err)
	}
	size := uint64(st.Bsize)
	return (st.Blocks - st.Bfree) * size, st.Blocks * size, nil
}

// Exists tells whether a path leads to a file or a folder now.
func (d *Drive) Exists(_ context.Context, path string) (bool, error) {
	_, err := d.Stat(path)
	var refusal *entity.Error
	if errors.As(err, &refusal) && refusal.Code == entity.NotFound {
		return false, nil
	}
	return err == nil, err
}

// Exists tells whether a path of a workspace's drive leads to a file or a folder now. The empty path is the root, which
// is read anew: it is there unless the drive has been lost.
func (d *Drives) Exists(ctx context.Context, workspaceID, path string) (bool, error) {
	drive, release, err := d.Open(ctx, workspaceID)
	if err != nil {
		return false, err
	}
	if path == "" {
		release() // Usage reserves descriptors of its own
		_, _, err := d.Usage(workspaceID)
		return err == nil, err
	}
	defer release()
	return drive.Exists(ctx, path)
}
