package computer

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Samples of a share are taken in turns, so that they cost the same at any moment. A computer runs while its workspace is
// in use: it is sampled once in SampleEvery. Of the others, each turn checks the next pageOfIdle, in the order of their
// ids, no more often than once in idleEvery; nothing is written for one that is as its entity knows it.
const (
	// turns divide SampleEvery.
	turns      = 5
	pageOfIdle = 64
	idleEvery  = 10 * time.Minute
	// checkTimeout bounds one sample; sideBySide those that are taken at once.
	checkTimeout = 5 * time.Second
	sideBySide   = 16
)

// Follow samples the computers of a share until ctx ends.
func (f *Fleet) Follow(ctx context.Context, s Share) {
	pause := f.o.SampleEvery / turns
	first := time.NewTimer(rand.N(pause)) // shares that begin together do not sample together
	select {
	case <-first.C:
	case <-ctx.Done():
		first.Stop()
		return
	}
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	idle := &idleTurn{}
	for turn := uint64(0); ; turn++ {
		f.sampleRunning(ctx, s, turn%turns)
		f.checkIdle(ctx, s, idle)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

var seed = maphash.MakeSeed()

// sampleRunning samples the running computers whose turn it is.
func (f *Fleet) sampleRunning(ctx context.Context, s Share, turn uint64) {
	var due []*computerv1.Present
	for _, id := range s.Running() {
		if maphash.String(seed, id)%turns != turn {
			continue
		}
		found, err := s.Find(id)
		if err != nil {
			f.o.Log.Warn("a computer cannot be looked up", slog.String("workspace", id), slog.Any("error", err))
		} else if found != nil {
			due = append(due, found)
		}
	}
	f.checkAll(ctx, due, true)
}

// idleTurn is how far the check of idle computers has come.
type idleTurn struct {
	after string
	began time.Time
	ended bool
}

// checkIdle checks the next computers, running or not.
func (f *Fleet) checkIdle(ctx context.Context, s Share, at *idleTurn) {
	if at.ended && time.Since(at.began) < idleEvery {
		return
	}
	if at.ended || at.began.IsZero() {
		*at = idleTurn{began: time.Now()}
	}
	page, err := s.Present(at.after, pageOfIdle)
	if err != nil {
		f.o.Log.Warn("computers cannot be listed", slog.Any("error", err))
		return
	}
	if len(page) == 0 {
		at.ended = true
		return
	}
	at.after = page[len(page)-1].GetWorkspaceId()
	f.checkAll(ctx, page, false)
}

// Sample samples every computer of a share now, running or not.
func (f *Fleet) Sample(ctx context.Context, s Share) error {
	for after := ""; ; {
		page, err := s.Present(after, pageOfIdle)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].GetWorkspaceId()
		f.checkAll(ctx, page, true)
	}
}

func (f *Fleet) checkAll(ctx context.Context, all []*computerv1.Present, record bool) {
	at := f.o.Clock().UnixMilli()
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, p := range all {
		group.Go(func() error {
			f.check(ctx, p, at, record)
			return nil
		})
	}
	_ = group.Wait() // a check has no error: its outcome is what it reports
}

// check looks for a computer, and tells its entity where that changes what it knows. With record, the sample is written.
func (f *Fleet) check(ctx context.Context, p *computerv1.Present, at int64, record bool) {
	workspaceID := p.GetWorkspaceId()
	measuring, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	sample, err := f.o.Driver.Sample(measuring, workspaceID)
	if ctx.Err() != nil {
		return
	}
	outcome := "found"
	var refusal *entity.Error
	switch {
	case errors.As(err, &refusal) && refusal.Code == entity.Unavailable:
		// It was not looked at, for want of file descriptors: that says nothing of the computer.
	case err != nil:
		outcome = "missing"
		f.o.Log.Warn("a computer was not found", slog.String("workspace", workspaceID), slog.Any("error", err))
		_, err = f.ask(ctx, workspaceID, &computerv1.ReportMissing{At: at})
	case p.GetMissed():
		sample.At = at
		_, err = f.ask(ctx, workspaceID, &computerv1.RecordSample{Sample: sample})
	case record:
		sample.At = at
		putting, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		err = f.o.Put(putting, workspaceID, entitycomputer.SampleRow(sample))
	}
	if err != nil {
		outcome = "failed"
		f.o.Log.Warn("a sample was not recorded", slog.String("workspace", workspaceID), slog.Any("error", err))
	}
	f.metrics.samples.WithLabelValues(outcome).Inc()
}
