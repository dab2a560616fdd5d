package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
)

func sizes() []int {
	if Large() {
		return []int{10_000, million, 10 * million}
	}
	return []int{10_000, million}
}

// A question is a kind of request for a workspace with a number of events.
type question struct {
	name string
	make func(random *rand.Rand, events uint64) proto.Message
}

var questions = []question{
	{"page", func(random *rand.Rand, events uint64) proto.Message {
		return &activityv1.ReadFeed{Position: randomSeq(random, events), Limit: 100}
	}},
	{"history", func(random *rand.Rand, events uint64) proto.Message {
		return &activityv1.ReadHistory{Path: HotPath(random.IntN(hot)), After: randomSeq(random, events), Limit: 20, Reads: true}
	}},
	{"subtree", func(random *rand.Rand, events uint64) proto.Message {
		return &activityv1.ReadFeed{Path: HotFolder, Subtree: true, Position: randomSeq(random, events), Limit: 100}
	}},
	{"seen-by", func(random *rand.Rand, _ uint64) proto.Message {
		return &activityv1.ReadSeenBy{Path: HotPath(random.IntN(hot)), Limit: 100}
	}},
}

// randomSeq returns a random seq with a full page after it, for every size.
func randomSeq(random *rand.Rand, events uint64) uint64 { return random.Uint64N(events * 3 / 4) }

// BenchmarkScale sends the same requests to workspaces of different sizes, in turns. The variant first requests positions for
// the first time, again the same positions a moment later.
func BenchmarkScale(b *testing.B) {
	var members []*Member
	for _, events := range sizes() {
		m := NewMember(b, Filled(b, events))
		m.find(b)
		members = append(members, m)
	}
	for _, q := range questions {
		b.Run(q.name, func(b *testing.B) {
			first, again := map[int][]time.Duration{}, map[int][]time.Duration{}
			random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
			for b.Loop() {
				for turn := range Turns * len(members) {
					i := turn % len(members)
					events := sizes()[i]
					asked := make([]proto.Message, 64)
					for k := range asked {
						asked[k] = q.make(random, uint64(events))
					}
					first[events] = append(first[events], members[i].time(b, asked)...)
					again[events] = append(again[events], members[i].time(b, asked)...)
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, events := range sizes() {
				b.ReportMetric(micros(first[events]), fmt.Sprintf("first-%d-µs", events))
				b.ReportMetric(micros(again[events]), fmt.Sprintf("again-%d-µs", events))
				b.ReportMetric(micros(again[events])/micros(again[sizes()[0]]), fmt.Sprintf("of-%d-at-%d", sizes()[0], events))
			}
		})
	}
}

func micros(d []time.Duration) float64 { return float64(Median(d).Nanoseconds()) / 1000 }

func (m *Member) time(b *testing.B, questions []proto.Message) (took []time.Duration) {
	for _, q := range questions {
		began := time.Now()
		reply, err := m.Node.Router.Ask(context.Background(), entity.Command{
			Kind: entity.KindActivity, Identity: m.Workspace, Principal: entity.Platform(), Message: q,
		})
		took = append(took, time.Since(began))
		if err != nil {
			b.Fatal(err)
		}
		if page, ok := reply.(*activityv1.Page); ok && page.GetNext() == 0 {
			b.Fatalf("the page of %v is not full", q)
		}
	}
	return took
}

// BenchmarkStart opens data directories of different sizes, each in a process of its own, in turns with empty ones.
func BenchmarkStart(b *testing.B) {
	took, resident := map[int][]time.Duration{}, map[int][]float64{}
	for b.Loop() {
		all := append([]int{0}, sizes()...)
		for turn := range Turns * len(all) {
			events, dir := all[turn%len(all)], Disk(b)
			if events > 0 {
				dir = Filled(b, events)
			} else {
				prepare(b, dir)
			}
			child := NewChild(b)
			s := child.ask(wish{Start: dir})
			took[events] = append(took[events], s.Took)
			resident[events] = append(resident[events], float64(s.Resident)/(1<<20))
			if err := child.stop(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, events := range append([]int{0}, sizes()...) {
		b.ReportMetric(float64(Median(took[events]).Milliseconds()), fmt.Sprintf("start-%d-ms", events))
		b.ReportMetric(Median(resident[events]), fmt.Sprintf("resident-%d-MB", events))
	}
}

// prepare makes a data directory with its person and workspace, so that the sizes differ only in the events.
func prepare(b *testing.B, dir string) {
	m, err := StartMember(dir)
	if err != nil {
		b.Fatal(err)
	}
	if err := m.Stop(); err != nil {
		b.Fatal(err)
	}
}

// find sets the workspace's id if the data directory was filled by an earlier run.
func (m *Member) find(b testing.TB) {
	found, err := m.Node.Router.Ask(context.Background(), entity.Command{
		Kind: entity.KindSlug, Identity: m.Slug, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	if err != nil {
		b.Fatal(err)
	}
	m.Workspace = found.(*slugv1.Slug).GetWorkspaceId()
}

// cursor returns the cursors of the member's workspace.
func (m *Member) cursor() activity.Cursor {
	return activity.NewCursor(m.Node.CursorSecret, m.Workspace)
}
