package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

const (
	// sampleEvery is the interval between samples of a running computer in BenchmarkWorkspaces. The default is 15 s; the cost
	// of a round does not depend on it.
	sampleEvery = time.Second
	// observed is the number of rounds that are observed together.
	observed = 10
)

// usages are the numbers of workspaces in use while rounds of sampling are observed.
var usages = []int{0, 100, 1_000}

// BenchmarkWorkspaces starts a node, in a process of its own, over 1,000 and over 100,000 workspaces with computers. It reports
// the duration of the start, the memory and file descriptors of the node afterwards, and the processor time of a round of
// samples. The first rounds after the start also check idle computers, a bounded number in each; they are observed while no
// workspace is in use, and the later ones when all idle computers have been checked.
func BenchmarkWorkspaces(b *testing.B) {
	counts := []int{1_000, 100_000}
	dirs := map[int]string{}
	for _, n := range counts {
		dirs[n] = Workspaces(b, n)
	}
	took, resident, descriptors := map[int][]time.Duration{}, map[int][]float64{}, map[int]int{}
	for b.Loop() {
		for turn := range Turns * len(counts) {
			n := counts[turn%len(counts)]
			child := NewChild(b)
			s := child.ask(wish{Start: dirs[n], SampleEvery: sampleEvery})
			took[n] = append(took[n], s.Took)
			resident[n] = append(resident[n], float64(s.Resident)/(1<<20))
			descriptors[n] = s.Descriptors
			if turn < len(counts) {
				reportRounds(b, child, n)
			}
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

// reportRounds observes rounds of sampling in a node over n workspaces that has just started.
func reportRounds(b *testing.B, child *Child, n int) {
	b.Helper()
	report := func(name string, s state) {
		b.ReportMetric(float64(s.Processor.Microseconds())/1000/observed, fmt.Sprintf("round-%d-%s-ms", n, name))
		b.ReportMetric(float64(s.Samples)/observed, fmt.Sprintf("samples-%d-%s", n, name))
	}
	if n >= 100_000 { // fewer workspaces are checked in one round
		report("starting", child.ask(wish{Rounds: observed}))
	}
	child.ask(wish{Quiet: true})
	var last state
	for _, used := range usages {
		last = child.ask(wish{Use: used, Rounds: observed})
		if last.Samples < used*(observed-1) || last.Samples > (used+1)*(observed+1) { // the member's own workspace may be in use, too
			b.Errorf("%d samples of %d running computers in %d rounds", last.Samples, used, observed)
		}
		report(fmt.Sprint(used, "-running"), last)
	}
	b.ReportMetric(float64(last.Resident)/(1<<20), fmt.Sprintf("resident-%d-in-use-MB", n))
	b.ReportMetric(float64(last.Descriptors), fmt.Sprintf("descriptors-%d-in-use", n))
}

// Workspaces returns the data directory of a node with n unused workspaces, each with a drive and a computer. If
// BENCH_DATABASES is set, the directory stays there for the next run.
func Workspaces(b *testing.B, n int) string {
	b.Helper()
	kept := os.Getenv("BENCH_DATABASES")
	if kept == "" {
		dir := Disk(b)
		fillWorkspaces(b, dir, n)
		return dir
	}
	dir := filepath.Join(kept, fmt.Sprint("workspaces-", n))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	filling := dir + ".filling"
	if err := os.RemoveAll(filling); err != nil {
		b.Fatal(err)
	}
	fillWorkspaces(b, filling, n)
	if err := os.Rename(filling, dir); err != nil {
		b.Fatal(err)
	}
	return dir
}

// fillWorkspaces creates workspaces through a node, and waits until their computers are provisioned.
func fillWorkspaces(b *testing.B, dir string, n int) {
	m, err := startSampling(dir, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	next := make(chan int, 1024)
	var makers sync.WaitGroup
	for range 512 {
		makers.Go(func() {
			for i := range next {
				_, err := m.Node.Router.Ask(context.Background(), entity.Command{
					Kind: entity.KindWorkspace, Identity: WorkspaceID(i), Principal: entity.Platform(),
					Message: &workspacev1.CreateWorkspace{
						Slug: fmt.Sprint("workspace-", i), Name: "Workspace", CreatorId: workspaceCreator(i),
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
	for p := range m.Node.Journal.Partitions() {
		awaitTasks(b, m, persistence.Partition(p))
	}
	if err := m.Stop(); err != nil {
		b.Fatal(err)
	}
}

// awaitTasks waits until the reactions of a partition are done and it has no open task.
func awaitTasks(b *testing.B, m *Member, p persistence.Partition) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if err := m.Node.Router.SettleAll(ctx, p); err != nil {
			b.Fatal(err)
		}
		open, err := hasTasks(m, p)
		if err != nil {
			b.Fatal(err)
		}
		if !open {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			b.Fatal("computers are being provisioned for too long")
		}
	}
}

func hasTasks(m *Member, p persistence.Partition) (bool, error) {
	v, err := m.Node.Journal.View()
	if err != nil {
		return false, err
	}
	defer v.Close()
	for _, err := range v.Index(p, persistence.Query{Index: "task", Prefix: true}) {
		return true, err
	}
	return false, nil
}
