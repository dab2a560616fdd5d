package drive

import (
	"container/list"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/locks"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// maxInFlight bounds the unfinished changes of one drive, including changes with an unknown outcome. Three quarters of the operations
// that the descriptors allow are a second bound, so that reads go on, and that one person does not take all descriptors of the drive.
const maxInFlight = 1024

// A Drive is the files of one workspace. Paths are relative to its root and satisfy entity.CheckPath; "" is the root.
// It is safe for concurrent use until the release function of Drives.Open is called.
type Drive struct {
	drives      *Drives
	workspaceID string

	// tmp and staging are the same folder, opened twice: tmp for operations on paths below it, staging for its entries.
	tmp          *os.Root
	staging      handle
	stagingSyncs *sharedSync

	locks pathLocks

	// recovering is a semaphore of one: recoveries run one after the other.
	recovering chan struct{}
	recovered  atomic.Bool

	// loading guards table; see Locks.
	loading sync.Mutex
	table   *locks.Table

	mu sync.Mutex
	// tree is the current tree of files; a restore replaces it.
	tree *tree
	// inFlight holds the ids of unfinished operations, each with the holder of its slot in changes. The sweep spares their entries in tmp.
	inFlight map[string]string
	// changes has the slots of unfinished operations, which the persons and other callers share.
	changes *limit.Shares[string]
	// stranded holds the ids in inFlight that were left to recovery.
	stranded map[string]struct{}

	// The cache's mutex guards the following fields.

	// uses counts the reservations of the drive. pinned counts the operations with an unknown outcome, which need the
	// drive's locks in memory but not its files.
	uses, pinned int
	// isOpen reports that the files are open. opening is closed when an attempt to open them ends; nil: there is none.
	isOpen    bool
	opening   chan struct{}
	openError error
	// idle is the drive's element in the cache's list of idle drives; nil: it is in use or closed.
	idle *list.Element
}

func (d *Drives) newDrive(workspaceID string) *Drive {
	return &Drive{
		drives: d, workspaceID: workspaceID, stagingSyncs: newSharedSync(), recovering: make(chan struct{}, 1),
		inFlight: map[string]string{}, changes: limit.NewShares[string](min(maxInFlight, d.cache.capacity/operationDescriptors*3/4)), stranded: map[string]struct{}{},
	}
}

// Hold locks paths against operations on them, on their ancestors and on their descendants, until release is called. It
// returns ctx's error, or Unavailable if other operations hold one of the paths for longer than waitTimeout.
func (d *Drive) Hold(ctx context.Context, paths ...string) (release func(), err error) {
	return d.locks.acquire(ctx, paths...)
}

// RecordRead appends a row to the sequence: the author has read content of the file. It returns the errors of Asker.
func (d *Drive) RecordRead(path string, author *activityv1.Author) error {
	op := d.operation(activityv1.Kind_KIND_READ, activityv1.EntryKind_ENTRY_KIND_UNSPECIFIED, path, author)
	_, err := d.ask(&activityv1.Record{Operations: []*activityv1.Operation{op}})
	d.drives.metrics.countOperation("read", err)
	return err
}

// CountSent adds n to the metric of content bytes sent to clients.
func (d *Drive) CountSent(n int64) { d.drives.metrics.bytes.WithLabelValues("out").Add(float64(n)) }

func (d *Drive) operation(kind activityv1.Kind, entry activityv1.EntryKind, path string, author *activityv1.Author) *activityv1.Operation {
	return &activityv1.Operation{Kind: kind, EntryKind: entry, Path: path, Tree: d.drives.GeneratedTree(path), Author: author}
}

// GeneratedTree returns the generated tree that contains a path: the path up to its first generated segment, which is not
// the last one. It returns "" if there is none.
func (d *Drives) GeneratedTree(path string) string {
	for start := 0; ; {
		length := strings.IndexByte(path[start:], '/')
		if length < 0 {
			return ""
		}
		if end := start + length; slices.Contains(d.generated, path[start:end]) {
			return path[:end]
		}
		start += length + 1
	}
}

// ask sends a command to the drive's activity as the platform. See askAs.
func (d *Drive) ask(message proto.Message) (proto.Message, error) {
	return d.askAs(entity.Platform(), message)
}

// askAs sends a command to the drive's activity on behalf of a principal, and returns the errors of Asker. It takes no context,
// because the end of a request does not cancel the command: the client may disconnect, but a change that has begun is finished.
// Drives.Close does cancel it. Recovery at the next start finds out whether it took effect. The command needs no id, because an
// intent's id already makes repetitions idempotent.
func (d *Drive) askAs(principal *wirev1.Principal, message proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(d.drives.running, askTimeout)
	defer cancel()
	return d.drives.asker.Ask(ctx, entity.Command{
		Kind: entity.KindActivity, Identity: d.workspaceID, Principal: principal, Message: message,
	})
}

// ReadState reads a small file that is stored beside the drive, or nil if it does not exist.
func (d *Drive) ReadState(name string) ([]byte, error) {
	content, err := d.drives.root.ReadFile(d.statePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, fromOS(err)
}

// WriteState replaces a small file beside the drive, atomically and durably. Calls for one name must not overlap.
func (d *Drive) WriteState(name string, content []byte) error {
	name = d.statePath(name)
	next := name + ".next"
	file, err := d.drives.root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fromOS(err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fromOS(err)
	}
	if err := d.drives.root.Rename(next, name); err != nil {
		return fromOS(err)
	}
	return fromOS(syncFolder(filepath.Join(d.drives.dir, d.workspaceID)))
}

// AppendState appends to a small file beside the drive that WriteState has written, durably. After an error a part of the content may
// have been appended. Calls for one name must not overlap.
func (d *Drive) AppendState(name string, content []byte) error {
	file, err := d.drives.root.OpenFile(d.statePath(name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fromOS(err)
	}
	_, err = file.Write(content)
	return fromOS(errors.Join(err, file.Sync(), file.Close()))
}

// RemoveState removes a small file beside the drive, durably. It does nothing if the file does not exist.
func (d *Drive) RemoveState(name string) error {
	err := d.drives.root.Remove(d.statePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fromOS(err)
	}
	return fromOS(syncFolder(filepath.Join(d.drives.dir, d.workspaceID)))
}

// statePath returns the path of a small file beside the drive, relative to the folder of all drives.
func (d *Drive) statePath(name string) string { return d.workspaceID + "/" + name }
