package observe

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/tests/await"
)

// TestRequestAtAFailure begins to observe a drive in the moment in which events cannot be read. The reader begins the observation when
// it can read again, although nothing else wakes it.
func TestRequestAtAFailure(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	r, err := n.observer.retain() // it observes no drive
	if err != nil {
		t.Fatal(err)
	}
	defer n.observer.releaseReader()
	var unreadable [2]int
	if err := unix.Pipe2(unreadable[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	works, err := unix.Dup(r.hints.fd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, fd := range append(unreadable[:], works) {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Dup3(unreadable[1], r.hints.fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	begun := make(chan *Watch, 1)
	go func() {
		w, err := n.observer.Begin(t.Context(), workspace, session)
		if err != nil {
			t.Error(err)
		}
		begun <- w
	}()
	await.True(t, "the failure to read the events", func() bool {
		return counter(t, n.observer.metrics.overflows.WithLabelValues("kernel")) > 0
	})
	if err := unix.Dup3(works, r.hints.fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	select {
	case w := <-begun:
		if err := w.End(t.Context()); err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Minute):
		t.Error("Begin does not return")
	}
}

// TestMovesThatWereMissed moves a folder while events are read in vain, because the forks of processes cannot be read. A later change
// in the folder has a row with its new path.
func TestMovesThatWereMissed(t *testing.T) {
	n := newNode(t, Options{})
	n.script(session, "mkdir a; echo b >a/b")
	s := n.start(session)
	s.run("echo b >a/b")
	n.awaitRows(3)
	s.runWithoutProcesses(t, "mv a c")
	s.awaitScan()
	before := len(n.rows())
	s.run("echo later >>c/b")
	s.end()
	if got := n.rows()[before:]; !slices.Contains(got, "session:ses_1 write c/b") {
		t.Errorf("rows %q have no write of c/b", got)
	}
}

// runWithoutProcesses runs a script while the forks of processes cannot be read, so that the events that are read get lost.
func (s *shell) runWithoutProcesses(t *testing.T, script string) {
	t.Helper()
	r := s.watch.reader
	var unreadable [2]int
	if err := unix.Pipe2(unreadable[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	works, err := unix.Dup(r.processes.connector.fd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, fd := range append(unreadable[:], works) {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Dup3(unreadable[1], r.processes.connector.fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	s.run(script)
	await.True(t, "the failure to read the processes", func() bool {
		return counter(t, s.node.observer.metrics.overflows.WithLabelValues("kernel")) > 0
	})
	if err := unix.Dup3(works, r.processes.connector.fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}
