package process

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// judge holds the drive, the sequence and what followers saw against what was acknowledged.
func judge(t *testing.T, s *site, c crew) {
	t.Helper()
	feed, err := newClient(s.node.address, s.key).feed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows, %d kills", len(feed), s.life)
	for i, r := range feed {
		if r.Seq != uint64(i)+1 {
			t.Fatalf("row %d has the sequence %d", i+1, r.Seq)
		}
	}
	judgeAttempts(t, c.writers, feed)
	judgeOrder(t, c.writers, feed)
	judgeDrive(t, s, replay(c.writers, feed))
	c.clerk.judge(t, s.node.address)
	for i, f := range c.followers {
		judgeFollower(t, i, f, feed)
	}
}

func factOf(e event) fact { return fact{e.Kind, e.Actor, e.Path, e.FromPath} }

// judgeAttempts: each fact is in the sequence as often as it was acknowledged, and at most as often as it was tried.
func judgeAttempts(t *testing.T, writers []*writer, feed []row) {
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
			t.Errorf("%v: acknowledged %d, tried %d, in the sequence %d times", f, least[f], tried, found[f])
		}
	}
	t.Logf("%d facts, %d attempts were cut off", len(most), unsure)
	judgeOrigins(t, writers, most, feed)
}

// judgeOrigins: nothing is in the sequence that nobody did.
func judgeOrigins(t *testing.T, writers []*writer, tried map[fact]int, feed []row) {
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
			t.Errorf("nobody did this: %s", r.raw)
		}
	}
}

// judgeOrder: what one writer did later comes later.
func judgeOrder(t *testing.T, writers []*writer, feed []row) {
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
				t.Errorf("%v has the sequence %d, after one with %d was acknowledged", a.fact, at[0], last)
			}
			last = at[0]
		}
	}
}

// entry is what the sequence says of a path: a folder, or a file and the author of its content.
type entry struct {
	folder bool
	author string
}

// replay makes from the sequence what the drive should hold.
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

// judgeDrive: what lies on the disk is what the sequence says, each content whole and its last event's author's.
func judgeDrive(t *testing.T, s *site, expected map[string]entry) {
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
			t.Errorf("%s is on the drive; the sequence knows nothing of it", path)
		case e.folder != d.IsDir():
			t.Errorf("%s: the sequence says folder: %v", path, e.folder)
		case !e.folder:
			judgeContent(t, name, path, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(expected)) {
		t.Errorf("%s is missing on the drive; the sequence says that it is there", path)
	}
}

func judgeContent(t *testing.T, name, path string, e entry) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	if who, err := author(content); err != nil || who != e.author {
		t.Errorf("%s: the content is %s's (%v), the last event %s's", path, who, err, e.author)
	}
}

// filesOf is the folder of the one drive that has the crew's shared folder.
func filesOf(t *testing.T, s *site) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "drives", "*", "files", "shared"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the drive: %v %v", found, err)
	}
	return filepath.Dir(found[0])
}

// judgeFollower: a stream saw each row exactly once, in order and to the byte; a walk saw no gap.
func judgeFollower(t *testing.T, number int, f *follower, feed []row) {
	t.Helper()
	if f.manner == paging {
		for _, r := range f.seen() {
			t.Errorf("a walk came to a row out of its turn: %s", r.raw)
		}
		return
	}
	for len(f.seen()) < len(feed) {
		select {
		case <-f.come:
		case <-time.After(patience):
			t.Fatalf("follower %d saw %d rows of %d", number, len(f.seen()), len(feed))
		}
	}
	for i, r := range f.seen()[:len(feed)] {
		if r.raw != feed[i].raw {
			t.Fatalf("follower %d saw in place %d\n%s\nand not\n%s", number, i+1, r.raw, feed[i].raw)
		}
	}
}
