package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/workspace"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/persistence"
)

const inFlight = 256

// BenchmarkActor records operations through the workspace's actor, on ten thousand files in all. The variant raw appends the
// rows of the actor to a separate journal, as many at a time, each in one proposal with its index entries; the variant rows
// omits the entries.
func BenchmarkActor(b *testing.B) {
	for _, workspaces := range []int{1, inFlight} {
		b.Run(fmt.Sprint("workspaces=", workspaces), func(b *testing.B) {
			a := newActivityActors(b, workspaces)
			captured := a.capture(4096)
			raw, rows := newAppender(b, workspaces, captured, true), newAppender(b, workspaces, captured, false)
			variants := []Variant{
				{"actor", func(d time.Duration) (float64, time.Duration) { return inParallel(b, d, inFlight, a.record) }},
				{"raw", func(d time.Duration) (float64, time.Duration) { return inParallel(b, d, inFlight, raw.append) }},
				{"rows", func(d time.Duration) (float64, time.Duration) { return inParallel(b, d, inFlight, rows.append) }},
			}
			Rounds(b, time.Second, variants...).Report(b, "event", variants...)
		})
	}
}

// BenchmarkActorAlone runs one variant of BenchmarkActor with one workspace for ten seconds, after one second to warm up. Run
// each variant in a process of its own, so that flushes and compactions count for the variant that caused them.
func BenchmarkActorAlone(b *testing.B) {
	for _, name := range []string{"actor", "raw"} {
		b.Run("variant="+name, func(b *testing.B) {
			a := newActivityActors(b, 1)
			call := a.record
			if name == "raw" {
				call = newAppender(b, 1, a.capture(4096), true).append
			}
			inParallel(b, time.Second, inFlight, call)
			for b.Loop() {
				used := processorTime()
				events, took := inParallel(b, 10*time.Second, inFlight, call)
				b.ReportMetric(float64((processorTime()-used).Nanoseconds())/events, "cpu-ns/event")
				b.ReportMetric(events/took.Seconds(), "events/s")
			}
		})
	}
}

// activityActors has the actors of a node over a journal that records proposals.
type activityActors struct {
	b          testing.TB
	router     *cluster.Router
	journal    *capturing
	workspaces []string
	operations []*Operations
}

type capturing struct {
	*persistence.Store
	// appended counts the proposals.
	appended atomic.Int64

	mu        sync.Mutex
	wanted    int
	proposals []persistence.Proposal
}

func (c *capturing) Append(p persistence.Proposal, done func(persistence.Result)) {
	c.appended.Add(1)
	if c.wanted > 0 {
		c.mu.Lock()
		if len(c.proposals) < c.wanted && len(p.Events) == 1 {
			c.proposals = append(c.proposals, p)
		}
		c.mu.Unlock()
	}
	c.Store.Append(p, done)
}

func newActivityActors(b testing.TB, workspaces int) *activityActors {
	store, _ := openJournal(b)
	a := &activityActors{b: b, journal: &capturing{Store: store}, router: cluster.NewRouter(store.Partitions(), false)}
	for w := range workspaces {
		a.workspaces = append(a.workspaces, fmt.Sprintf("ws_01jd%022d", w))
	}
	for w := range inFlight {
		a.operations = append(a.operations, NewOperations(uint64(w), max(10_000/workspaces, 50), true))
	}
	system := actors.New(actors.Options{
		Journal: a.journal, Partitions: store.Partitions(), Clock: time.Now, Log: slog.New(slog.DiscardHandler),
		IdleAfter: time.Hour, Ask: a.router.Ask,
		Kinds: []entity.Kind{workspace.Kind, activity.Kind}, Secret: make([]byte, 32),
	})
	a.router.Attach(system)
	system.Start()
	b.Cleanup(func() { system.Stop(context.Background()) })
	return a
}

func (a *activityActors) record(worker int) error {
	_, err := a.router.Ask(context.Background(), record(a.workspaces[worker%len(a.workspaces)], a.operations[worker].Next()))
	return err
}

// capture records operations until the journal has n proposals of one event each, and returns them.
func (a *activityActors) capture(n int) []persistence.Proposal {
	a.journal.wanted = n
	for done := 0; done < 2*n; done += inFlight {
		var batch sync.WaitGroup
		for w := range inFlight {
			batch.Go(func() {
				if err := a.record(w); err != nil {
					a.b.Error(err)
				}
			})
		}
		batch.Wait()
	}
	a.journal.wanted = 0
	for i := range a.journal.proposals {
		a.journal.proposals[i].Entries = ownEntries(a.b, a.journal.proposals[i])
	}
	return a.journal.proposals
}

// ownEntries returns the index entries of the one row of a proposal, as if they were written for it alone.
func ownEntries(b testing.TB, p persistence.Proposal) []persistence.Change {
	row, err := activity.Decode(p.Events[0].Payload)
	if err != nil {
		b.Fatal(err)
	}
	_, workspaceID, _ := strings.Cut(string(p.Stream), "/")
	s := activity.Zero(workspaceID)
	s.Resume(&activityv1.IndexMark{}, []activity.Row{row}, nil)
	d, err := activity.Decide(entity.Call{Now: time.UnixMilli(row.At), Identity: workspaceID, Principal: entity.Platform()}, s,
		&activityv1.WriteIndexes{}, func(string) *activityv1.Totals { return nil })
	if err != nil {
		b.Fatal(err)
	}
	var entries []persistence.Change
	for _, e := range d.Entries {
		if e.Index != activity.Indexed {
			entries = append(entries, persistence.Change{
				Entry: persistence.Entry{Index: e.Index, Value: e.Value, Order: e.Order, Data: e.Data}, Remove: e.Remove,
			})
		}
	}
	return entries
}

// An appender appends captured proposals to streams of its own.
type appender struct {
	store     *persistence.Store
	epochs    []uint64
	captured  []persistence.Proposal
	entries   bool
	streams   []*appendedTo
	waiting   []chan persistence.Result
	positions []int
}

type appendedTo struct {
	mu        sync.Mutex
	name      persistence.Stream
	partition persistence.Partition
	epoch     uint64
	version   uint64
}

func newAppender(b testing.TB, workspaces int, captured []persistence.Proposal, entries bool) *appender {
	store, epochs := openJournal(b)
	a := &appender{store: store, epochs: epochs, captured: captured, entries: entries}
	for w := range workspaces {
		p := persistence.Partition(w % len(epochs))
		a.streams = append(a.streams, &appendedTo{
			name: persistence.Stream(fmt.Sprintf("activity/ws_01jd%022d", w)), partition: p, epoch: epochs[p],
		})
	}
	for w := range inFlight {
		a.waiting = append(a.waiting, make(chan persistence.Result, 1))
		a.positions = append(a.positions, w)
	}
	return a
}

func (a *appender) append(worker int) error {
	a.positions[worker] = (a.positions[worker] + inFlight) % len(a.captured)
	p := a.captured[a.positions[worker]]
	if a.entries {
		p.Entries = slices.Clone(p.Entries)
	} else {
		p.Entries = nil
	}
	s, result := a.streams[worker%len(a.streams)], a.waiting[worker]
	s.mu.Lock()
	s.stamp(&p)
	a.store.Append(p, func(r persistence.Result) { result <- r })
	s.mu.Unlock()
	return (<-result).Err
}

// stamp makes the proposal the next one of the stream. Entries by seq get the new seq, so that they are as new as the actor's.
func (s *appendedTo) stamp(p *persistence.Proposal) {
	p.Partition, p.Stream, p.Epoch, p.Expected = s.partition, s.name, s.epoch, s.version
	s.version++
	p.Revision = s.version // each proposal has one event
	for i := range p.Entries {
		switch e := &p.Entries[i]; e.Index {
		case activity.ByPath, activity.Below, activity.Restores:
			e.Order = s.version
		}
	}
}
