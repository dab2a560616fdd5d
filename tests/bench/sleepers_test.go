package bench

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/persistence/datadir"
)

const (
	// sleeperWorkspaces is the number of workspaces that the sleeping sessions are distributed over.
	sleeperWorkspaces = 1_000
	// dueSleepers sleep until times within dueWithin.
	dueSleepers = 2_000
	dueWithin   = 10 * time.Second
)

// BenchmarkSleepers starts a node, in a process of its own, over the same workspaces without sessions and with a million
// sleeping ones (50,000 with -short), in turns, and reports the duration of the start and the memory afterwards. It then reports
// the lateness of 2,000 further sessions that are due within ten seconds and not in memory, beside none and beside all the others.
func BenchmarkSleepers(b *testing.B) {
	many := million
	if testing.Short() {
		many = 50_000
	}
	counts, dirs := []int{0, many}, map[int]string{}
	for _, n := range counts {
		dirs[n] = sleepers(b, n)
	}
	took, resident := map[int][]time.Duration{}, map[int][]float64{}
	for b.Loop() {
		for turn := range Turns * len(counts) {
			n := counts[turn%len(counts)]
			child := NewChild(b)
			s := child.ask(wish{Start: dirs[n]})
			took[n] = append(took[n], s.Took)
			resident[n] = append(resident[n], float64(s.Resident))
			if err := child.stop(); err != nil {
				b.Fatal(err)
			}
		}
		late := map[int][]time.Duration{}
		for _, n := range counts {
			late[n] = lateness(b, dirs[n])
			for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
				b.ReportMetric(float64(Quantile(late[n], q).Milliseconds()), fmt.Sprintf("late-%d-%s-ms", n, name))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, n := range counts {
		b.ReportMetric(float64(Median(took[n]).Milliseconds()), fmt.Sprintf("start-%d-ms", n))
		b.ReportMetric(Median(resident[n])/(1<<20), fmt.Sprintf("resident-%d-MB", n))
	}
	b.ReportMetric((Median(resident[many])-Median(resident[0]))/float64(many), "resident-B/session")
}

// sleepers returns the data directory of a node with n sessions that sleep for a year.
func sleepers(b *testing.B, n int) string {
	dir := Disk(b)
	fillWorkspaces(b, dir, sleeperWorkspaces)
	if n == 0 {
		return dir
	}
	m, err := startSampling(dir, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	far := time.Now().Add(365 * 24 * time.Hour).UnixMilli()
	began := time.Now()
	writeSessions(b, m.Node.Journal.Member(node.MemberName(0)), m.Node.Router, n, func(i int) *pastSession {
		return &pastSession{
			workspaceID: WorkspaceID(i % sleeperWorkspaces), id: sessionID(i), title: fmt.Sprint("Report ", i), createdAt: firstCreated + int64(i),
			end: &sessionv1.EndTurn{Status: sessionv1.TurnStatus_TURN_STATUS_SLEEP, WakeAt: far + int64(i)},
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	for p := range m.Node.Journal.Partitions() {
		if err := m.Node.Router.SettleAll(ctx, persistence.Partition(p)); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("%d sessions written in %v", n, time.Since(began))
	if err := m.Stop(); err != nil {
		b.Fatal(err)
	}
	return dir
}

// lateness lets sessions sleep and leave memory, and returns by how much later than its due time each went on.
func lateness(b *testing.B, dir string) []time.Duration {
	store, err := persistence.Open(datadir.JournalOptions(dir, persistence.Options{Logger: slog.New(slog.DiscardHandler)}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	a := newSessionActors(b, store, 2*time.Second)
	first := time.Now().Add(20 * time.Second)
	due := func(i int) time.Time { return first.Add(time.Duration(i) * dueWithin / dueSleepers) }
	identity := func(i int) string {
		return session.Identity(WorkspaceID(i%sleeperWorkspaces), session.DerivedID("", nil, fmt.Sprint("due", i)))
	}
	creator := func(i int) *wirev1.Principal { return user(workspaceCreator(i % sleeperWorkspaces)) }
	if !parallel(b, dueSleepers, 64, func(i int) error {
		turn, err := a.startAs(creator(i), identity(i))
		if err != nil {
			return err
		}
		return a.endAs(identity(i), &sessionv1.EndTurn{
			TurnId: turn, Status: sessionv1.TurnStatus_TURN_STATUS_SLEEP, WakeAt: due(i).UnixMilli(),
		})
	}) {
		b.FailNow()
	}
	if late := time.Until(first); late < 5*time.Second {
		b.Fatalf("the machine is too slow: the first session is due in %v", late)
	}
	<-time.After(time.Until(due(dueSleepers).Add(5 * time.Second)))
	var all []time.Duration
	for i := range dueSleepers {
		at, err := a.woken(creator(i), identity(i))
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, at.Sub(time.UnixMilli(due(i).UnixMilli())))
	}
	return all
}

// woken returns the time at which a session went on after its sleep.
func (a *sessionActors) woken(p *wirev1.Principal, identity string) (time.Time, error) {
	reply, err := a.send(entity.KindSession, identity, p, &wirev1.ReadTimeline{Limit: 100})
	if err != nil {
		return time.Time{}, err
	}
	rows, err := entity.TimelineRows(reply.(*wirev1.Timeline))
	if err != nil {
		return time.Time{}, err
	}
	for _, row := range rows {
		if row.Event.(*sessionv1.RowAdded).GetRow().GetInput().GetSender().GetKind() == sessionv1.SenderKind_SENDER_KIND_SYSTEM {
			return time.UnixMilli(row.At), nil
		}
	}
	return time.Time{}, fmt.Errorf("the session %s sleeps", identity)
}
