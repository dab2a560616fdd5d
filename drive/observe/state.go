package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// markName is the name of the file beside a drive that exists while the drive is observed.
const markName = "observed.json"

// checkpointInterval is the least time between two updates of the mark of a drive that changes.
const checkpointInterval = time.Minute

// A mark says since when changes of a drive by processes may have no rows. It is removed when the last watch ends and all
// changes have theirs. So a mark without a watch means that the node crashed while the drive was observed.
type mark struct {
	// Since is in milliseconds since the Unix epoch.
	Since int64 `json:"since"`
}

// marks serializes the changes of each drive's mark.
type marks struct {
	mu sync.Mutex
	// locks has a semaphore of one for each drive with a changed mark.
	locks map[string]chan struct{}
	// own are the drives with marks that belong to watches of this process.
	own map[string]bool
}

// lock locks a drive's mark until unlock is called. It returns ctx's error.
func (m *marks) lock(ctx context.Context, workspaceID string) (unlock func(), err error) {
	m.mu.Lock()
	if m.locks == nil {
		m.locks, m.own = map[string]chan struct{}{}, map[string]bool{}
	}
	lock := m.locks[workspaceID]
	if lock == nil {
		lock = make(chan struct{}, 1)
		m.locks[workspaceID] = lock
	}
	m.mu.Unlock()
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *marks) isOwn(workspaceID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own[workspaceID]
}

func (m *marks) setOwn(workspaceID string, own bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if own {
		m.own[workspaceID] = true
	} else {
		delete(m.own, workspaceID)
	}
}

// readMark returns the mark of a drive; nil if there is none, or no drive.
func (o *Observer) readMark(ctx context.Context, workspaceID string) (*mark, error) {
	if _, err := os.Lstat(o.markPath(workspaceID)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	d, release, err := o.drives.Open(ctx, workspaceID)
	if err != nil {
		return nil, err
	}
	defer release()
	content, err := d.ReadState(markName)
	if err != nil || content == nil {
		return nil, err
	}
	var m mark
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, fmt.Errorf("observe: %s of drive %s: %w", markName, workspaceID, err)
	}
	return &m, nil
}

func (o *Observer) markPath(workspaceID string) string {
	return filepath.Join(o.dir, workspaceID, markName)
}

func (o *Observer) writeMark(ctx context.Context, workspaceID string, since time.Time) error {
	content, err := json.Marshal(mark{Since: since.UnixMilli()})
	if err != nil {
		return err
	}
	d, release, err := o.drives.Open(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	return d.WriteState(markName, content)
}

// removeMark removes the mark of a drive. If it fails, the next Begin or Recover scans the drive without need. The caller holds
// the mark's lock.
func (o *Observer) removeMark(ctx context.Context, workspaceID string) {
	o.marks.setOwn(workspaceID, false)
	if _, err := os.Lstat(o.markPath(workspaceID)); errors.Is(err, fs.ErrNotExist) {
		return
	}
	d, release, err := o.drives.Open(ctx, workspaceID)
	if err == nil {
		defer release()
		err = d.RemoveState(markName)
	}
	if err != nil && !entity.IsRefusal(err) && ctx.Err() == nil {
		o.log.Warn("cannot remove the mark of an observed drive; it is scanned at the next start",
			slog.String("workspace", workspaceID), slog.Any("error", err))
	}
}

// end removes the mark of a drive after its last watch, if all changes have their rows.
func (o *Observer) end(ctx context.Context, workspaceID string, isComplete bool) {
	unlock, err := o.marks.lock(ctx, workspaceID)
	if err != nil {
		return
	}
	defer unlock()
	if !isComplete {
		o.marks.setOwn(workspaceID, false)
		return
	}
	o.removeMark(ctx, workspaceID)
}

// begin repairs a drive and stores its mark, before its first watch begins.
func (o *Observer) begin(ctx context.Context, workspaceID string, now time.Time) error {
	unlock, err := o.marks.lock(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := o.repair(ctx, workspaceID); err != nil {
		return err
	}
	if err := o.writeMark(ctx, workspaceID, now); err != nil {
		return err
	}
	o.marks.setOwn(workspaceID, true)
	return nil
}

// Recover records the changes that processes made immediately before a crash of the node, because they may have no rows: by the
// author system, because their author is not known any more. It reads the drive only if it was being observed, and does
// nothing while it has a watch, or if it is not provisioned. It returns ctx's error, and Unavailable if the drive or the activity
// does not answer.
func (o *Observer) Recover(ctx context.Context, workspaceID string) error {
	unlock, err := o.marks.lock(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer unlock()
	if o.marks.isOwn(workspaceID) {
		return nil
	}
	return o.repair(ctx, workspaceID)
}

// RecoverAll calls Recover for each drive of this machine that was observed when the node stopped, until ctx ends. It logs
// errors: such a drive is recovered when its next watch begins.
func (o *Observer) RecoverAll(ctx context.Context) {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		o.log.Error("cannot list the drives that were observed", slog.Any("error", err))
	}
	for _, entry := range entries {
		workspaceID := entry.Name()
		if _, err := os.Lstat(o.markPath(workspaceID)); err != nil {
			continue
		}
		if err := o.Recover(ctx, workspaceID); err != nil && ctx.Err() == nil {
			o.log.Error("cannot scan a drive that was observed when the node stopped; it is scanned when it is observed again",
				slog.String("workspace", workspaceID), slog.Any("error", err))
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// repair scans a drive that has a mark, and removes the mark. The caller holds the mark's lock.
func (o *Observer) repair(ctx context.Context, workspaceID string) error {
	m, err := o.readMark(ctx, workspaceID)
	if err != nil || m == nil {
		return err
	}
	s := &scan{observer: o, workspaceID: workspaceID, since: time.UnixMilli(m.Since), author: system}
	if err := s.run(ctx); err != nil {
		return err
	}
	o.log.Info("scanned a drive that was observed when the node stopped", slog.String("workspace", workspaceID),
		slog.Int("changes", s.recorded))
	o.removeMark(ctx, workspaceID)
	return nil
}

// checkpoint updates the mark of a drive after its changes up to a time are durable, if that was done long ago.
func (d *watched) checkpoint(durable time.Time) {
	r := d.reader
	if !d.table.isEmpty() || !d.scanSince.IsZero() || d.err != nil || len(d.ending) > 0 ||
		durable.Sub(d.mark) < r.observer.options.checkpoint {
		return
	}
	d.mark, d.isBusy = durable, true
	r.inBackground(func() {
		if err := r.observer.writeMark(r.running, d.workspaceID, durable); err != nil && r.running.Err() == nil {
			r.log.Warn("cannot update the mark of an observed drive; a crash costs a longer scan",
				slog.String("workspace", d.workspaceID), slog.Any("error", err))
		}
		r.finished(func() { d.isBusy = false })
	})
}
