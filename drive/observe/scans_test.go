package observe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/tests/await"
)

// The mode Scans needs no rights, so these tests run as any user.

func TestScansFindChanges(t *testing.T) {
	outside := t.TempDir()
	tests := []struct {
		name, before, script string
		want                 []string
	}{
		{"nothing", "echo a >a", "true", nil},
		{"new file", "", "echo a >a", []string{"session:ses_1 create a"}},
		{"overwrite", "echo a >a", "echo b >a", []string{"session:ses_1 write a"}},
		{"remove", "echo a >a", "rm a", []string{"session:ses_1 delete a"}},
		{"rename", "echo a >a", "mv a b", []string{"session:ses_1 create b", "session:ses_1 delete a"}},
		{"replace", "echo a >a", "rm a; echo b >a", []string{"session:ses_1 write a"}},
		{"save through a temporary file", "echo a >a", "echo b >t; mv t a", []string{"session:ses_1 write a"}},
		{"permissions", "echo a >a", "chmod 600 a", nil},
		{"tree", "", "mkdir -p a/b; echo c >a/b/c",
			[]string{"session:ses_1 create a/b/c", "session:ses_1 create folder a", "session:ses_1 create folder a/b"}},
		{"empty folder", "", "mkdir a", []string{"session:ses_1 create folder a"}},
		{"in a generated tree", "mkdir node_modules", "echo a >node_modules/a", []string{"session:ses_1 create node_modules/a in node_modules"}},
		{"pipe", "", "mkfifo a", nil},
		{"unknown entry is removed", "mkdir build; echo b >build/b", "rm build/b",
			[]string{"session:ses_1 delete build in build"}},
		{"move in", "", "mkdir -p " + outside + "/t; echo a >" + outside + "/t/u; mv " + outside + "/t t",
			[]string{"session:ses_1 create folder t", "session:ses_1 create t/u"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t, Options{scanOnly: true})
			if test.before != "" {
				n.script(app, test.before)
				n.awaitClock() // times of files are not more exact
			}
			before := len(n.activity.Rows())
			s := n.start(session)
			s.awaitScan() // or it finds the drive in the middle of the script
			s.run(test.script)
			s.end()
			got := n.rows()[before:]
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("rows:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(test.want, "\n  "))
			}
		})
	}
}

// awaitScan waits until the first scan of the observation of a drive has ended.
func (s *shell) awaitScan() {
	s.node.t.Helper()
	await.True(s.node.t, "the end of the first scan", func() bool {
		isIdle := make(chan bool, 1)
		err := s.watch.reader.do(func() {
			d := s.watch.reader.drives[workspace]
			isIdle <- d.scanSince.IsZero() && !d.isBusy
		})
		if err != nil {
			s.node.t.Fatal(err)
		}
		return <-isIdle
	})
}

// awaitClock waits until the file system gives a new file a time that is later than now by twice the margin of scans.
func (n *node) awaitClock() {
	n.t.Helper()
	now, path := time.Now(), filepath.Join(n.t.TempDir(), "clock")
	await.Seen(n.t, "the clock of the file system", func() (any, bool) {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			n.t.Fatal(err)
		}
		at, err := os.Stat(path)
		if err != nil {
			n.t.Fatal(err)
		}
		return at.ModTime().Sub(now), at.ModTime().Sub(now) > 2*clockMargin
	})
}

func TestHintsLeadToScans(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	s := n.start(session)
	s.run("mkdir -p a/b; echo c >a/b/c")
	n.awaitRows(3)
	s.run("echo d >>a/b/c")
	n.awaitRows(4)
	s.run("rm a/b/c")
	n.awaitRows(5)
	s.end()
	n.expectSameTree()
}

func TestScansAttributeToTheOnlyAuthor(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	a, b := n.start(session), n.start(app)
	a.run("echo a >a")
	a.end()
	b.run("echo b >b")
	b.end()
	n.expect("system create a", "api-key:key_1 create b")
}

// TestScansDoNotCountRoutes scans a drive again and again while its routes change it.
func TestScansDoNotCountRoutes(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	s := n.start(session)
	d := n.drive()
	web := drive.Change{Author: &activityv1.Author{Actor: "web:usr_1"}, Principal: entity.Platform()}
	done, changing := make(chan struct{}), sync.WaitGroup{}
	changing.Go(func() {
		for i := range 100 {
			path := fmt.Sprintf("f%d", i%10)
			if _, _, err := d.Put(context.Background(), path, drive.Upload{Body: strings.NewReader("web"), Size: 3}, web); err != nil {
				t.Error(err)
			}
			if i%5 == 0 {
				_, _ = d.Move(context.Background(), path, "moved-"+path, true, web)
			}
			if i%7 == 0 {
				_ = d.Remove(context.Background(), path, web)
			}
			if i%9 == 0 {
				_, _ = d.Copy(context.Background(), "moved-f0", fmt.Sprintf("copy%d", i), true, false, web)
			}
		}
		close(done)
	})
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		scan := &scan{observer: n.observer, workspaceID: workspace, author: session}
		if err := scan.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	changing.Wait()
	s.run("echo a >process")
	s.end()
	n.expectSameTree()
	for _, row := range n.rows() {
		if !strings.HasPrefix(row, "web:") && row != "session:ses_1 create process" {
			t.Errorf("row %q is of a change of the routes", row)
		}
	}
}

func TestRecoverFindsChangesBeforeACrash(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	n.script(session, "mkdir old; echo a >old/a; echo b >old/b; echo c >c")
	d := n.drive()
	n.awaitClock() // the changes so far are older than the mark
	if err := d.WriteState(markName, fmt.Appendf(nil, `{"since":%d}`, time.Now().UnixMilli())); err != nil {
		t.Fatal(err)
	}
	n.put("web", "content")
	if err := os.WriteFile(filepath.Join(n.files, "old", "a"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.files, "old", "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.files, "new"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := len(n.rows())
	if err := n.observer.Recover(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	got := n.rows()[before:]
	slices.Sort(got)
	if want := []string{"system create new", "system delete old/b", "system write old/a"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	if content, err := d.ReadState(markName); content != nil || err != nil {
		t.Errorf("the mark is left: %s, %v", content, err)
	}
}

// TestScanOfPathsThatAreTooLong scans a drive with a folder with a path that is longer than a system call accepts.
func TestScanOfPathsThatAreTooLong(t *testing.T) {
	n := newNode(t, Options{scanOnly: true})
	if err := n.observer.writeMark(t.Context(), workspace, time.Now()); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("/bin/bash", "-c", `echo a >a; name=$(printf '%0200d'); for i in {1..25}; do mkdir $name; cd -P $name || exit; done; echo b >b`)
	run.Dir = n.files
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := n.observer.Recover(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(n.rows(), "system create a") {
		t.Errorf("rows %q", n.rows())
	}
}
