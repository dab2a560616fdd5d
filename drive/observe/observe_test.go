package observe

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/tests/testmachine"
)

const workspace = "ws_1"

var (
	session = &activityv1.Author{Actor: "session:ses_1", UserId: "usr_1"}
	app     = &activityv1.Author{Actor: "api-key:key_1"}
)

// A node is an observed drive with a model of its activity.
type node struct {
	t        testing.TB
	activity *drivetest.Activity
	drives   *drive.Drives
	observer *Observer
	files    string
}

// requireEvents skips a test that needs the rights of root, unless the environment says that all tests have to run.
func requireEvents(t testing.TB, o *Observer) {
	t.Helper()
	if mode, reason := o.Mode(); mode != Events {
		testmachine.Lacks(t, fmt.Sprintf("events cannot be observed: %v", reason))
	}
}

func newNode(t testing.TB, options Options) *node {
	t.Helper()
	n := &node{t: t, activity: &drivetest.Activity{}}
	log := slog.New(slog.NewTextHandler(testLog{t}, nil))
	drives, err := drive.New(drive.Options{Dir: filepath.Join(t.TempDir(), "drives"), Asker: n.activity, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = drives.Close() })
	if err := drives.Provision(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	n.drives, n.files = drives, filepath.Join(drives.Dir(), workspace, "files")
	options.Drives, options.Asker, options.Log = drives, n.activity, log
	n.restart(options)
	return n
}

// restart creates a new observer.
func (n *node) restart(options Options) {
	n.t.Helper()
	o, err := New(options)
	if err != nil {
		n.t.Fatal(err)
	}
	n.observer = o
	n.t.Cleanup(func() { _ = o.Close() })
	if !options.scanOnly {
		requireEvents(n.t, o)
	}
}

type testLog struct{ testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.Helper()
	l.Log(strings.TrimSpace(string(line)))
	return len(line), nil
}

// A shell is an observed shell.
type shell struct {
	node    *node
	watch   *Watch
	command *exec.Cmd
	stdin   *bufio.Writer
	close   func() error
	output  *bufio.Reader
}

// start starts an observed shell in the drive.
func (n *node) start(author *activityv1.Author) *shell {
	n.t.Helper()
	w, err := n.observer.Begin(n.t.Context(), workspace, author)
	if err != nil {
		n.t.Fatal(err)
	}
	s := &shell{node: n, watch: w, command: exec.Command("/bin/bash", "--norc")}
	s.command.Dir = n.files
	s.command.Stderr = os.Stderr
	in, err := s.command.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	s.stdin, s.close, s.output = bufio.NewWriter(in), in.Close, bufio.NewReader(out)
	if err := s.command.Start(); err != nil {
		n.t.Fatal(err)
	}
	if err := w.Attribute(s.command.Process.Pid); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// run runs a script and waits for its end. It returns its output.
func (s *shell) run(script string) string {
	s.node.t.Helper()
	fmt.Fprintf(s.stdin, "%s\necho; echo __done__ $?\n", script)
	if err := s.stdin.Flush(); err != nil {
		s.node.t.Fatal(err)
	}
	var out strings.Builder
	for {
		line, err := s.output.ReadString('\n')
		if err != nil {
			s.node.t.Fatalf("the shell has ended: %v\n%s", err, out.String())
		}
		if status, ok := strings.CutPrefix(line, "__done__ "); ok {
			if strings.TrimSpace(status) != "0" {
				s.node.t.Fatalf("status %sof %s\n%s", status, script, out.String())
			}
			return out.String()
		}
		out.WriteString(line)
	}
}

// end ends the shell and its watch.
func (s *shell) end() {
	s.node.t.Helper()
	_ = s.close()
	_ = s.command.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := s.watch.End(ctx); err != nil {
		s.node.t.Fatal(err)
	}
}

// script runs a script in an observed shell of its own.
func (n *node) script(author *activityv1.Author, script string) {
	n.t.Helper()
	s := n.start(author)
	s.run(script)
	s.end()
}

// rows returns the rows as text, and forgets them.
func (n *node) rows() []string {
	var rows []string
	for _, op := range n.activity.Rows() {
		rows = append(rows, text(op))
	}
	return rows
}

func text(op *activityv1.Operation) string {
	kind := strings.ToLower(strings.TrimPrefix(op.GetKind().String(), "KIND_"))
	s := op.GetAuthor().GetActor() + " " + kind
	if op.GetEntryKind() == activityv1.EntryKind_ENTRY_KIND_FOLDER {
		s += " folder"
	}
	if op.GetFromPath() != "" {
		s += " " + op.GetFromPath() + " to"
	}
	s += " " + op.GetPath()
	if op.GetCount() > 0 {
		s += fmt.Sprintf(" (%d)", op.GetCount())
	}
	if op.GetTree() != "" {
		s += " in " + op.GetTree()
	}
	return s
}

// expect compares the rows, in any order if sorted.
func (n *node) expect(want ...string) {
	n.t.Helper()
	if got := n.rows(); !slices.Equal(got, want) {
		n.t.Errorf("rows:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// onDisk returns the paths of the drive, with a slash behind the paths of folders.
func (n *node) onDisk() []string {
	n.t.Helper()
	var paths []string
	err := filepath.WalkDir(n.files, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == n.files {
			return err
		}
		path = strings.TrimPrefix(path, n.files+"/")
		if entry.IsDir() {
			path += "/"
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// rebuilt returns the paths that a reader of the sequence knows.
func (n *node) rebuilt() []string {
	known := map[string]bool{} // true: a folder
	for _, op := range n.activity.Rows() {
		path := op.GetPath()
		switch op.GetKind() {
		case activityv1.Kind_KIND_CREATE, activityv1.Kind_KIND_WRITE:
			known[path] = op.GetEntryKind() == activityv1.EntryKind_ENTRY_KIND_FOLDER
		case activityv1.Kind_KIND_DELETE:
			forget(known, path)
		case activityv1.Kind_KIND_RENAME:
			moved := map[string]bool{}
			for p, folder := range known {
				if within(p, op.GetFromPath()) {
					moved[path+p[len(op.GetFromPath()):]] = folder
				}
			}
			forget(known, op.GetFromPath())
			forget(known, path)
			moved[path] = op.GetEntryKind() == activityv1.EntryKind_ENTRY_KIND_FOLDER
			maps.Copy(known, moved)
		}
	}
	var paths []string
	for path, folder := range known {
		if folder {
			path += "/"
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func forget(known map[string]bool, path string) {
	for p := range known {
		if within(p, path) {
			delete(known, p)
		}
	}
}

// expectSameTree compares the sequence with the disk.
func (n *node) expectSameTree() {
	n.t.Helper()
	said, disk := n.rebuilt(), n.onDisk()
	if slices.Equal(said, disk) {
		return
	}
	less := func(all, others []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(path string) bool { return slices.Contains(others, path) })
	}
	rows := n.rows()
	n.t.Errorf("only in the sequence: %.20q\nonly on disk: %.20q\nlast rows:\n  %s", first(less(said, disk)), first(less(disk, said)),
		strings.Join(rows[max(0, len(rows)-100):], "\n  "))
}

func first(paths []string) []string { return paths[:min(len(paths), 20)] }

func (n *node) drive() *drive.Drive {
	n.t.Helper()
	d, release, err := n.drives.Open(context.Background(), workspace)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(release)
	return d
}

func (n *node) put(path, content string) {
	n.t.Helper()
	_, _, err := n.drive().Put(context.Background(), path, drive.Upload{Body: strings.NewReader(content), Size: int64(len(content))},
		drive.Change{Author: &activityv1.Author{Actor: "web:usr_1", UserId: "usr_1"}, Principal: entity.Platform()})
	if err != nil {
		n.t.Fatal(err)
	}
}
