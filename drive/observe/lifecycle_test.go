package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/tests/await"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// exchange replaces the drive's tree by a copy, as a restore does.
func (n *node) exchange() {
	n.t.Helper()
	home := filepath.Dir(n.files)
	staged := filepath.Join(home, "tmp", "staged")
	if err := os.CopyFS(staged, os.DirFS(n.files)); err != nil {
		n.t.Fatal(err)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, staged, unix.AT_FDCWD, n.files, unix.RENAME_EXCHANGE); err != nil {
		n.t.Fatal(err)
	}
}

// descriptors returns the number of open descriptors of a kind.
func descriptors(t *testing.T, kind string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(target, kind) {
			count++
		}
	}
	return count
}

func TestIdleNodeObservesNothing(t *testing.T) {
	n := newNode(t, Options{})
	before := descriptors(t, "fanotify")
	a, b := n.start(session), n.start(app)
	if got := descriptors(t, "fanotify"); got != before+1 {
		t.Errorf("%d fanotify groups, want %d", got, before+1)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(n.files), markName)); err != nil {
		t.Error(err)
	}
	a.end()
	b.end()
	if got := descriptors(t, "fanotify"); got != before {
		t.Errorf("%d fanotify groups are left, want %d", got, before)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(n.files), markName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark is left: %v", err)
	}
	n.script(session, "echo a >a") // and observes again
	n.expect("session:ses_1 create a")
}

// awaitRows waits until there are rows.
func (n *node) awaitRows(count int) {
	n.t.Helper()
	await.Seen(n.t, fmt.Sprintf("%d rows", count), func() (any, bool) {
		rows := len(n.activity.Rows())
		return rows, rows >= count
	})
}

func TestRowsAppearWhileTheProcessRuns(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	s.run("exec 3>log; echo a >&3")
	n.awaitRows(1)
	s.run("echo b >&3")
	n.awaitRows(2)
	s.end()
	n.expect("session:ses_1 create log", "session:ses_1 write log")
}

func TestUnknownOutcomeIsRecordedOnce(t *testing.T) {
	n := newNode(t, Options{})
	var failures atomic.Int32
	n.activity.Fail(func(m proto.Message, after bool) error {
		if _, ok := m.(*activityv1.Record); ok && failures.Add(1) <= 4 {
			return drivetest.ErrUnknown // before and after it takes effect
		}
		return nil
	})
	n.script(session, "echo a >a; mkdir b; echo c >b/c")
	n.expect("session:ses_1 create a", "session:ses_1 create folder b", "session:ses_1 create b/c")
}

func TestRefusedRowsDoNotBlock(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	n.activity.Fail(func(m proto.Message, _ bool) error {
		if _, ok := m.(*activityv1.Record); ok {
			return entity.Errorf(entity.NotFound, "")
		}
		return nil
	})
	s.run("echo a >a")
	_ = s.close()
	_ = s.command.Wait()
	if err := s.watch.End(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("End: %v", err)
	}
	n.activity.Fail(nil)
	n.script(session, "echo b >b")
	n.expect("session:ses_1 create b")
}

func TestDeletedDriveEndsTheWatch(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	s.run("echo a >a")
	if err := os.RemoveAll(filepath.Dir(n.files)); err != nil {
		t.Fatal(err)
	}
	_ = s.close()
	_ = s.command.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := s.watch.End(ctx); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("End: %v", err)
	}
}

func TestCloseLeavesTheRestToRecover(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	n.activity.Fail(func(m proto.Message, _ bool) error {
		if _, ok := m.(*activityv1.Record); ok {
			return drivetest.ErrUnknown
		}
		return nil
	})
	s.run("mkdir a; echo b >a/b; echo c >c")
	if err := n.observer.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.observer.Begin(t.Context(), workspace, session); err == nil {
		t.Error("a closed observer begins a watch")
	}
	s.run("echo d >d")
	_ = s.close()
	_ = s.command.Wait()
	if err := s.watch.End(t.Context()); err == nil {
		t.Error("End of a closed observer returns no error")
	}
	n.activity.Fail(nil)
	n.restart(Options{Drives: n.drives, Asker: n.activity})
	if err := n.observer.Recover(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	n.expectSameTree()
	rows := len(n.rows())
	if err := n.observer.Recover(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	if got := len(n.rows()); got != rows {
		t.Errorf("a second recovery adds rows:\n%s", strings.Join(n.rows(), "\n"))
	}
}

// TestBeginEndsWithItsContext begins a second watch while the first one waits for the activity, which does not answer.
func TestBeginEndsWithItsContext(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	if err := n.observer.writeMark(t.Context(), workspace, time.Now()); err != nil {
		t.Fatal(err)
	}
	repairing, answer := make(chan struct{}, 1), make(chan struct{})
	n.activity.Fail(func(m proto.Message, _ bool) error {
		if _, ok := m.(*activityv1.ReadFeed); ok {
			select {
			case repairing <- struct{}{}:
			default:
			}
			<-answer
		}
		return nil
	})
	first := make(chan error, 1)
	go func() {
		w, err := n.observer.Begin(t.Context(), workspace, session)
		if err == nil {
			err = w.End(t.Context())
		}
		first <- err
	}()
	<-repairing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		_, err := n.observer.Begin(ctx, workspace, app)
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second watch: %v", err)
		}
	case <-time.After(3 * time.Minute):
		t.Error("the second watch waits for the first one after its context has ended")
	}
	close(answer)
	if err := <-first; err != nil {
		t.Errorf("the first watch: %v", err)
	}
	n.script(session, "echo a >a") // nothing is left of the second watch
	n.expect("session:ses_1 create a")
	if n.observer.watches != 0 {
		t.Errorf("%d watches are left", n.observer.watches)
	}
}

// TestKernelQueueOverflow stops the reader until the kernel drops events.
func TestKernelQueueOverflow(t *testing.T) {
	n := newNode(t, Options{isLimited: true})
	n.script(session, "mkdir old; for i in {1..20}; do echo a >old/$i; done")
	s := n.start(session)
	s.run("mkdir moved; echo a >moved/a")
	n.awaitRows(23)
	n.put("web", "content")
	held, release := make(chan struct{}), make(chan struct{})
	if err := s.watch.reader.do(func() { close(held); <-release }); err != nil {
		t.Fatal(err)
	}
	<-held
	s.run("mkdir new; for i in {1..17000}; do : >new/$i; done; rm old/7 old/8; echo b >old/9; mv moved there")
	close(release)
	s.awaitScan()
	s.run("echo b >>there/a") // in a folder after a missed move
	s.end()
	if got := counter(t, n.observer.metrics.overflows.WithLabelValues("kernel")); got == 0 {
		testmachine.Lacks(t, "the queue of this kernel holds all events")
	}
	n.expectSameTree()
	for _, want := range []string{"session:ses_1 write old/9", "session:ses_1 write there/a"} {
		if !slices.Contains(n.rows(), want) {
			t.Errorf("no row %q", want)
		}
	}
	n.expectNoDuplicates()
}

func counter(t testing.TB, c prometheus.Counter) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// expectNoDuplicates fails if a path was created twice.
func (n *node) expectNoDuplicates() {
	n.t.Helper()
	created := map[string]int{}
	for _, row := range n.rows() {
		_, what, _ := strings.Cut(row, " ")
		if created[what]++; strings.HasPrefix(what, "create") && created[what] == 2 {
			n.t.Errorf("row %q is there twice", row)
		}
		if strings.Contains(what, " web") && !strings.HasPrefix(row, "web:") {
			n.t.Errorf("row %q is of a change of the routes", row)
		}
	}
}

func TestQueueIsReplacedWhenItIsTooLong(t *testing.T) {
	n := newNode(t, Options{maxQueueBytes: 1, maxPending: 1 << 20})
	s := n.start(session)
	held, release := make(chan struct{}), make(chan struct{})
	if err := s.watch.reader.do(func() { close(held); <-release }); err != nil {
		t.Fatal(err)
	}
	<-held
	s.run(fmt.Sprintf("for i in {1..%d}; do : >f$i; done", maxBatch+5000))
	close(release)
	s.end()
	n.expectSameTree()
	n.expectNoDuplicates()
}

// TestSlowJournal makes more changes than may wait for the journal.
func TestSlowJournal(t *testing.T) {
	n := newNode(t, Options{maxPending: 100})
	s := n.start(session)
	release := make(chan struct{})
	n.activity.Fail(func(m proto.Message, after bool) error {
		if _, ok := m.(*activityv1.Record); ok && !after {
			<-release
		}
		return nil
	})
	s.run("echo a >first")
	s.run("for j in {1..40}; do for i in {1..50}; do echo a >f$j-$i; done; done; rm f1-1 f2-2; mv f3-3 g")
	close(release)
	s.end()
	n.expectSameTree()
}
