package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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

// readMark returns the mark of a drive; nil if there is none.
func (o *Observer) readMark(ctx context.Context, workspaceID string) (*mark, error) {
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

// removeMark removes a mark. If it fails, the next Begin or Recover scans the drive without need.
func (o *Observer) removeMark(ctx context.Context, workspaceID string) {
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

// begin repairs a drive and stores its mark, before its first watch begins.
func (o *Observer) begin(ctx context.Context, workspaceID string, now time.Time) error {
	if err := o.Recover(ctx, workspaceID); err != nil {
		return err
	}
	return o.writeMark(ctx, workspaceID, now)
}

// Recover records the changes that processes made immediately before a crash of the node, for which there may be no rows: by the
// author system, because it is not known any more who made them. It reads the drive only if the drive was being observed. It
// must not be called while the drive has a watch. It returns Unavailable if the drive or the activity does not answer, and nil
// for a drive that is not provisioned.
func (o *Observer) Recover(ctx context.Context, workspaceID string) error {
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

// checkpoint updates the mark of a drive whose changes up to a time are durable, if that was done long ago.
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
