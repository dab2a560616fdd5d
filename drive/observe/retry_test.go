package observe

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/drivetest"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// TestFailedQueryLosesNothing fails a query in the middle of changes that are recorded together. The next attempt begins with
// the first of them again, which the first attempt has not recorded.
func TestFailedQueryLosesNothing(t *testing.T) {
	n := newNode(t, Options{})
	n.script(session, "echo a >removed; echo a >mapped")
	var queries atomic.Int32
	n.activity.Fail(func(m proto.Message, _ bool) error {
		if q, ok := m.(*activityv1.ReadFeed); ok && q.GetPath() == "last" && queries.Add(1) == 1 {
			return drivetest.ErrUnknown
		}
		return nil
	})
	n.script(session, `echo b >t; mv t removed; rm removed
echo c >t; mv t created
python3 -c '
import mmap
with open("mapped", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
	m[0] = 98
'
echo d >t; mv t last`)
	n.expect("session:ses_1 create removed", "session:ses_1 create mapped",
		"session:ses_1 delete removed", "session:ses_1 create created", "session:ses_1 write mapped", "session:ses_1 create last")
	if queries.Load() < 2 {
		t.Error("no query has failed")
	}
}

// TestRequestsRunWhileEventsCannotBeRead makes reads of the kernel's events fail. Watches begin and end nevertheless.
func TestRequestsRunWhileEventsCannotBeRead(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0) // cannot be read
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	var events, saved int
	broken := make(chan error, 1)
	requested := s.watch.reader.do(func() {
		events = s.watch.reader.group.fd
		var err error
		if saved, err = unix.FcntlInt(uintptr(events), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.Dup3(null, events, unix.O_CLOEXEC)
		}
		broken <- err
	})
	if err := errors.Join(requested, <-broken); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(saved)
	began := make(chan error, 1)
	go func() {
		second, err := n.observer.Begin(t.Context(), workspace, app)
		began <- err
		if err == nil {
			_ = second.End(t.Context())
		}
	}()
	select {
	case err := <-began:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Minute):
		t.Error("no watch begins while the events of the kernel cannot be read")
	}
	if err := unix.Dup3(saved, events, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	s.run("mkdir a") // one change: between two, the scan of the drive could make them two rows
	s.end()
	n.expect("session:ses_1 create folder a")
}

// TestFailingScansPause ends a watch while the activity answers no query. The scan that the end waits for is repeated, but not
// without a pause.
func TestFailingScansPause(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	s := n.start(session)
	s.run("echo a >a")
	var queries atomic.Int32
	n.activity.Fail(func(m proto.Message, _ bool) error {
		if _, ok := m.(*activityv1.ReadFeed); ok {
			queries.Add(1)
			return drivetest.ErrUnknown
		}
		return nil
	})
	_ = s.close()
	_ = s.command.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.watch.End(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("End: %v", err)
	}
	if got := queries.Load(); got == 0 || got > 2 {
		t.Errorf("%d scans have failed within 300 ms", got)
	}
	n.activity.Fail(nil)
	if err := s.watch.End(t.Context()); err != nil {
		t.Error(err)
	}
	n.expect("session:ses_1 create a")
}
