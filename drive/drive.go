package drive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// maxInFlight bounds the operations of one drive that have not ended, unresolved ones included.
const maxInFlight = 1024

// A Drive is one workspace's files. Paths are relative to its root and pass entity.CheckPath; "" is the root.
type Drive struct {
	drives      *Drives
	workspaceID string

	// home holds files and tmp.
	home  *os.Root
	tmp   *os.Root
	aside handle
	// tree is what lies in files now; a restore puts another in its place.
	tree atomic.Pointer[tree]

	locks pathLocks

	// recovering has room for the one who recovers.
	recovering chan struct{}
	recovered  atomic.Bool

	mu sync.Mutex
	// live are the ids whose entries in tmp belong to running operations.
	live     map[string]struct{}
	sweeping bool
	dirty    bool
	// replaced are the trees before. Readers may still go through them, so they are closed with the drive.
	replaced []*tree
}

// A tree is an open drive's root. Reading goes through inside, which keeps links from leading out.
type tree struct {
	inside *os.Root
	files  handle
}

func openTree(parent *os.Root, name string) (_ *tree, err error) {
	t := &tree{}
	if t.inside, err = parent.OpenRoot(name); err != nil {
		return nil, err
	}
	if t.files.File, err = t.inside.Open("."); err != nil {
		return nil, errors.Join(err, t.inside.Close())
	}
	return t, nil
}

func (t *tree) close() error { return errors.Join(t.inside.Close(), t.files.Close()) }

func (d *Drive) inside() *os.Root { return d.tree.Load().inside }
func (d *Drive) files() handle    { return d.tree.Load().files }

func (d *Drives) openDrive(workspaceID string) (_ *Drive, err error) {
	drive := &Drive{
		drives: d, workspaceID: workspaceID, live: map[string]struct{}{}, recovering: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			drive.close()
		}
	}()
	if drive.home, err = d.root.OpenRoot(workspaceID); errors.Is(err, fs.ErrNotExist) {
		return nil, errUnprovisioned
	} else if err != nil {
		return nil, fromOS(err)
	}
	files, err := openTree(drive.home, "files")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errUnprovisioned
	} else if err != nil {
		return nil, fromOS(err)
	}
	drive.tree.Store(files)
	if drive.tmp, err = drive.home.OpenRoot("tmp"); errors.Is(err, fs.ErrNotExist) {
		return nil, errUnprovisioned
	} else if err != nil {
		return nil, fromOS(err)
	}
	if drive.aside.File, err = drive.tmp.Open("."); err != nil {
		return nil, fromOS(err)
	}
	return drive, nil
}

func (d *Drive) close() error {
	var errs []error
	for _, root := range []*os.Root{d.home, d.tmp} {
		if root != nil {
			errs = append(errs, root.Close())
		}
	}
	if d.aside.File != nil {
		errs = append(errs, d.aside.Close())
	}
	for _, t := range append(d.replaced, d.tree.Load()) {
		if t != nil {
			errs = append(errs, t.close())
		}
	}
	return errors.Join(errs...)
}

// Hold keeps operations away from a path, what is above it and what is below it, until release.
func (d *Drive) Hold(ctx context.Context, path string) (release func(), err error) {
	return d.locks.acquire(ctx, path)
}

// RecordRead records that content of a file was sent.
func (d *Drive) RecordRead(ctx context.Context, path string, author *activityv1.Author) error {
	op := d.operation(activityv1.Kind_KIND_READ, activityv1.EntryKind_ENTRY_KIND_UNSPECIFIED, path, author)
	_, err := d.ask(ctx, &activityv1.Record{Operations: []*activityv1.Operation{op}})
	d.drives.metrics.ended("read", err)
	return err
}

// Sent counts content bytes that left.
func (d *Drive) Sent(n int64) { d.drives.metrics.bytes.WithLabelValues("out").Add(float64(n)) }

func (d *Drive) operation(kind activityv1.Kind, entry activityv1.EntryKind, path string, author *activityv1.Author) *activityv1.Operation {
	return &activityv1.Operation{Kind: kind, EntryKind: entry, Path: path, Tree: d.drives.tree(path), Author: author}
}

// ask sends a command that the client's going away does not recall. It needs no command id: what names an intent takes
// effect once.
func (d *Drive) ask(ctx context.Context, message proto.Message) (proto.Message, error) {
	return d.askAs(ctx, entity.Platform(), message)
}

func (d *Drive) askAs(ctx context.Context, principal *wirev1.Principal, message proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	// Closing does end it: the next start then finds out what became of it.
	defer context.AfterFunc(d.drives.running, cancel)()
	return d.drives.asker.Ask(ctx, entity.Command{
		Kind: entity.KindActivity, Identity: d.workspaceID, Principal: principal, Message: message,
	})
}
