package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	"github.com/atelier-run/atelier/persistence"
)

const (
	reactionPartitions = 4
	busyStreams        = 10_000
)

// BenchmarkReaction reports the time from the acknowledgement of a command to the end of its reaction, a command to another
// entity: alone, and while ten thousand other streams record a thousand events a second with reactions, and the reactions of
// one stream are parked.
func BenchmarkReaction(b *testing.B) {
	r := newReacting(b)
	r.run(1, func() { // parks after one attempt
		r.claim("bad-1")
		for r.parked() == 0 {
			r.react(fmt.Sprint("probe-", r.next.Add(1)))
		}
		latency := map[string][]time.Duration{}
		probe := func(name string, d time.Duration) (reactions float64, took time.Duration) {
			for began := time.Now(); time.Since(began) < d; reactions++ {
				waited := r.react(fmt.Sprint("probe-", r.next.Add(1)))
				took += waited
				latency[name] = append(latency[name], waited)
			}
			return reactions, took
		}
		variants := []Variant{
			{"busy", func(d time.Duration) (float64, time.Duration) {
				defer r.others()()
				return probe("busy", d)
			}},
			{"alone", func(d time.Duration) (float64, time.Duration) { return probe("alone", d) }},
		}
		rates := Rounds(b, time.Second, variants...)
		b.ReportMetric(1/rates.Ratio("busy", "alone"), "latency-of-alone")
		for _, v := range variants {
			b.ReportMetric(float64(Quantile(latency[v.Name], 0.5).Microseconds()), v.Name+"-median-us")
			b.ReportMetric(float64(Quantile(latency[v.Name], 0.99).Microseconds()), v.Name+"-p99-us")
		}
		b.ReportMetric(float64(r.cycle.Load()), "others-events")
		if r.parked() != 1 {
			b.Errorf("%d streams are parked", r.parked())
		}
	})
}

// others makes the other streams record events until stop is called, which waits for their reactions.
func (r *reacting) others() (stop func()) {
	const workers, pause = 10, 10 * time.Millisecond // each worker records an event after each pause
	ended := make(chan struct{})
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
				case <-ended:
					return
				}
				n := r.cycle.Add(1) - 1
				name := fmt.Sprint("busy-", n%busyStreams)
				if n/busyStreams%2 == 0 {
					r.claim(name)
				} else {
					r.send(entity.Command{Kind: entity.KindSlug, Identity: name, Message: &slugv1.ReleaseSlug{WorkspaceId: "ws_1"}})
				}
			}
		})
	}
	return func() {
		close(ended)
		working.Wait()
		for p := range reactionPartitions {
			if err := r.system.SettleAll(context.Background(), persistence.Partition(p)); err != nil {
				r.b.Error(err)
			}
		}
	}
}

// reacting is a journal with actors of slugs that are started and stopped. Reactions to slugs named bad- fail; reactions to other
// slugs send a command to one of a few other slugs.
type reacting struct {
	b       testing.TB
	journal *persistence.Store
	system  *actors.System
	router  *cluster.Router
	clock   func() time.Time
	next    atomic.Int64
	// cycle counts the events of the other streams.
	cycle atomic.Int64
}

func newReacting(b testing.TB) *reacting {
	journal, err := persistence.Open(persistence.Options{
		Dir: Disk(b), Partitions: reactionPartitions, CacheBytes: 32 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := journal.Close(); err != nil {
			b.Error(err)
		}
	})
	return &reacting{b: b, journal: journal, clock: time.Now}
}

// run starts the actors, waits until they have read the feed, calls do and stops them.
func (r *reacting) run(attempts int, do func()) {
	r.b.Helper()
	r.router = cluster.NewRouter(reactionPartitions, false)
	kind := slug.Kind
	kind.React = reactTo
	r.system = actors.New(actors.Options{
		Journal: r.journal, Partitions: reactionPartitions, Ask: r.ask, Clock: r.clock, Log: slog.New(slog.DiscardHandler),
		IdleAfter: time.Hour, ReactionAttempts: attempts,
		Kinds: []entity.Kind{kind},
	})
	r.router.Attach(r.system)
	r.system.Start()
	for range reactionPartitions { // wait until the feeds have been read
		r.react(fmt.Sprint("probe-", r.next.Add(1)))
	}
	do()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.system.Stop(ctx)
}

const failingTarget = "target-fails"

func reactTo(name string, _ proto.Message) []entity.Reaction {
	target := fmt.Sprint("target-", len(name), name[len(name)-1:])
	if strings.HasPrefix(name, "bad-") {
		target = failingTarget
	}
	return []entity.Reaction{entity.Send(entity.KindSlug, target, &slugv1.ReleaseSlug{WorkspaceId: "ws"})}
}

// ask sends the command of a reaction. It fails for the failing target.
func (r *reacting) ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	if c.Identity == failingTarget {
		return nil, errors.New("the benchmark wants it to fail")
	}
	return r.router.Ask(ctx, c)
}

func (r *reacting) claim(name string) {
	r.send(entity.Command{Kind: entity.KindSlug, Identity: name, Message: &slugv1.ClaimSlug{
		WorkspaceId: "ws_1", WorkspaceName: "n", CreatorId: "usr_1",
	}})
}

func (r *reacting) send(c entity.Command) {
	c.Principal = entity.Platform()
	if _, err := r.router.Ask(context.Background(), c); err != nil {
		r.b.Fatal(err)
	}
}

// react claims a slug and returns the time that the reaction took.
func (r *reacting) react(name string) time.Duration {
	r.claim(name)
	began := time.Now()
	if err := r.router.Settle(context.Background(), entity.KindSlug, name); err != nil {
		r.b.Fatal(err)
	}
	return time.Since(began)
}

func (r *reacting) parked() int {
	n := 0
	for p := range reactionPartitions {
		rows, err := r.system.Parked(persistence.Partition(p))
		if err != nil {
			r.b.Fatal(err)
		}
		n += len(rows)
	}
	return n
}

// BenchmarkCommandRows reports the bytes of index rows that a command with an id and a command of a reaction leave, which
// prevent their repetition: after two days, and without expiry, as in earlier versions.
func BenchmarkCommandRows(b *testing.B) {
	const commands = 2000
	r := newReacting(b)
	now := time.Now()
	r.clock = func() time.Time { return now }
	name := func(i int) string { return fmt.Sprintf("ws-01j00000000000000000%06d", i%20) }
	source := func(i int) string { return fmt.Sprintf("usr_01j0000000000000000%06d", i%5) }
	var client, reaction, byID, left float64
	for b.Loop() {
		r.run(12, func() {
			empty := r.rows("command")
			for i := range commands { // an id as clients of the API get one
				r.send(entity.Command{Kind: entity.KindSlug, Identity: name(i), ID: fmt.Sprintf("cmd_01j0000000000000000%07d", r.next.Add(1)),
					Message: &slugv1.ClaimSlug{WorkspaceId: fmt.Sprint("ws_", r.next.Load()), WorkspaceName: "n", CreatorId: "usr_1"}})
				r.send(entity.Command{Kind: entity.KindSlug, Identity: name(i), Message: &slugv1.ReleaseSlug{WorkspaceId: fmt.Sprint("ws_", r.next.Load())}})
			}
			client = (r.rows("command") - empty) / commands
			for i := range commands {
				n := uint64(r.next.Add(1))
				r.send(entity.Command{Kind: entity.KindSlug, Identity: name(i), Message: &slugv1.ReleaseSlug{WorkspaceId: "ws"},
					Source: &entity.Source{Stream: "user/" + source(i), Version: n, Sequence: n, Partition: 1}})
			}
			reaction = r.rows("reaction") / commands
			empty = r.rows("command")
			for i := range commands { // as the commands of reactions were sent in earlier versions
				r.send(entity.Command{Kind: entity.KindSlug, Identity: name(i), ID: fmt.Sprintf("reaction:user/%s:%d:0", source(i), r.next.Add(1)),
					Message: &slugv1.ClaimSlug{WorkspaceId: fmt.Sprint("ws_", r.next.Load()), WorkspaceName: "n", CreatorId: "usr_1"}})
				r.send(entity.Command{Kind: entity.KindSlug, Identity: name(i), Message: &slugv1.ReleaseSlug{WorkspaceId: fmt.Sprint("ws_", r.next.Load())}})
			}
			byID = (r.rows("command") - empty) / commands
			now = now.Add(entity.CommandRetention + time.Minute)
			if err := r.system.Expire(context.Background()); err != nil {
				b.Fatal(err)
			}
			left = r.rows("command")
		})
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(client, "client-bytes/command")
	b.ReportMetric(reaction, "reaction-bytes/command")
	b.ReportMetric(byID, "reaction-by-id-bytes/command")
	b.ReportMetric(left, "bytes-after-48h")
}

// rows returns the bytes of an index's rows: values, orders and data.
func (r *reacting) rows(index string) (bytes float64) {
	v, err := r.journal.View()
	if err != nil {
		r.b.Fatal(err)
	}
	defer v.Close()
	for p := range reactionPartitions {
		for row, err := range v.Index(persistence.Partition(p), persistence.Query{Index: index, Prefix: true}) {
			if err != nil {
				r.b.Fatal(err)
			}
			const header = 4 + 8 // partition, tag, terminators, order
			bytes += float64(header + len(index) + len(row.Value) + len(row.Data))
		}
	}
	return bytes
}
