package observe

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/retry"
)

const (
	// maxOperations is the number of changes that are verified and recorded together, while their paths are locked.
	maxOperations = 512
	// askTimeout limits one command or query.
	askTimeout = 10 * time.Second
	// maxCounted bounds the entries of a moved folder that are counted.
	maxCounted = 1 << 20
)

// recording has the pauses before changes are verified and recorded again.
var recording = retry.Policy{First: 20 * time.Millisecond, Longest: 5 * time.Second}

// A flight records the changes of one table. A drive has at most one flight at a time, so that its rows keep their order.
type flight struct {
	observer    *Observer
	workspaceID string
	times       *modificationTimes
	// installed are the files that the drive's routes have written since the last flight.
	installed []installation
	// suspects are compared with the sequence after the changes of the table.
	suspects []suspect
	// made has the stands of paths after the operations of this flight, which the activity does not have yet. recorded are the
	// operations of the changes before the changes that are being recorded.
	made     recentRows
	recorded []*activityv1.Operation
}

// An installation is a file that the drive's routes have written, at a time or shortly before.
type installation struct {
	path string
	at   time.Time
}

// errRefused means that the activity does not accept the rows of a drive, for example because its workspace was deleted.
var errRefused = errors.New("observe: the activity refuses the rows")

// run verifies and records changes, in their order. It returns the changes that do not agree with the disk and have not been
// tried before. It retries until the activity answers; it returns errRefused or the error of ctx.
func (f *flight) run(ctx context.Context, t *table) (deferred []*change, err error) {
	for _, file := range f.installed {
		f.times.set(file.path, file.at, 0) // not the present time: a process may have written to a mapping of the file since
	}
	all := t.subjects()
	for len(all) > 0 && err == nil {
		n := min(len(all), maxOperations)
		err = f.retry(ctx, func(d *drive.Drive, files *os.File) error {
			late, err := f.record(ctx, d, files, all[:n])
			if err == nil {
				deferred = append(deferred, late...)
			}
			return err
		})
		all = all[n:]
	}
	if err == nil {
		err = f.recordSuspects(ctx, deferred)
	}
	return deferred, err
}

// retry opens the drive and calls work until it succeeds. It returns errRefused after a refusal, and ctx's error.
func (f *flight) retry(ctx context.Context, work func(*drive.Drive, *os.File) error) error {
	for n := range recording.Attempts(ctx) {
		err := f.withDrive(ctx, work)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case entity.IsRefusal(err) && !isLasting(err):
			f.observer.log.Error("the activity refuses some changes of processes; they are not recorded",
				slog.String("workspace", f.workspaceID), slog.Any("error", err))
			f.observer.metrics.changes.WithLabelValues("refused").Inc()
			return nil
		case entity.IsRefusal(err):
			f.observer.log.Warn("the activity refuses the changes of processes; they are not recorded",
				slog.String("workspace", f.workspaceID), slog.Any("error", err))
			return errors.Join(errRefused, err)
		}
		if n == 1 || recording.Limit(n) == recording.Longest {
			f.observer.log.Warn("cannot record the changes of processes yet; trying again", slog.String("workspace", f.workspaceID), slog.Any("error", err))
		}
	}
	return ctx.Err()
}

// isLasting reports whether a refusal is one of all rows of a workspace, because it was deleted or must not change.
func isLasting(err error) bool {
	return entity.HasCode(err, entity.NotFound, entity.Forbidden)
}

// withDrive calls work with the open drive and its root folder.
func (f *flight) withDrive(ctx context.Context, work func(*drive.Drive, *os.File) error) error {
	d, release, err := f.observer.drives.Open(ctx, f.workspaceID)
	if err != nil {
		return err
	}
	defer release()
	files, err := os.Open(f.observer.filesDir(f.workspaceID))
	if errors.Is(err, os.ErrNotExist) {
		return entity.Errorf(entity.NotFound, "the drive does not exist")
	}
	if err != nil {
		return err
	}
	defer files.Close()
	return work(d, files)
}

// record verifies and records some changes while their paths are locked. No operation of the drive's routes on the paths is
// in progress then, and all finished ones have their rows. So the rows of a path have the order of its changes.
func (f *flight) record(ctx context.Context, d *drive.Drive, files *os.File, subjects []subject) (deferred []*change, err error) {
	paths := make([]string, 0, len(subjects)+8)
	for _, s := range subjects {
		paths = append(paths, s.now)
		if s.from != "" {
			paths = append(paths, s.from)
		}
	}
	release, err := d.Hold(ctx, paths...)
	if err != nil {
		return nil, err
	}
	defer release()
	v := verifier{files: int(files.Fd()), times: f.times, modified: map[string]time.Time{}}
	operations := make([]*activityv1.Operation, 0, len(subjects))
	for _, s := range subjects {
		verdict := v.verify(s)
		if verdict == differs && s.tries == 0 {
			late := *s.change
			late.path, late.tries, late.vacated = s.now, 1, nil
			deferred = append(deferred, &late)
			continue
		}
		made, err := f.operations(ctx, files, s, verdict)
		if err != nil {
			f.forgetUnrecorded()
			return nil, err
		}
		operations = append(operations, made...)
		for _, op := range made {
			f.made.addOperation(op)
		}
	}
	// From here on the changes are not tried again.
	for path, modified := range v.modified {
		f.times.set(path, modified, 0)
	}
	f.recorded = append(f.recorded, operations...)
	return deferred, f.observer.record(ctx, f.workspaceID, operations)
}

// forgetUnrecorded removes from made the operations of an attempt that has failed. The next attempt begins with the first one
// again.
func (f *flight) forgetUnrecorded() {
	f.made = recentRows{}
	for _, op := range f.recorded {
		f.made.addOperation(op)
	}
}

// operations returns the operations of a change: one, or none if it has left nothing, or two if it crosses the border between
// names that are paths of drives and names that are not.
func (f *flight) operations(ctx context.Context, files *os.File, s subject, v verdict) ([]*activityv1.Operation, error) {
	c := *s.change
	switch {
	case v == isNothing:
		return nil, nil
	case v == differs && c.kind == activityv1.Kind_KIND_RENAME:
		if at, err := handleAt(int(files.Fd()), c.from, 0); err != nil || at != "" {
			return nil, nil
		}
		c = change{kind: activityv1.Kind_KIND_DELETE, folder: c.folder, path: c.from, author: c.author}
	case v == differs:
		f.observer.metrics.changes.WithLabelValues("replaced").Inc()
		return nil, nil
	}
	tree := f.observer.drives.GeneratedTree(c.path)
	if c.isUnsure && tree != "" && c.kind == activityv1.Kind_KIND_DELETE {
		return nil, nil // only counted, if it happened at all
	}
	if c.isUnsure && tree == "" && c.kind != activityv1.Kind_KIND_RENAME {
		known, err := f.isKnown(ctx, c.path)
		switch {
		case err != nil:
			return nil, err
		case c.kind == activityv1.Kind_KIND_DELETE && !known:
			return nil, nil
		case c.kind == activityv1.Kind_KIND_CREATE && known:
			c.kind = activityv1.Kind_KIND_WRITE
		}
	}
	if c.kind == activityv1.Kind_KIND_RENAME {
		switch isPath, wasPath := entity.CheckPath(c.path) == nil, entity.CheckPath(c.from) == nil; {
		case !isPath && wasPath:
			c.kind, c.path, c.from = activityv1.Kind_KIND_DELETE, c.from, ""
			tree = f.observer.drives.GeneratedTree(c.path)
		case isPath && !wasPath:
			c.kind, c.from = activityv1.Kind_KIND_CREATE, ""
		}
	}
	if entity.CheckPath(c.path) != nil {
		f.observer.metrics.changes.WithLabelValues("unnamed").Inc()
		return nil, nil
	}
	op := &activityv1.Operation{Kind: c.kind, Path: c.path, FromPath: c.from, Author: c.author, Tree: tree}
	switch {
	case c.entries:
		op.Count = countEntries(int(files.Fd()), c.file)
	case c.kind == activityv1.Kind_KIND_WRITE && c.count > 1:
		op.Count = c.count
	}
	if c.from != "" {
		op.FromTree = f.observer.drives.GeneratedTree(c.from)
	}
	if c.kind != activityv1.Kind_KIND_WRITE {
		op.EntryKind = activityv1.EntryKind_ENTRY_KIND_FILE
		if c.folder {
			op.EntryKind = activityv1.EntryKind_ENTRY_KIND_FOLDER
		}
	}
	return []*activityv1.Operation{op}, nil
}

// isKnown reports whether the sequence, with the operations of this flight, says that a path exists.
func (f *flight) isKnown(ctx context.Context, path string) (bool, error) {
	if s, ok := f.made.stands[path]; ok {
		return s.exists, nil
	}
	return f.observer.isKnown(ctx, f.workspaceID, path)
}

// countEntries returns the number of entries of a folder, itself included, wherever it is now on the file system of an open
// folder; 0 if that is not known.
func countEntries(mount int, h handle) uint64 {
	fd, err := h.open(mount, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0
	}
	count := uint64(1)
	countBelow(os.NewFile(uintptr(fd), "moved folder"), 0, &count)
	return count
}

// maxCountedDepth bounds the depth of counted entries, and with it the open descriptors.
const maxCountedDepth = 128

// countBelow adds the entries of a folder to count, and closes the folder.
func countBelow(dir *os.File, depth int, count *uint64) {
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(256)
		for _, entry := range entries {
			if *count++; *count >= maxCounted {
				return
			}
			if !entry.IsDir() || depth >= maxCountedDepth {
				continue
			}
			fd, err := unix.Openat(int(dir.Fd()), entry.Name(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == nil {
				countBelow(os.NewFile(uintptr(fd), entry.Name()), depth+1, count)
			}
		}
		if err != nil || len(entries) == 0 {
			return
		}
	}
}

// record appends rows to the activity of a workspace, once: it sends the command again, with the same id, until the outcome is
// known.
func (o *Observer) record(ctx context.Context, workspaceID string, operations []*activityv1.Operation) error {
	if len(operations) == 0 {
		return nil
	}
	id := "observe:" + strings.ToLower(ulid.Make().String())
	err := entity.AskUntilAnswered(ctx, func() error {
		_, err := o.ask(ctx, workspaceID, id, &activityv1.Record{Operations: operations})
		return err
	})
	if err == nil {
		o.metrics.rows.Add(float64(len(operations)))
	}
	return err
}

func (o *Observer) ask(ctx context.Context, workspaceID, id string, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return o.asker.Ask(ctx, entity.Command{
		Kind: entity.KindActivity, Identity: workspaceID, Principal: entity.Platform(), ID: id, Message: m,
	})
}
