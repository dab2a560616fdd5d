package computer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

const (
	// checkTimeout bounds one sample; sideBySide those that are taken at once.
	checkTimeout = 5 * time.Second
	sideBySide   = 64
)

func (f *Fleet) sampleOnAndOn() {
	ticker := time.NewTicker(f.o.SampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.Sample(f.running)
		case <-f.running.Done():
			return
		}
	}
}

// Sample checks every computer now. All at one time, so that the journal writes what comes of it in few batches.
func (f *Fleet) Sample(ctx context.Context) {
	f.mu.Lock()
	all := slices.Sorted(maps.Keys(f.present))
	f.mu.Unlock()
	at := f.o.Clock().UnixMilli()
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, id := range all {
		group.Go(func() error {
			f.check(ctx, id, at)
			return nil
		})
	}
	_ = group.Wait() // a check has no error: its outcome is what it reports
}

func (f *Fleet) check(ctx context.Context, workspaceID string, at int64) {
	measuring, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	sample, err := f.o.Driver.Sample(measuring, workspaceID)
	if ctx.Err() != nil {
		return
	}
	outcome := "found"
	var refusal *entity.Error
	switch {
	case err == nil:
		sample.At = at
		err = f.found(ctx, workspaceID, sample)
	case errors.As(err, &refusal) && refusal.Code == entity.Unavailable:
		// It was not looked at, for want of file descriptors: that says nothing of the computer.
	default:
		outcome = "missing"
		f.o.Log.Warn("a computer was not found", slog.String("workspace", workspaceID), slog.Any("error", err))
		f.setWell(workspaceID, false)
		_, err = f.ask(ctx, workspaceID, &computerv1.ReportMissing{At: at})
	}
	if err != nil {
		outcome = "failed"
		f.o.Log.Warn("a sample was not recorded", slog.String("workspace", workspaceID), slog.Any("error", err))
	}
	f.metrics.samples.WithLabelValues(outcome).Inc()
}

// found records a sample. The entity is asked only where it has something to learn from it: samples keep no sleeping
// workspace in memory.
func (f *Fleet) found(ctx context.Context, workspaceID string, sample *computerv1.Sample) error {
	if f.o.Put != nil && f.isWell(workspaceID) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		return f.o.Put(ctx, workspaceID, entitycomputer.SampleRow(sample))
	}
	_, err := f.ask(ctx, workspaceID, &computerv1.RecordSample{Sample: sample})
	f.setWell(workspaceID, err == nil)
	return err
}
