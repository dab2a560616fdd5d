package drive

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/quota"
)

// Space returns the used and available bytes of the drive's quota, or of the file system if the drive has none. It returns ctx's
// error and errors of the file system.
func (d *Drive) Space(ctx context.Context) (used, available uint64, err error) {
	used, available, err = d.drives.quota.Space(ctx, d.workspaceID)
	return used, available, fromOS(err)
}

// WatchSpace returns a channel that receives a value whenever CheckSpace is to be called at once for the drives on which processes run,
// because the free space of the disk falls fast. The caller calls stop when no process runs on its drive.
func (d *Drives) WatchSpace() (fell <-chan struct{}, stop func()) { return d.quota.Watch() }

// CheckSpace returns Full if processes may not run on a workspace's drive, because the drive exceeds its quota or the payer the share of
// a disk that is nearly full (package quota), or the workspace has no room in the journal (Options.Room). It is to be called before a process is started, and every few seconds while processes run. It returns
// NotFound if there is no drive, and ctx's error. It calls suspend as quota.Limiter.Check does.
func (d *Drives) CheckSpace(ctx context.Context, workspaceID string, suspend func(bool)) error {
	if err := validateWorkspaceID(workspaceID); err != nil {
		return err
	}
	if err := d.room(workspaceID); err != nil {
		return err
	}
	return fromOS(d.quota.Check(ctx, workspaceID, suspend))
}

// RequireShare returns Full if a workspace may not write size bytes to the disk of the drives beside its drive.
func (d *Drives) RequireShare(ctx context.Context, workspaceID string, size int) error {
	return d.quota.RequireFree(ctx, workspaceID, quota.Usage{Bytes: uint64(size)})
}

// RequireReserve returns Full unless the disk of the drives keeps the whole reserve free beside size bytes that belong to no workspace.
func (d *Drives) RequireReserve(size int) error {
	return d.quota.RequireReserve(quota.Usage{Bytes: uint64(size)})
}

// CheckJournal returns Full if a workspace may not write size bytes to the journal, because its payer has the share of a nearly full disk.
// It does not wait.
func (d *Drives) CheckJournal(workspaceID string, size int) error {
	return d.quota.CheckJournal(workspaceID, size)
}

// measure returns the use of a workspace's folder, and the space that its processes hold (CountHeld). A file counts once for all its links.
// Entries in folders that this process may not read do not count: without a result, no process could start that gives the folders other
// modes. If enough is not nil, the walk ends as soon as enough returns true for the use so far.
func (d *Drives) measure(ctx context.Context, workspaceID string, enough func(quota.Usage) bool) (used quota.Usage, err error) {
	home, err := d.root.Open(workspaceID)
	if err != nil {
		return used, fromOS(err)
	}
	defer home.Close()
	w := usageWalk(ctx, &used, enough)
	if err := w.run(handle{home}, ""); errors.Is(err, errEnough) {
		return used, nil
	} else if err != nil {
		return used, fromOS(err)
	}
	st, err := statFile(home)
	if err != nil {
		return used, fromOS(err)
	}
	held, err := d.held(ctx, workspaceID, uint64(st.Dev))
	used.Bytes, used.Files = used.Bytes+held.Bytes, used.Files+held.Files
	return used, err
}

// usageWalk returns a walk that adds the use of the entries to used. If enough is not nil, the walk ends with errEnough as soon as enough
// returns true.
func usageWalk(ctx context.Context, used *quota.Usage, enough func(quota.Usage) bool) *walk {
	found := func(bytes uint64) error {
		used.Files++
		used.Bytes += bytes
		if enough != nil && enough(*used) {
			return errEnough
		}
		return nil
	}
	return &walk{
		ctx: ctx,
		file: func(_ handle, _, _ string, st *unix.Stat_t, _ int) error {
			return found(uint64(st.Blocks) * statBlock / max(uint64(st.Nlink), 1))
		},
		leave: func(folder handle, _ string) error {
			st, err := statFile(folder.File)
			if err != nil {
				return found(0)
			}
			return found(uint64(st.Blocks) * statBlock)
		},
		unreadable: func(string, *unix.Stat_t) error { return found(0) },
	}
}

// requireLimit returns Full if the drive would exceed its quota with a staged tree in place of the drive's tree. links is the number of
// names in the staged tree beyond the first one of each file. What other operations have staged does not count.
func requireLimit(ctx context.Context, d *Drive, staged string, links uint64) error {
	return d.drives.quota.RequireLimit(d.workspaceID, links, func() (used quota.Usage, err error) {
		home, err := d.openHome()
		if err != nil {
			return used, err
		}
		defer home.Close()
		beside := usageWalk(ctx, &used, nil)
		beside.enter = func(path string, _ int) (visit bool, err error) { return path != "files" && path != "tmp", nil }
		if err := beside.run(handle{home}, ""); err != nil {
			return used, err
		}
		st, err := statFile(d.staging.File)
		if err != nil {
			return used, err
		}
		used.Bytes, used.Files = used.Bytes+uint64(st.Blocks)*statBlock, used.Files+1
		err = usageWalk(ctx, &used, nil).run(d.staging, staged)
		return used, err
	})
}

// errEnough ends a walk that has found enough.
var errEnough = errors.New("the walk has found enough")

// statBlock is the size of a block of stat(2) in bytes.
const statBlock = 512

// require grants an operation on the drive space for a file or folder of a size, or for more content of a file if isNew is
// false. It returns the errors of quota.Limiter.Require.
func (d *Drive) require(ctx context.Context, size int64, isNew bool) error {
	return d.drives.quota.Require(ctx, d.workspaceID, need(size, isNew))
}

// need returns the space that a file or content of a size occupies.
func need(size int64, isNew bool) quota.Usage {
	const block = 4096
	n := quota.Usage{Bytes: (uint64(size) + block - 1) / block * block}
	if isNew {
		n.Files = 1
	}
	return n
}

// A boundedFile writes to a file as much as the drive has space for.
type boundedFile struct {
	*os.File
	ctx   context.Context
	drive *Drive
}

func (f boundedFile) Write(p []byte) (int, error) {
	if err := f.drive.require(f.ctx, int64(len(p)), false); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}
