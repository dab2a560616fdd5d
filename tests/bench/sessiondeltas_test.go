package bench

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

const (
	deltaSessions = 200
	// deltaEvery is the interval between two deltas of a session.
	deltaEvery = 100 * time.Millisecond
)

// A delivery measures how long texts take from one end to the other.
type delivery struct {
	mu   sync.Mutex
	took []time.Duration
}

// stamped returns a text of 60 characters that begins with the time.
func stamped() string {
	now := strconv.FormatInt(time.Now().UnixNano(), 10)
	return now + strings.Repeat(".", 60-len(now))
}

// arrived records the arrival of a text.
func (d *delivery) arrived(text string) error {
	now := time.Now()
	sent, err := strconv.ParseInt(strings.TrimRight(text, "."), 10, 64)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took = append(d.took, now.Sub(time.Unix(0, sent)))
	return err
}

// take returns what was recorded, and begins anew.
func (d *delivery) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	took := d.took
	d.took = nil
	return took
}

// BenchmarkSessionDeltas passes text from 200 sessions, ten times a second each, through their actors to one follower of each
// timeline. The variant pipe writes the same text to 200 pipes with a reader each. The times are from before the text is sent
// until it has arrived.
func BenchmarkSessionDeltas(b *testing.B) {
	store, _ := openJournal(b)
	a := newSessionActors(b, store, time.Hour)
	a.found(rawWorkspace)
	var ours, pipes delivery
	var writers [deltaSessions]*os.File
	identity := func(i int) string { return session.Identity(rawWorkspace, sessionID(i)) }
	for i := range deltaSessions {
		a.follow(identity(i), &ours)
		writers[i] = pipes.open(b)
	}
	publish := func(i int) error {
		_, err := a.send(entity.KindSession, identity(i), entity.Platform(), &sessionv1.PublishDelta{InputSeq: 1, Text: stamped()})
		return err
	}
	write := func(i int) error {
		_, err := writers[i].WriteString(stamped())
		return err
	}
	times := map[string][]time.Duration{}
	var ratios []float64
	deltasFor(b, time.Second, publish)
	deltasFor(b, time.Second, write)
	ours.take()
	pipes.take()
	for b.Loop() {
		for range Turns {
			deltasFor(b, 2*time.Second, publish)
			deltasFor(b, 2*time.Second, write)
			session, pipe := ours.take(), pipes.take()
			times["session"], times["pipe"] = append(times["session"], session...), append(times["pipe"], pipe...)
			ratios = append(ratios, float64(Quantile(session, 0.99))/float64(Quantile(pipe, 0.99)))
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, all := range times {
		b.ReportMetric(float64(Quantile(all, 0.5).Microseconds()), name+"-p50-µs")
		b.ReportMetric(float64(Quantile(all, 0.99).Microseconds()), name+"-p99-µs")
	}
	b.ReportMetric(Median(ratios), "p99-of-pipe")
}

// deltasFor calls send for each session at every interval.
func deltasFor(b *testing.B, d time.Duration, send func(i int) error) {
	var all sync.WaitGroup
	for i := range deltaSessions {
		all.Go(func() {
			<-time.After(deltaEvery * time.Duration(i) / deltaSessions)
			ticker := time.NewTicker(deltaEvery)
			defer ticker.Stop()
			for range d / deltaEvery {
				<-ticker.C
				if err := send(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	<-time.After(deltaEvery) // the last ones arrive
}

// follow starts a session and follows its timeline as the member.
func (a *sessionActors) follow(identity string, d *delivery) {
	if _, err := a.start(identity); err != nil {
		a.b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	follow, err := a.router.FollowTimeline(ctx, entity.TimelineSubscription{
		Kind: entity.KindSession, Identity: identity, Principal: member,
		Send: func(batch entity.TimelineBatch) error {
			for _, m := range batch.Passed {
				if err := d.arrived(m.(*sessionv1.PublishDelta).GetText()); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		a.b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := follow(ctx); err != nil && ctx.Err() == nil {
			a.b.Error(err)
		}
	}()
	a.b.Cleanup(func() { cancel(); <-done })
}

// open returns the writing end of a pipe whose texts arrive.
func (d *delivery) open(b *testing.B) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, err := r.Read(buffer)
			if err != nil {
				return
			}
			for text := range strings.SplitSeq(strings.TrimSuffix(string(buffer[:n]), "."), ".") {
				if text != "" && d.arrived(text) != nil {
					b.Error("a malformed text")
				}
			}
		}
	}()
	b.Cleanup(func() { w.Close(); <-done; r.Close() })
	return w
}
