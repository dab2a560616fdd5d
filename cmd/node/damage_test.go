package node

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/cmd/node/check"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/place"
)

var (
	damageSeed = flag.Uint64("damage-seed", 1, "choices of the test that damages files")
	damages    = flag.Int("damages", 40, "cases of the test that damages files, for each of its directories")
)

// TestDamageOfEachFile damages each file of the data directory of a node that has stopped, and of one that was killed, but the files of its
// users: they are missing, cut off, or have a flipped bit. Each start has exactly the acknowledged data, or is refused with a message that
// names the file; Check reports a fault whenever a start is refused.
func TestDamageOfEachFile(t *testing.T) {
	place.Take(t)
	h := newHome(t)
	h.done()
	h.put("a", "first")
	h.stop()
	h.start()
	h.put("b", "second")
	feed := h.feed()
	killed, stopped := filepath.Join(t.TempDir(), "killed"), filepath.Join(t.TempDir(), "stopped")
	h.check(os.CopyFS(killed, os.DirFS(h.dir)))
	h.stop()
	h.check(os.CopyFS(stopped, os.DirFS(h.dir)))
	h.start()
	r := rand.New(rand.NewPCG(*damageSeed, 0))
	for _, whole := range []string{stopped, killed} {
		files := damageableFiles(h, whole)
		for i := range *damages {
			// The first cases damage each file once, with another damage each time that a file's turn comes again.
			one := damageOf(h, r, files[i%len(files)])
			dir := filepath.Join(t.TempDir(), "data")
			h.check(os.CopyFS(dir, os.DirFS(whole)))
			one.apply(h, dir)
			refused := h.startsWhole(dir, one, feed)
			name, _, _ := strings.Cut(filepath.Join(dir, one.file), ".0") // the name of a marker has its content
			if refused != nil && !strings.Contains(refused.Error(), name) {
				t.Errorf("%s, %s: the refusal does not name the file: %v", filepath.Base(whole), one, refused)
			}
			h.check(os.RemoveAll(dir))
		}
	}
}

// damageableFiles returns the paths, relative to a data directory, of the files that the node wrote for itself. Files of users and of
// the reserve are left out.
func damageableFiles(h *home, dir string) (files []string) {
	h.Helper()
	h.check(filepath.WalkDir(dir, func(path string, at fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && at.Type().IsRegular() && !strings.HasPrefix(name, "drives/"+ws+"/files/") && filepath.Base(filepath.Dir(name)) != "reserve" {
			files = append(files, name)
		}
		return err
	}))
	if len(files) < 10 {
		h.Fatalf("the files are %q", files)
	}
	return files
}

// A fileDamage is a change of one file.
type fileDamage struct {
	file, what string
	change     func(content []byte) []byte // nil removes the file
}

func (d fileDamage) String() string { return d.file + " " + d.what }

// damageOf chooses a damage.
func damageOf(h *home, r *rand.Rand, file string) fileDamage {
	at := r.Uint64()
	position := func(content []byte) int { return int(at % uint64(max(len(content), 1))) }
	switch r.IntN(4) {
	case 0:
		return fileDamage{file, "missing", nil}
	case 1:
		return fileDamage{file, fmt.Sprint("cut off at ", at), func(content []byte) []byte { return content[:position(content)] }}
	default:
		return fileDamage{file, fmt.Sprint("flipped at ", at), func(content []byte) []byte {
			if len(content) > 0 {
				content[position(content)] ^= 1 << (at >> 32 % 8)
			}
			return content
		}}
	}
}

func (d fileDamage) apply(h *home, dir string) {
	h.Helper()
	path := filepath.Join(dir, d.file)
	if d.change == nil {
		h.check(os.Remove(path))
		return
	}
	content, err := os.ReadFile(path)
	h.check(err)
	h.check(os.WriteFile(path, d.change(content), 0o600))
}

// startsWhole starts a node over a directory and expects all acknowledged data, or returns the error of the start.
func (h *home) startsWhole(dir string, d fileDamage, feed string) (refused error) {
	h.Helper()
	faults := 0
	if err := check.Run(h.Context(), dir, slog.New(slog.DiscardHandler), func(persistence.Fault) { faults++ }); err != nil {
		h.Errorf("%s: check: %v", d, err)
	}
	other := &home{T: h.T, dir: dir}
	o := h.options
	o.Dir = dir
	n, err := Start(context.Background(), o)
	if err != nil {
		if faults == 0 {
			h.Errorf("%s: the start is refused (%v), but the check has found nothing", d, err)
		}
		return err
	}
	other.Node = n
	defer other.stop()
	if got := other.feed(); got != feed {
		h.Errorf("%s: the feed is %s, want %s", d, got, feed)
	}
	if a, b := other.content("a"), other.content("b"); a != "first" || b != "second" {
		h.Errorf("%s: the files are %q and %q", d, a, b)
	}
	return nil
}
