package drive

import (
	"container/list"
	"context"
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

	// tmp and aside are the folder of what is made aside.
	tmp   *os.Root
	aside handle

	locks pathLocks

	// recovering has room for the one caller that recovers.
	recovering chan struct{}
	recovered  atomic.Bool

	// attaching guards attached; see Attached.
	attaching sync.Mutex
	attached  any

	mu sync.Mutex
	// tree is what lies in files now; a restore puts another in its place.
	tree *tree
	// live are the ids whose entries in tmp belong to running operations.
	live map[string]struct{}

	// The cache's mutex guards the following.

	// uses counts the reservations of the drive, pinned the operations that need its locks in memory and nothing else.
	uses, pinned int
	// isOpen tells that the files are open. opening is closed when that is being decided; nil: nobody is opening them.
	isOpen    bool
	opening   chan struct{}
	openError error
	// idle is the drive's place among the idle ones.
	idle *list.Element
}

func (d *Drives) newDrive(workspaceID string) *Drive {
	return &Drive{drives: d, workspaceID: workspaceID, live: map[string]struct{}{}, recovering: make(chan struct{}, 1)}
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
