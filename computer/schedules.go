package computer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

const (
	// scheduleCheckEvery is the time between two counts of overdue backups.
	scheduleCheckEvery = 10 * time.Minute
	// schedulePage is the number of rows that are read at once.
	schedulePage = 256
)

// followed is a share that Follow follows.
type followed struct {
	share Share
	// hasPolicy reports that all computers of the share know the node's policy of backups.
	hasPolicy bool
	// checked is the time of the last count of overdue backups.
	checked time.Time
}

// checkSchedules tells the computers of a share the node's policy, once, and counts overdue backups from time to time.
func (f *Fleet) checkSchedules(ctx context.Context, s *followed) {
	if !s.checked.IsZero() && time.Since(s.checked) < scheduleCheckEvery {
		return
	}
	s.checked = time.Now()
	var err error
	if !s.hasPolicy {
		if err = f.applyPolicy(ctx, s.share); err == nil {
			s.hasPolicy = true
		}
	}
	if failed := f.countOverdue(ctx, s); failed != nil {
		err = failed
	}
	if err != nil && ctx.Err() == nil {
		f.o.Log.Warn("cannot check the schedules of backups; trying again later", slog.Any("error", err))
	}
}

// applyPolicy sends the node's policy to the computers of a share that have a different policy. It reads rows, and activates only
// these computers. Computers without a schedule need no policy that schedules nothing. A computer that refuses does not keep the
// others from the policy; applyPolicy returns the last such error.
func (f *Fleet) applyPolicy(ctx context.Context, s Share) error {
	var refused error
	apply := func(row *computerv1.ScheduleRow, id string) error {
		if err := ctx.Err(); err != nil || proto.Equal(row.GetNode(), f.o.Policy) {
			return err
		}
		if _, err := f.ask(ctx, id, &computerv1.ApplyNodePolicy{Policy: f.o.Policy}); err != nil {
			refused = fmt.Errorf("the computer of %s: %w", id, err)
		}
		return nil
	}
	if f.o.Policy.GetEveryMs() == 0 {
		err := eachPage(s.Schedules, func(row *computerv1.ScheduleRow) (string, error) {
			if row.GetNode() == nil {
				return row.GetWorkspaceId(), nil
			}
			return row.GetWorkspaceId(), apply(row, row.GetWorkspaceId())
		})
		return errors.Join(err, refused)
	}
	err := eachPage(s.Present, func(p *computerv1.Present) (string, error) {
		row, err := s.Schedule(p.GetWorkspaceId())
		if err == nil {
			err = apply(row, p.GetWorkspaceId())
		}
		return p.GetWorkspaceId(), err
	})
	return errors.Join(err, refused)
}

// countOverdue counts the workspaces with a last backup that is older than two intervals. If a workspace is overdue, or if its last
// backup is of the future, the clock may have been ahead: it sends the policy again, and then the next backup is due soon. A backup of
// the future does not say when it was taken, so that it keeps no workspace from being overdue.
func (f *Fleet) countOverdue(ctx context.Context, s *followed) error {
	now, count := f.o.Clock().UnixMilli(), 0
	var refused error
	err := eachPage(s.share.Schedules, func(row *computerv1.ScheduleRow) (string, error) {
		id, every, since, good := row.GetWorkspaceId(), row.GetEveryMs(), row.GetSince(), row.GetGoodAt()
		isAhead := every > 0 && max(since, good) > now+every
		if good > now+every {
			good = 0
		}
		isOverdue := every > 0 && max(since, good)+2*every < now
		if isOverdue {
			count++
		}
		if isOverdue || isAhead {
			if _, err := f.ask(ctx, id, &computerv1.ApplyNodePolicy{Policy: f.o.Policy}); err != nil {
				refused = fmt.Errorf("the computer of %s: %w", id, err)
			}
		}
		return id, ctx.Err()
	})
	if err == nil {
		f.overdue.set(s, count)
	}
	return errors.Join(err, refused)
}

// eachPage calls visit, which returns the row's workspace, for the rows of all pages.
func eachPage[Row any](page func(after string, limit int) ([]Row, error), visit func(Row) (string, error)) error {
	for after := ""; ; {
		rows, err := page(after, schedulePage)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if after, err = visit(row); err != nil {
				return err
			}
		}
	}
}
