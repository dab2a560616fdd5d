package observe

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

func TestTwoAuthorsOfOneDrive(t *testing.T) {
	n := newNode(t, Options{})
	a, b := n.start(session), n.start(app)
	a.run("mkdir a; echo 1 >a/1")
	b.run("mkdir b; echo 1 >b/1; echo 2 >a/1")
	a.run("rm a/1; mv b/1 a/2")
	a.end()
	b.run("mv a/2 b/2")
	b.end()
	n.expectSameTree()
	for _, row := range []string{"session:ses_1 create folder a", "api-key:key_1 create folder b", "api-key:key_1 create b/1",
		"session:ses_1 delete a/1", "session:ses_1 rename b/1 to a/2", "api-key:key_1 rename a/2 to b/2"} {
		if !slices.Contains(n.rows(), row) {
			t.Errorf("no row %q in\n%s", row, strings.Join(n.rows(), "\n"))
		}
	}
}

func TestProcessOfNoWatchIsTheSystem(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	stranger := n.start(app)
	stranger.watch.reader.processes.remove(stranger.watch)
	stranger.run("echo a >a")
	s.run("echo b >b")
	s.end()
	stranger.end()
	n.expect("system create a", "session:ses_1 create b")
}

func TestProcessWithUnknownIDIsTheOnlyAuthors(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	s.watch.reader.processes.remove(s.watch)
	isBusy, release := make(chan struct{}), make(chan struct{})
	if err := s.watch.reader.do(func() { close(isBusy); <-release }); err != nil {
		t.Fatal(err)
	}
	<-isBusy
	if err := s.watch.Attribute(0); err != nil {
		t.Fatal(err)
	}
	s.run("echo a >a")
	close(release) // the reader reads the event before it runs requests that were made meanwhile
	s.end()
	n.expect("session:ses_1 create a")
}

// TestShortLivedProcesses runs more processes than can be looked up in /proc while they live.
func TestShortLivedProcesses(t *testing.T) {
	n := newNode(t, Options{})
	other := n.start(app)
	n.script(session, "for i in {1..600}; do (: >f$i) & done; wait")
	other.end()
	rows := n.rows()
	for i := 1; i <= 600; i++ {
		if want := fmt.Sprintf("session:ses_1 create f%d", i); !slices.Contains(rows, want) {
			t.Fatalf("no row %q", want)
		}
	}
	if len(rows) != 600 {
		t.Errorf("%d rows, want 600", len(rows))
	}
}

// TestRoutesAreNotCountedTwice changes a drive through its routes while a process changes the same and other paths. Each row of
// the routes is there once, no row of the process is for a change of the routes, and the sequence agrees with the disk.
func TestRoutesAreNotCountedTwice(t *testing.T) {
	for round := range 2 {
		n := newNode(t, Options{})
		s := n.start(session)
		web := &activityv1.Author{Actor: "web:usr_1"}
		var wait sync.WaitGroup
		d := n.drive()
		for worker := range 4 {
			wait.Go(func() {
				for i := range 60 {
					c := drive.Change{Author: web, Principal: entity.Platform()}
					shared, own := fmt.Sprintf("f%d", i%8), fmt.Sprintf("web%d-%d", worker, i)
					_, _, _ = d.Put(context.Background(), shared, drive.Upload{Body: strings.NewReader("web"), Size: 3}, c)
					_, _, err := d.Put(context.Background(), own, drive.Upload{Body: strings.NewReader("web"), Size: 3}, c)
					if err != nil {
						t.Error(err)
					}
					if i%3 == 0 {
						_, _ = d.Move(context.Background(), own, "moved-"+own, true, c)
						_ = d.Remove(context.Background(), fmt.Sprintf("f%d", (i+1)%8), c)
					}
				}
			})
		}
		s.run("for j in {1..20}; do for i in {0..7}; do echo sh >f$i; echo sh >own$i; rm -f f$(((i+3)%8)); done; done 2>&- || true")
		wait.Wait()
		s.end()
		n.expectSameTree()
		for _, row := range n.rows() {
			if strings.HasPrefix(row, "session:") && strings.Contains(row, " web") {
				t.Errorf("round %d: row %q is of a change of the routes", round, row)
			}
		}
	}
}

// TestPutIsNotAttributedToReader verifies that opening a file for reading and writing after an upload is no change.
func TestPutIsNotAttributedToReader(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	n.put("a", "content")
	s.run("exec 3<>a; exec 3>&-")
	s.end()
	n.expect("web:usr_1 create a")
}

// TestMappedWriteAfterPut verifies that a write through a memory mapping has a row though the file was uploaded shortly before.
func TestMappedWriteAfterPut(t *testing.T) {
	n := newNode(t, Options{})
	s := n.start(session)
	n.put("a", "content")
	s.run(`sleep 0.1; python3 -c '
import mmap
with open("a", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
	m[0] = 67
'`)
	s.end()
	n.expect("web:usr_1 create a", "session:ses_1 write a")
}

func TestRestoreWhileObserved(t *testing.T) {
	n := newNode(t, Options{})
	n.script(session, "mkdir a; echo b >a/b")
	s := n.start(session)
	s.run("echo c >a/c")
	n.exchange()
	s.run(fmt.Sprintf("cd %s; echo d >a/d; echo e >e", filepath.Join(n.files)))
	s.end()
	rows := n.rows()
	for _, want := range []string{"session:ses_1 create a/d", "session:ses_1 create e"} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in\n%s", want, strings.Join(rows, "\n"))
		}
	}
}
