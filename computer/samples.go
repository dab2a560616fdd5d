package computer

import (
	"context"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/retry"
)

// The samples of a share are spread over turns, to even out their cost. A computer is running while its workspace is in use.
// Running computers are sampled once in SampleEvery. Each turn also checks the next idlePage of all computers, in the order
// of their workspaces' ids, so that each is checked at most once in idleEvery. Such a check writes nothing if the computer's
// entity already has the right status.
const (
	// turns is the number of turns in SampleEvery.
	turns     = 5
	idlePage  = 64
	idleEvery = 10 * time.Minute
	// checkTimeout limits one sample, maxConcurrentChecks the samples at the same time.
	checkTimeout        = 5 * time.Second
	maxConcurrentChecks = 16
)

// Follow reports the lost processes of a share, samples its computers, tells them the node's policy of backups and counts
// overdue backups, until ctx is canceled. It logs errors.
func (f *Fleet) Follow(ctx context.Context, s Share) {
	var following sync.WaitGroup
	following.Go(func() { f.followLost(ctx, s) })
	defer following.Wait()
	followed := &followed{share: s}
	defer f.overdue.forget(followed)
	f.checkSchedules(ctx, followed)
	pause := f.o.SampleEvery / turns
	if !retry.Pause(ctx, rand.N(pause)) { // spreads the shares that a process acquires together
		return
	}
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	idle := &idleRound{}
	for turn := uint64(0); ; turn++ {
		f.sampleRunning(ctx, s, turn%turns)
		f.checkIdle(ctx, s, idle)
		f.checkSchedules(ctx, followed)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

var seed = maphash.MakeSeed()

// sampleRunning samples the running computers of one turn. A hash of the workspace's id assigns each computer to a turn.
func (f *Fleet) sampleRunning(ctx context.Context, s Share, turn uint64) {
	var due []*computerv1.Present
	for _, id := range s.Running() {
		if maphash.String(seed, id)%turns != turn {
			continue
		}
		found, err := s.Find(id)
		if err != nil {
			f.o.Log.Warn("cannot look up a computer", slog.String("workspace", id), slog.Any("error", err))
		} else if found != nil {
			due = append(due, found)
		}
	}
	f.checkAll(ctx, due, true)
}

// An idleRound is the progress of one check of all computers of a share.
type idleRound struct {
	// after is the last workspace that was checked.
	after string
	began time.Time
	ended bool
}

// checkIdle checks the next page of the round, running computers included, and begins a new round after idleEvery.
func (f *Fleet) checkIdle(ctx context.Context, s Share, round *idleRound) {
	if round.ended && time.Since(round.began) < idleEvery {
		return
	}
	if round.ended || round.began.IsZero() {
		*round = idleRound{began: time.Now()}
	}
	page, err := s.Present(round.after, idlePage)
	if err != nil {
		f.o.Log.Warn("cannot list computers", slog.Any("error", err))
		return
	}
	if len(page) == 0 {
		round.ended = true
		return
	}
	round.after = page[len(page)-1].GetWorkspaceId()
	f.checkAll(ctx, page, false)
}

// Sample samples every computer of a share now, running or not. It returns the errors of Share.
func (f *Fleet) Sample(ctx context.Context, s Share) error {
	for after := ""; ; {
		page, err := s.Present(after, idlePage)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].GetWorkspaceId()
		f.checkAll(ctx, page, true)
	}
}

// checkAll checks computers concurrently and waits for all checks.
func (f *Fleet) checkAll(ctx context.Context, all []*computerv1.Present, record bool) {
	at := f.o.Clock().UnixMilli()
	var group errgroup.Group
	group.SetLimit(maxConcurrentChecks)
	for _, p := range all {
		group.Go(func() error {
			f.check(ctx, p, at, record)
			return nil
		})
	}
	_ = group.Wait() // check returns no error: it reports its outcome to the entity and in the metric
}

// check samples a computer. It reports to the computer's entity if the computer is missing, or is found again after it was
// missed. With record it writes the sample as a row.
func (f *Fleet) check(ctx context.Context, p *computerv1.Present, at int64, record bool) {
	workspaceID := p.GetWorkspaceId()
	measuring, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	sample, err := f.o.Driver.Sample(measuring, workspaceID)
	if ctx.Err() != nil {
		return
	}
	outcome := "found"
	switch {
	case entity.HasCode(err, entity.Unavailable):
		// The computer could not be measured, for example because no file descriptor was free. It may be there.
	case err != nil:
		outcome = "missing"
		f.o.Log.Warn("a computer does not answer its check", slog.String("workspace", workspaceID), slog.Any("error", err))
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
		f.o.Log.Warn("cannot record the result of a computer's check", slog.String("workspace", workspaceID), slog.Any("error", err))
	}
	f.metrics.samples.WithLabelValues(outcome).Inc()
}

// followLost reports the lost processes of a share at once, and then every idleEvery until ctx is canceled, because the report
// may have failed.
func (f *Fleet) followLost(ctx context.Context, s Share) {
	ticker := time.NewTicker(idleEvery)
	defer ticker.Stop()
	for {
		if err := f.ReportLost(ctx, s); err != nil && ctx.Err() == nil {
			f.o.Log.Warn("cannot list the recorded processes of computers", slog.Any("error", err))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
