package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// manyReads is how often one author reads the path whose seen-by page is compared with that of a fresh one.
const manyReads = 100_000

// BenchmarkSeenBy asks for the seen-by page of a path that one author read very often, and of one read once, in turns.
// appends/read is the number of proposals that the journal got for each of those reads.
func BenchmarkSeenBy(b *testing.B) {
	a := newActivityActors(b, 1)
	read := func(path string) error {
		op := &activityv1.Operation{Kind: activityv1.Kind_KIND_READ, Path: path, Author: author(1)}
		_, err := a.router.Ask(context.Background(), record(a.workspaces[0], op))
		return err
	}
	if err := read("fresh.md"); err != nil {
		b.Fatal(err)
	}
	before := a.journal.appended.Load()
	var left atomic.Int64
	left.Store(manyReads)
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for left.Add(-1) >= 0 {
				if err := read("often.md"); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	readers.Wait()
	appends := float64(a.journal.appended.Load()-before) / manyReads
	variants := []Variant{
		{"often", a.seenBy("often.md", manyReads)},
		{"fresh", a.seenBy("fresh.md", 1)},
	}
	Rounds(b, time.Second, variants...).Report(b, "page", variants...)
	b.ReportMetric(appends, "appends/read")
}

// seenBy asks for the page of a path, one request at a time, and expects one reader with that many reads.
func (a *activityActors) seenBy(path string, reads uint64) func(time.Duration) (float64, time.Duration) {
	return func(d time.Duration) (pages float64, took time.Duration) {
		began := time.Now()
		for ; time.Since(began) < d; pages++ {
			reply, err := a.router.Ask(context.Background(), entity.Command{
				Kind: entity.KindActivity, Identity: a.workspaces[0], Principal: entity.Platform(),
				Message: &activityv1.ReadSeenBy{Path: path, Limit: 100},
			})
			if err != nil {
				a.b.Fatal(err)
			}
			readers := reply.(*activityv1.SeenBy).GetReaders()
			if len(readers) != 1 || readers[0].GetReadCount() != reads {
				a.b.Fatalf("%s was seen by %v, not by one author %d times", path, readers, reads)
			}
		}
		return pages, time.Since(began)
	}
}
