package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

// rung records the delay of each due command.
type rung struct {
	mu   sync.Mutex
	late []time.Duration
	done chan struct{}
	want int
}

// alarms is a kind with entities that have one timer each, at the time in the state, until it has rung.
func alarms(r *rung) entity.Kind {
	return entity.Rules[*structpb.Value, *structpb.Value, *structpb.Value]{
		Name: "alarm", Zero: func(string) *structpb.Value { return &structpb.Value{} },
		Decide: func(call entity.Call, s, c *structpb.Value) ([]*structpb.Value, error) {
			if s.GetNumberValue() != 0 && c.GetNumberValue() == 0 {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.late = append(r.late, time.Since(time.UnixMilli(int64(s.GetNumberValue()))))
				if len(r.late) == r.want {
					close(r.done)
				}
			}
			return []*structpb.Value{c}, nil
		},
		Evolve: func(_, e *structpb.Value) *structpb.Value { return e },
		Reply: func(entity.Call, *structpb.Value, *structpb.Value, []*structpb.Value) proto.Message {
			return &structpb.Value{}
		},
		Timers: func(s *structpb.Value) []entity.Timer {
			if s.GetNumberValue() == 0 {
				return nil
			}
			return []entity.Timer{{ID: "alarm", At: int64(s.GetNumberValue()), Message: structpb.NewNumberValue(0)}}
		},
	}.Kind()
}

// waiting writes the rows of n timers that are due in a year.
func waiting(b *testing.B, journal *persistence.Store, n int) {
	const each = 1000
	var written sync.WaitGroup
	far := time.Now().Add(365 * 24 * time.Hour).UnixMilli()
	for from := 0; from < n; from += each {
		entries := make([]persistence.Change, each)
		for i := range entries {
			identity, at := fmt.Sprintf("waiting%d", from+i), far+int64(from+i)
			row, err := proto.Marshal(&runtimev1.Timer{Kind: "alarm", Identity: identity, Id: "alarm", At: at})
			if err != nil {
				b.Fatal(err)
			}
			value := string(binary.BigEndian.AppendUint64(nil, uint64(at))) + "alarm/" + identity + "\x00alarm"
			entries[i].Entry = persistence.Entry{Index: "timer", Value: value, Data: row}
		}
		written.Add(1)
		partition := persistence.Partition(from / each % journal.Partitions())
		journal.Append(persistence.Proposal{Partition: partition, Stream: "bench/timers", Epoch: 1, Entries: entries}, func(r persistence.Result) {
			if r.Err != nil {
				b.Error(r.Err)
			}
			written.Done()
		})
		if from/each%16 == 15 {
			written.Wait()
		}
	}
	written.Wait()
}

// BenchmarkTimers reports the start of the actors, their memory, and the delay of 1,000 commands that are due within two
// seconds, beside timers that wait.
func BenchmarkTimers(b *testing.B) {
	for _, n := range []int{1_000, million} {
		b.Run(fmt.Sprint("waiting=", n), func(b *testing.B) {
			journal, err := persistence.Open(persistence.Options{Dir: Disk(b), Partitions: 12, CacheBytes: 64 << 20, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer journal.Close()
			waiting(b, journal, n)
			for b.Loop() {
				r := &rung{done: make(chan struct{}), want: 1000}
				router := cluster.NewRouter(12, false)
				before := heap()
				began := time.Now()
				system := actors.New(actors.Options{Journal: journal, Partitions: 12, Kinds: []entity.Kind{alarms(r)}, Ask: router.Ask,
					Clock: time.Now, Log: slog.New(slog.DiscardHandler), IdleAfter: time.Hour})
				router.Attach(system)
				system.Start()
				set(b, router, -1, time.Now()) // the actors have started when the first answer arrives
				started := time.Since(began)
				b.ReportMetric(float64(heap()-before)/float64(n), "heap-B/timer")
				b.ReportMetric(float64(started.Microseconds())/1000, "start-ms")
				due := time.Now().Add(time.Second)
				for i := range r.want {
					set(b, router, i, due.Add(time.Duration(i)*2*time.Millisecond))
				}
				<-r.done
				slices.Sort(r.late)
				b.ReportMetric(float64(r.late[len(r.late)/2].Microseconds())/1000, "late-p50-ms")
				b.ReportMetric(float64(r.late[len(r.late)*99/100].Microseconds())/1000, "late-p99-ms")
				system.Stop(context.Background())
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func set(b *testing.B, router *cluster.Router, i int, at time.Time) {
	b.Helper()
	if i < 0 {
		at = at.Add(24 * time.Hour)
	}
	_, err := router.Ask(context.Background(), entity.Command{Kind: "alarm", Identity: fmt.Sprint("alarm", i), Principal: entity.Platform(),
		Message: structpb.NewNumberValue(float64(at.UnixMilli()))})
	if err != nil {
		b.Fatal(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// crowd is a share of computers. Some of them run.
type crowd struct {
	all     []*computerv1.Present
	running []string
}

func (c *crowd) Running() []string { return c.running }

func (c *crowd) Present(after string, limit int) ([]*computerv1.Present, error) {
	from, _ := slices.BinarySearchFunc(c.all, after+"\x00", func(p *computerv1.Present, id string) int {
		if p.GetWorkspaceId() < id {
			return -1
		}
		return 1
	})
	return c.all[from:min(from+limit, len(c.all))], nil
}

func (c *crowd) Occupied(string, int) ([]string, error)          { return nil, nil }
func (c *crowd) Processes(string) ([]*computerv1.Process, error) { return nil, nil }

func (c *crowd) Schedules(string, int) ([]*computerv1.ScheduleRow, error) { return nil, nil }

func (c *crowd) Schedule(string) (*computerv1.ScheduleRow, error) { return nil, nil }

func (c *crowd) Find(id string) (*computerv1.Present, error) {
	return &computerv1.Present{WorkspaceId: id}, nil
}

// counting is a driver that counts samples.
type counting struct {
	computer.Driver
	mu    sync.Mutex
	taken int
}

func (c *counting) Sample(context.Context, string) (*computerv1.Sample, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken++
	return &computerv1.Sample{}, nil
}

// BenchmarkSampling counts the samples of one interval, for 100 running computers among 1,000 and among 100,000.
func BenchmarkSampling(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint("workspaces=", n), func(b *testing.B) {
			c := &crowd{}
			for i := range n {
				c.all = append(c.all, &computerv1.Present{WorkspaceId: fmt.Sprintf("ws_%06d", i)})
			}
			for _, p := range c.all[:100] {
				c.running = append(c.running, p.GetWorkspaceId())
			}
			const interval = time.Second
			for b.Loop() {
				driver := &counting{}
				f := computer.New(computer.Options{Driver: driver, SampleEvery: interval, Log: slog.New(slog.DiscardHandler),
					Put: func(context.Context, string, entity.Row) error { return nil }})
				before := processorTime()
				ctx, cancel := context.WithTimeout(b.Context(), 5*interval)
				f.Follow(ctx, c)
				cancel()
				b.ReportMetric(float64(processorTime()-before)/5/1e6, "processor-ms/interval")
				b.ReportMetric(float64(driver.taken)/5, "samples/interval")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
