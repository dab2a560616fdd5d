package persistence

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkCount compares commits of proposals to streams of workspaces, which are counted, with commits of the same proposals to streams
// that are not. Both go to stores in memory, without a sync, in turns. The ratio is the median of the ratios of all rounds.
func BenchmarkCount(b *testing.B) {
	const streams, workspaces, rounds = 256, 16, 50
	type side struct {
		db        *pebble.DB
		applier   *applier
		proposals []Proposal
		results   []Result
	}
	newSide := func(prefix string) *side {
		o := Options{FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}.withDefaults()
		db, err := pebble.Open("db", o.pebble(o.FS, &backgroundErrors{failure: newFailure(o.Logger), metrics: newMetrics()}))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		w, err := openWorkspaceBytes(db, 1, o.recountRows, o.Logger)
		if err != nil {
			b.Fatal(err)
		}
		s := &side{db: db, applier: newApplier(db, []partitionState{{epoch: 1}}, 0, w), results: make([]Result, streams)}
		for i := range streams {
			s.proposals = append(s.proposals, Proposal{
				Stream: Stream(fmt.Sprintf("session/%s_%026d/ses_%026d", prefix, i%workspaces, i)), Epoch: 1, Events: []Event{sampleEvent()},
			})
		}
		return s
	}
	commit := func(s *side) time.Duration {
		start := time.Now()
		for range rounds {
			batch := s.db.NewBatch()
			if err := s.applier.apply(batch, s.proposals, s.results); err != nil {
				b.Fatal(err)
			}
			if err := s.db.Apply(batch, pebble.NoSync); err != nil {
				b.Fatal(err)
			}
			_ = batch.Close()
			for i := range s.proposals {
				s.proposals[i].Expected++
			}
		}
		return time.Since(start)
	}
	counted, uncounted := newSide("ws"), newSide("xx")
	var ratios []float64
	for b.Loop() {
		theirs := commit(uncounted)
		ours := commit(counted)
		ratios = append(ratios, ours.Seconds()/theirs.Seconds(), commit(counted).Seconds()/commit(uncounted).Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}
