package process

import (
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// verify compares the drive, the sequence and the rows that followers received with the operations of the workers.
func verify(t *testing.T, s *site, c workers) {
	t.Helper()
	reader := newClient(s.node.address, s.key)
	// The last kill may have interrupted operations of workers that were being stopped. The first use of the drive waits until
	// it is recovered, which completes or undoes them.
	reader.expect(t, http.StatusNotFound, http.MethodHead, drivePath("nothing"), "")
	feed, err := reader.feed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows, %d kills", len(feed), s.generation)
	for i, r := range feed {
		if r.Seq != uint64(i)+1 {
			t.Fatalf("row %d has the sequence %d", i+1, r.Seq)
		}
	}
	verifyAttempts(t, c.writers, feed)
	verifyOrder(t, c.writers, feed)
	verifyDrive(t, s, replay(c.writers, feed))
	c.account.verify(t, s.node.address)
	for i, f := range c.followers {
		verifyFollower(t, i, f, feed)
	}
}

func factOf(e event) fact { return fact{e.Kind, e.Actor, e.Path, e.FromPath} }

// verifyAttempts verifies that each fact is in the sequence at least as often as it was acknowledged and at most as often
// as it was attempted.
func verifyAttempts(t *testing.T, writers []*writer, feed []row) {
	t.Helper()
	least, most, found := map[fact]int{}, map[fact]int{}, map[fact]int{}
	for _, w := range writers {
		for _, a := range w.attempts {
			most[a.fact]++
			if a.acknowledged {
				least[a.fact]++
			}
		}
	}
	for _, r := range feed {
		f := factOf(r.Event)
		if strings.HasPrefix(f.path, "shared/") && (f.kind == "create" || f.kind == "write") {
			f.kind = "put"
		}
		found[f]++
	}
	unsure := 0
	for f, tried := range most {
		unsure += tried - least[f]
		if found[f] < least[f] || found[f] > tried {
			t.Errorf("%v: acknowledged %d times, attempted %d times, in the sequence %d times", f, least[f], tried, found[f])
		}
	}
	t.Logf("%d facts, %d attempts with an unknown outcome", len(most), unsure)
	verifyOrigins(t, writers, most, feed)
}

// verifyOrigins verifies that each row of the writers in the sequence belongs to an attempt.
func verifyOrigins(t *testing.T, writers []*writer, tried map[fact]int, feed []row) {
	t.Helper()
	actors := map[string]bool{}
	for _, w := range writers {
		actors[w.key.actor()] = true
	}
	for _, r := range feed {
		f := factOf(r.Event)
		if f.kind == "read" || !actors[f.actor] {
			continue
		}
		if strings.HasPrefix(f.path, "shared/") && f.kind != "rename" && f.kind != "delete" {
			f.kind = "put"
		}
		if tried[f] == 0 {
			t.Errorf("the row belongs to no attempt: %s", r.raw)
		}
	}
}

// verifyOrder verifies that the rows of one writer are in the order of its requests.
func verifyOrder(t *testing.T, writers []*writer, feed []row) {
	t.Helper()
	places := map[fact][]uint64{}
	for _, r := range feed {
		f := factOf(r.Event)
		places[f] = append(places[f], r.Seq)
	}
	for _, w := range writers {
		last := uint64(0)
		for _, a := range w.attempts {
			at := places[a.fact]
			if !a.acknowledged || len(at) != 1 || strings.HasPrefix(a.path, "shared/") {
				continue
			}
			if at[0] < last {
				t.Errorf("%v has seq %d, but an earlier request of the same writer has seq %d", a.fact, at[0], last)
			}
			last = at[0]
		}
	}
}

// An entry is the expected entry at a path: a folder, or a file with the author of its content.
type entry struct {
	folder bool
	author string
}

// replay returns the entries that the drive must have after the rows of the sequence.
func replay(writers []*writer, feed []row) map[string]entry {
	copies := map[string]string{}
	for _, w := range writers {
		for _, a := range w.attempts {
			if a.copied != "" {
				copies[a.path] = a.copied
			}
		}
	}
	drive := map[string]entry{}
	for _, r := range feed {
		e := r.Event
		switch e.Kind {
		case "create", "write":
			drive[e.Path] = entry{folder: e.EntryKind == "folder", author: e.Actor}
			if from := copies[e.Path]; from != "" {
				transfer(drive, from, e.Path, false)
			}
		case "rename":
			removeTree(drive, e.Path)
			transfer(drive, e.FromPath, e.Path, true)
		case "delete":
			removeTree(drive, e.Path)
		}
	}
	return drive
}

func below(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func removeTree(drive map[string]entry, folder string) {
	maps.DeleteFunc(drive, func(path string, _ entry) bool { return below(path, folder) })
}

// transfer copies or, with away, moves a tree.
func transfer(drive map[string]entry, from, to string, away bool) {
	moved := map[string]entry{}
	for path, e := range drive {
		if below(path, from) {
			moved[to+strings.TrimPrefix(path, from)] = e
		}
	}
	if away {
		removeTree(drive, from)
	}
	maps.Copy(drive, moved)
}

// verifyDrive verifies that the disk has the expected entries, and that each file is complete and written by the expected
// author.
func verifyDrive(t *testing.T, s *site, expected map[string]entry) {
	t.Helper()
	files := filesOf(t, s)
	err := filepath.WalkDir(files, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == files {
			return err
		}
		path, _ := filepath.Rel(files, name)
		e, known := expected[path]
		delete(expected, path)
		switch {
		case !known:
			t.Errorf("%s is on the drive but not in the sequence", path)
		case e.folder != d.IsDir():
			t.Errorf("%s: folder by the sequence: %v, on the drive: %v", path, e.folder, d.IsDir())
		case !e.folder:
			verifyContent(t, name, path, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(expected)) {
		t.Errorf("%s is in the sequence but not on the drive", path)
	}
}

func verifyContent(t *testing.T, name, path string, e entry) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	if got, err := author(content); err != nil || got != e.author {
		t.Errorf("%s: the content is by %q (%v), the last row by %s", path, got, err, e.author)
	}
}

// filesOf returns the folder of the drive that has the workers' shared folder.
func filesOf(t *testing.T, s *site) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "drives", "*", "files", "shared"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the drive: %v %v", found, err)
	}
	return filepath.Dir(found[0])
}

// verifyFollower verifies that a stream has received each row exactly once, in order and with identical bytes, and that
// pages had no gap.
func verifyFollower(t *testing.T, number int, f *follower, feed []row) {
	t.Helper()
	if f.mode == paging {
		for _, r := range f.seen() {
			t.Errorf("a page had a row out of sequence: %s", r.raw)
		}
		return
	}
	for len(f.seen()) < len(feed) {
		select {
		case <-f.received:
		case <-time.After(patience):
			t.Fatalf("follower %d received %d of %d rows", number, len(f.seen()), len(feed))
		}
	}
	for i, r := range f.seen()[:len(feed)] {
		if r.raw != feed[i].raw {
			t.Fatalf("follower %d received as row %d\n%s\nwant\n%s", number, i+1, r.raw, feed[i].raw)
		}
	}
}
