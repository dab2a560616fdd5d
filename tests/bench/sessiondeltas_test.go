package bench

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/cmd/node"
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

// arrived records the arrival of texts.
func (d *delivery) arrived(texts string) error {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for text := range strings.SplitSeq(texts, ".") {
		if text == "" {
			continue
		}
		sent, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		d.took = append(d.took, now.Sub(time.Unix(0, sent)))
	}
	return nil
}

// take returns what was recorded, and begins anew.
func (d *delivery) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	took := d.took
	d.took = nil
	return took
}

// BenchmarkSessionDeltas passes text from 200 sessions of a node, ten times a second each, through their actors to one follower of
// each timeline: to a function in this process, and to a client of the server-sent events in this process. The variant pipe
// writes the same text to 200 pipes with a reader each. The times are from before the text is sent until it has arrived.
func BenchmarkSessionDeltas(b *testing.B) {
	m := NewMember(b, Disk(b))
	writeSessions(b, m.Node.Journal.Member(node.MemberName(0)), m.Node.Router, 2*deltaSessions, func(i int) *pastSession {
		return &pastSession{
			workspaceID: m.Workspace, id: sessionID(i), title: "Report", createdAt: firstCreated, end: endings[session.BucketDone],
		}
	})
	var followed, events, pipes delivery
	var writers [deltaSessions]*os.File
	for i := range deltaSessions {
		m.follow(b, sessionID(i), &followed)
		m.stream(b, sessionID(deltaSessions+i), &events)
		writers[i] = pipes.open(b)
	}
	publish := func(first int) func(int) error {
		return func(i int) error {
			_, err := m.Node.Router.Ask(context.Background(), entity.Command{
				Kind: entity.KindSession, Identity: session.Identity(m.Workspace, sessionID(first+i)), Principal: entity.Platform(),
				Message: &sessionv1.PublishDelta{InputSeq: 1, Text: stamped()},
			})
			return err
		}
	}
	measureDeltas(b, deltaEvery, []source{
		{"events", publish(deltaSessions), &events}, {"follow", publish(0), &followed},
		{"pipe", func(i int) error { _, err := writers[i].WriteString(stamped()); return err }, &pipes},
	})
}

// A source sends texts of sessions by their number, which arrive in a delivery.
type source struct {
	name string
	send func(i int) error
	*delivery
}

// measureDeltas lets sources send in turns, and reports how long their texts take, beside the last source.
func measureDeltas(b *testing.B, every time.Duration, sources []source) {
	all, p99 := map[string][]time.Duration{}, map[string][]float64{}
	for _, v := range sources {
		deltasFor(b, time.Second, every, v.send)
		v.take()
	}
	for b.Loop() {
		for range Turns {
			for _, v := range sources {
				deltasFor(b, 2*time.Second, every, v.send)
				took := v.take()
				if len(took) < deltaSessions*int(2*time.Second/every) {
					b.Fatalf("%s: %d texts have arrived", v.name, len(took))
				}
				all[v.name] = append(all[v.name], took...)
				p99[v.name] = append(p99[v.name], float64(Quantile(took, 0.99)))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	least := sources[len(sources)-1].name
	for _, v := range sources {
		b.ReportMetric(float64(Quantile(all[v.name], 0.5).Microseconds()), v.name+"-p50-µs")
		b.ReportMetric(float64(Quantile(all[v.name], 0.99).Microseconds()), v.name+"-p99-µs")
		if v.name != least {
			b.ReportMetric(ratio(p99[v.name], p99[least]), v.name+"-p99-of-"+least)
		}
	}
}

// deltasFor calls send for each session at every interval.
func deltasFor(b *testing.B, d, every time.Duration, send func(i int) error) {
	var all sync.WaitGroup
	for i := range deltaSessions {
		all.Go(func() {
			<-time.After(every * time.Duration(i) / deltaSessions)
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			for range d / every {
				<-ticker.C
				if err := send(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	<-time.After(every) // the last ones arrive
}

// follow follows the timeline of a session in this process.
func (m *Member) follow(b *testing.B, sessionID string, d *delivery) {
	follow(b, m.Node.Router, session.Identity(m.Workspace, sessionID), d)
}

// follow follows the timeline of a session.
func follow(b *testing.B, router *cluster.Router, identity string, d *delivery) {
	ctx, cancel := context.WithCancel(context.Background())
	follow, err := router.FollowTimeline(ctx, entity.TimelineSubscription{
		Kind: entity.KindSession, Identity: identity, Principal: entity.Platform(),
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
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := follow(ctx); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	}()
	b.Cleanup(func() { cancel(); <-done })
}

// stream reads the server-sent events of a session.
func (m *Member) stream(b *testing.B, sessionID string, d *delivery) {
	r, err := http.NewRequest(http.MethodGet, "http://"+m.Address+"/v1/ws/"+m.Slug+"/agent/sessions/"+sessionID+"/events", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+m.Key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		b.Fatal(answer.Status)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			_, rest, is := strings.Cut(lines.Text(), `"text":"`)
			text, _, _ := strings.Cut(rest, `"`)
			if is && strings.HasSuffix(text, "...") && d.arrived(text) != nil {
				b.Error("a malformed text")
			}
		}
	}()
	b.Cleanup(func() { answer.Body.Close(); <-done })
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
			if err := d.arrived(string(buffer[:n])); err != nil {
				b.Error(err)
			}
		}
	}()
	b.Cleanup(func() { w.Close(); <-done; r.Close() })
	return w
}
