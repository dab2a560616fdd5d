package bench

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/kinds"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// BenchmarkWorkspaces starts a whole node, in a process of its own, over 1,000 and over 100,000 workspaces that nobody uses,
// in turns: how long the start takes, what memory and how many descriptors the node has afterwards.
func BenchmarkWorkspaces(b *testing.B) {
	counts := []int{1_000, 100_000}
	dirs := map[int]string{}
	for _, n := range counts {
		dirs[n] = Disk(b)
		prepare(b, dirs[n])
		fillWorkspaces(b, dirs[n], n)
	}
	took, resident, descriptors := map[int][]time.Duration{}, map[int][]float64{}, map[int]int{}
	for b.Loop() {
		for turn := range Turns * len(counts) {
			n := counts[turn%len(counts)]
			child := NewChild(b)
			s := child.ask(wish{Start: dirs[n]})
			took[n] = append(took[n], s.Took)
			resident[n] = append(resident[n], float64(s.Resident)/(1<<20))
			descriptors[n] = s.Descriptors
			if err := child.stop(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, n := range counts {
		b.ReportMetric(float64(Median(took[n]).Milliseconds()), fmt.Sprintf("start-%d-ms", n))
		b.ReportMetric(Median(resident[n]), fmt.Sprintf("resident-%d-MB", n))
		b.ReportMetric(float64(descriptors[n]), fmt.Sprintf("descriptors-%d", n))
	}
}

// fillWorkspaces makes workspaces in a node's data directory without what follows from that elsewhere: they have events and
// rows, and no computers.
func fillWorkspaces(b *testing.B, dir string, n int) {
	journal, err := persistence.Open(persistence.Options{
		Dir: filepath.Join(dir, "journal"), Marks: filepath.Join(dir, "installation"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	router := cluster.NewRouter(journal.Partitions(), false)
	system := actors.New(actors.Options{
		Journal: journal, Partitions: journal.Partitions(), Kinds: kinds.All, Secret: make([]byte, 32), Ask: router.Ask,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler), IdleAfter: time.Hour,
	})
	router.Attach(system)
	system.Start()
	next := make(chan int, 1024)
	var makers sync.WaitGroup
	for range 512 {
		makers.Go(func() {
			for i := range next {
				_, err := router.Ask(context.Background(), entity.Command{
					Kind: entity.KindWorkspace, Identity: fmt.Sprintf("ws_%022d", i), Principal: entity.Platform(),
					Message: &workspacev1.CreateWorkspace{
						Slug: fmt.Sprint("workspace-", i), Name: "Workspace", CreatorId: fmt.Sprintf("usr_%022d", i/10),
						CreatorEmail: "person@example.com", CreatorName: "Person",
					},
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	makers.Wait()
	for p := range journal.Partitions() {
		if err := system.SettleAll(b.Context(), persistence.Partition(p)); err != nil {
			b.Fatal(err)
		}
	}
	system.Stop(context.Background())
	if err := journal.Close(); err != nil {
		b.Fatal(err)
	}
}
