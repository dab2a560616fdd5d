package quota

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/volume"
)

// A fakeDisk is a file system with the drives of workspaces.
type fakeDisk struct {
	total Usage

	mu     sync.Mutex
	drives map[string]Usage
	walks  int
}

func (d *fakeDisk) set(workspaceID string, used Usage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drives[workspaceID] = used
}

func (d *fakeDisk) statfs(string) (volume.Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	used := Usage{}
	for _, one := range d.drives {
		used = used.plus(one)
	}
	return volume.Usage{
		FreeBytes: d.total.Bytes - used.Bytes, UsedBytes: used.Bytes, TotalBytes: d.total.Bytes,
		FreeFiles: d.total.Files - used.Files, UsedFiles: used.Files,
	}, nil
}

func (d *fakeDisk) measure(_ context.Context, workspaceID string, enough func(Usage) bool) (Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.walks++
	if workspaceID == "ws_gone" {
		return Usage{}, entity.Errorf(entity.NotFound, "no such drive")
	}
	if enough != nil {
		enough(d.drives[workspaceID])
	}
	return d.drives[workspaceID], nil
}

func (d *fakeDisk) limiter(reserve, least Usage) *Limiter {
	l := New(Options{Dir: "/", Reserve: reserve, Least: least, Measure: d.measure, Log: slog.New(slog.DiscardHandler)})
	l.kernel, l.statfs = ignores, d.statfs
	return l
}

// write has a workspace upload as much as it is granted in parts, up to most, and returns how much that was.
func (d *fakeDisk) write(l *Limiter, workspaceID string, part Usage, most int) (written int) {
	for ; written < most && l.Require(context.Background(), workspaceID, part) == nil; written++ {
		d.set(workspaceID, d.drives[workspaceID].plus(part))
	}
	return written
}

// someDisk draws the sizes of a disk, and a reserve of a quarter at most, in units of a part.
func someDisk(t *rapid.T) (d *fakeDisk, reserve, least Usage) {
	total := rapid.Uint64Range(1<<12, 1<<14)
	d = &fakeDisk{drives: map[string]Usage{}, total: Usage{total.Draw(t, "bytes"), total.Draw(t, "files")}}
	reserve = Usage{rapid.Uint64Range(64, d.total.Bytes/4).Draw(t, "reserved bytes"), rapid.Uint64Range(64, d.total.Files/4).Draw(t, "reserved files")}
	least = Usage{rapid.Uint64Range(0, reserve.Bytes/2).Draw(t, "least bytes"), rapid.Uint64Range(0, reserve.Files/2).Draw(t, "least files")}
	return d, reserve, least
}

// TestShareOfLessIsNeverLess verifies that a workspace that uses less of a disk may have all that a workspace that uses more may have.
func TestShareOfLessIsNeverLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Uint64Range(0, 1<<40)
		d := disk{
			Usage: volume.Usage{
				TotalBytes: size.Draw(t, "total"), FreeBytes: size.Draw(t, "free"), FreeFiles: size.Draw(t, "free files"),
				UsedFiles: rapid.OneOf(size, rapid.Just(uint64(volume.Unlimited))).Draw(t, "files"),
			},
			bytes: bandOf(size.Draw(t, "reserve"), size.Draw(t, "least")), files: bandOf(size.Draw(t, "reserved files"), size.Draw(t, "least files")),
		}
		used := func(name string) Usage { return Usage{size.Draw(t, name), size.Draw(t, name+" files")} }
		less, need := used("used"), used("need")
		more := less.plus(used("more"))
		if d.admits(more, need) && !d.admits(less, need) {
			t.Errorf("%+v is refused, and %+v is not", less, more)
		}
		if d.isAbove(need) && !d.admits(more, need) {
			t.Errorf("%+v is refused above the reserve", more)
		}
		if d.isBelow(need) && d.admits(less, need) {
			t.Errorf("%+v may have more below the lower threshold", less)
		}
	})
}

// TestAloneMayHaveAll verifies that a workspace without others may have everything but the reserve, whatever it writes.
func TestAloneMayHaveAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, reserve, least := someDisk(t)
		l := d.limiter(reserve, least)
		l.turn = 0
		part := Usage{rapid.Uint64Range(1, 32).Draw(t, "part"), 1}
		d.write(l, "ws_1", part, 1<<20)
		free, _ := d.statfs("")
		files := max(reserve.Files, d.total.Files/reservedShare)
		if free.FreeBytes >= reserve.Bytes+part.Bytes && free.FreeFiles >= files+part.Files {
			t.Errorf("free are %+v of %+v, reserved %+v", free, d.total, reserve)
		}
	})
}

// TestSmallGoOnBesideLarge has workspaces fill a disk together until each is refused, in any order and by bytes or by files. A workspace
// with little then gets the space between its threshold and the threshold of the others, without one refusal.
func TestSmallGoOnBesideLarge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, reserve, least := someDisk(t)
		l := d.limiter(reserve, least)
		l.turn = 0
		part := rapid.SampledFrom([]Usage{{Bytes: 1}, {Files: 1}, {1, 1}}).Draw(t, "part")
		large := rapid.IntRange(1, 4).Draw(t, "number of large ones")
		for i := range large {
			d.drives[fmt.Sprint("ws_", i)] = Usage{d.total.Bytes / 16, d.total.Files / 16}
		}
		for isWriting := true; isWriting; {
			isWriting = false
			for i := range large {
				most := rapid.IntRange(1, 5000).Draw(t, "parts")
				isWriting = d.write(l, fmt.Sprint("ws_", i), part, most) == most || isWriting
			}
		}
		for _, id := range slices.Sorted(maps.Keys(d.drives)) {
			if err := l.Check(t.Context(), id, nil); err != nil && !isFull(err) {
				t.Fatal(err)
			}
		}
		now, _ := l.measureDisk()
		// A workspace with a 256th of the disk may use six eighths of the band. One with a sixteenth may use three eighths.
		room := func(b band) uint64 { return (b.high - b.low) / 8 * 3 }
		small := min(int(min(room(now.bytes), now.TotalBytes/256)), int(min(room(now.files), now.totalFiles()/256)))
		if err := l.Check(t.Context(), "ws_small", nil); err != nil {
			t.Fatalf("the processes of a small workspace are ended: %v", err)
		}
		if got := d.write(l, "ws_small", part, small); got != small {
			t.Errorf("a small workspace has written %d of %d parts beside %d large ones", got, small, large)
		}
	})
}

// TestShareOfProcesses fills a disk by processes, without a grant. The processes of the large workspace end; the workspace is told
// why, and has to delete something before anything is granted again.
func TestShareOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{total: Usage{10_000, 10_000}, drives: map[string]Usage{"ws_large": {5_000, 5}, "ws_small": {10, 1}}}
		l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
		var reasons []string
		l.options.Refused = func(reason string) { reasons = append(reasons, reason) }
		if err := l.Check(t.Context(), "ws_large", nil); err != nil || d.walks > 0 {
			t.Fatalf("above the reserve: %v, %d walks", err, d.walks)
		}
		d.set("ws_large", Usage{6_500, 5})
		if err := l.Check(t.Context(), "ws_large", nil); err != nil || d.walks != 1 {
			t.Fatalf("near the reserve: %v, %d walks", err, d.walks)
		}
		d.set("ws_large", Usage{8_500, 5})
		if err := l.Check(t.Context(), "ws_large", nil); !isFull(err) || !strings.Contains(err.Error(), "this workspace has its share") {
			t.Errorf("the large workspace: %v", err)
		}
		if err := l.Check(t.Context(), "ws_small", nil); err != nil {
			t.Errorf("the small workspace: %v", err)
		}
		l.options.Journal = func(workspaceID string) uint64 { return map[string]uint64{"ws_small": 4_000}[workspaceID] }
		if err := l.Check(t.Context(), "ws_small", nil); !isFull(err) {
			t.Errorf("with much in the journal: %v", err)
		}
		l.options.Journal = nil
		d.set("ws_large", Usage{9_300, 5})
		if err := l.Check(t.Context(), "ws_small", nil); !isFull(err) || !strings.Contains(err.Error(), "tell its operator") {
			t.Errorf("below the lower threshold: %v", err)
		}
		if want := []string{ReasonShare, ReasonShare, ReasonDisk}; !slices.Equal(reasons, want) {
			t.Errorf("the reasons are %v, want %v", reasons, want)
		}
		d.set("ws_large", Usage{7_900, 5})
		for _, id := range []string{"ws_large", "ws_small"} {
			if err := l.Require(t.Context(), id, Usage{Bytes: 1}); err != nil {
				t.Errorf("%s after the deletion: %v", id, err)
			}
		}
	})
}

// TestSmallerWaitForLarger verifies that a workspace is not refused because of removed files of a larger workspace: the processes of
// the larger workspace end meanwhile.
func TestSmallerWaitForLarger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{total: Usage{10_000, 10_000}, drives: map[string]Usage{"ws_large": {6_500, 5}, "ws_small": {10, 1}}}
		l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
		for id := range d.drives {
			if err := l.Check(t.Context(), id, nil); err != nil {
				t.Fatal(err)
			}
		}
		d.set("ws_large", Usage{9_800, 5})
		refused := make(chan error)
		go func() { refused <- l.Require(t.Context(), "ws_small", Usage{Bytes: 1}) }()
		if err := l.Check(t.Context(), "ws_large", nil); !isFull(err) {
			t.Errorf("the large workspace: %v", err)
		}
		synctest.Wait()
		d.set("ws_large", Usage{3_000, 5})
		if err := <-refused; err != nil {
			t.Errorf("the small workspace: %v", err)
		}
	})
}

// TestWatch verifies that the watch reports each fall within the band and near the band, and reports neither a fall far above the
// band nor unchanged free space.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{total: Usage{10 << 30, 1 << 30}, drives: map[string]Usage{}}
		l := d.limiter(Usage{Bytes: 1 << 30, Files: 1000}, Usage{})
		first, stopFirst := l.Watch()
		second, stopSecond := l.Watch()
		for i, step := range []struct {
			used  Usage
			falls bool
		}{
			{Usage{7 << 30, 0}, false}, {Usage{8 << 30, 0}, true}, {Usage{9<<30 + 100<<20, 0}, true}, {Usage{9<<30 + 101<<20, 0}, false}, {Usage{9<<30 + 200<<20, 0}, true},
			{Usage{5 << 30, 0}, false}, {Usage{9<<30 + 100<<20, 0}, true}, {Usage{9<<30 + 100<<20, 1<<30 - 1<<15}, true}, {Usage{}, false},
		} {
			d.set("ws_1", step.used)
			if !retry.Pause(t.Context(), watchMost) {
				t.Fatal(t.Context().Err())
			}
			synctest.Wait()
			if got := len(first) > 0; got != step.falls || got != (len(second) > 0) {
				t.Errorf("step %d: %v, %v", i, got, len(second) > 0)
			}
			for _, c := range []<-chan struct{}{first, second} {
				if len(c) > 0 {
					<-c
				}
			}
		}
		stopFirst()
		stopSecond()
		third, stopThird := l.Watch()
		d.set("ws_1", Usage{9<<30 + 500<<20, 0})
		<-third
		stopThird()
	})
}

// TestPartialWalkDecidesOnce verifies that a walk that ended early refuses the next need without another walk, and does not admit a need
// that the whole drive would not be admitted.
func TestPartialWalkDecidesOnce(t *testing.T) {
	d := &fakeDisk{total: Usage{10_000, 10_000}, drives: map[string]Usage{"ws_1": {8_500, 2_000}}}
	l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
	l.turn = 0
	l.options.Measure = func(_ context.Context, _ string, enough func(Usage) bool) (used Usage, err error) {
		d.walks++
		for used = (Usage{}); used.Bytes < 8_500 && !enough(used); used.Bytes++ {
		}
		return used, nil
	}
	for range 10 {
		if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 300}); !isFull(err) {
			t.Errorf("an upload: %v", err)
		}
		if err := l.Check(t.Context(), "ws_1", nil); !isFull(err) {
			t.Errorf("processes: %v", err)
		}
	}
	if d.walks > 2 {
		t.Errorf("%d walks", d.walks)
	}
}

// TestManyWorkspacesAreOne verifies that a person with many workspaces must leave as much free space as a person with one workspace that uses
// as much, in each of the workspaces, and that a person with less goes on.
func TestManyWorkspacesAreOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 1 << 16
		reserve, least := Usage{Bytes: total / 4}, Usage{Bytes: total / 32}
		used := rapid.SliceOfN(rapid.Uint64Range(0, total/64), 1, 32).Draw(t, "used")
		many, sum := []string{"ws_gone"}, uint64(0)
		drives := map[string]Usage{"ws_other": {Bytes: 16}}
		for i, bytes := range used {
			id := fmt.Sprint("ws_", i)
			drives[id], many, sum = Usage{Bytes: bytes}, append(many, id), sum+bytes
		}
		// leastFree returns the least free space that lets a workspace have a byte.
		leastFree := func(drives map[string]Usage, workspaceID string) uint64 {
			return uint64(sort.Search(total/3, func(free int) bool {
				d := &fakeDisk{total: Usage{total, total}, drives: maps.Clone(drives)}
				now, _ := d.statfs("")
				d.drives["ws_filler"] = Usage{Bytes: now.FreeBytes - uint64(free)}
				l := d.limiter(reserve, least)
				l.turn = 0
				l.options.Payer = func(_ context.Context, workspaceID string) (Payer, error) {
					if slices.Contains(many, workspaceID) {
						return Payer{"usr_many", many}, nil
					}
					return Payer{workspaceID, nil}, nil
				}
				return l.Require(context.Background(), workspaceID, Usage{Bytes: 1}) == nil
			}))
		}
		want := leastFree(map[string]Usage{"ws_single": {Bytes: sum}}, "ws_single")
		for _, id := range many[1:] {
			if got := leastFree(drives, id); got != want {
				t.Errorf("%s of %d workspaces with %d bytes must leave %d bytes free, one workspace %d", id, len(used), sum, got, want)
			}
		}
		if other := leastFree(drives, "ws_other"); sum > 16 && other > want {
			t.Errorf("somebody with less must leave %d bytes free, and the person with %d workspaces %d", other, len(used), want)
		}
	})
}

// TestJournalAfterDeletion verifies that the changes of a person's workspaces are not refused by a measurement that is older than another
// measurement, or than a deletion.
func TestJournalAfterDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{total: Usage{10_000, 100_000}, drives: map[string]Usage{"ws_1": {6_000, 5}, "ws_2": {0, 5}, "ws_3": {3_000, 5}}}
		l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
		l.options.Payer = func(_ context.Context, workspaceID string) (Payer, error) {
			if workspaceID == "ws_3" {
				return Payer{"usr_b", []string{"ws_3"}}, nil
			}
			return Payer{"usr_a", []string{"ws_1", "ws_2"}}, nil
		}
		check := func(when string, refused ...string) {
			t.Helper()
			if !retry.Pause(t.Context(), recentFor) {
				t.Fatal(t.Context().Err())
			}
			for _, id := range []string{"ws_1", "ws_2", "ws_3"} {
				if err := l.CheckJournal(id, 1); isFull(err) != slices.Contains(refused, id) {
					t.Errorf("%s, %s: %v", when, id, err)
				}
			}
		}
		sample := func() {
			t.Helper()
			for _, id := range []string{"ws_2", "ws_3"} {
				if _, _, err := l.Space(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
		}
		check("before anything was measured")
		sample()
		check("with full drives", "ws_1", "ws_2", "ws_3")
		l.Freed("ws_2")
		check("after a deletion", "ws_3")
		d.set("ws_3", Usage{3_001, 5}) // the disk has changed
		sample()
		check("with drives that are as full as before the deletion", "ws_1", "ws_2", "ws_3")
		d.set("ws_1", Usage{0, 5}) // by a process
		d.set("ws_3", Usage{9_000, 5})
		check("before the deletion was measured", "ws_1", "ws_2", "ws_3")
		sample()
		check("when the deletion was measured", "ws_3")
	})
}

// TestCountedPayer has a kernel that counts the use of drives. The journal knows this use as it knows the use of walked drives, and
// the workspaces that a payer creates later count soon.
func TestCountedPayer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{total: Usage{10_000, 100_000}, drives: map[string]Usage{"ws_1": {5_000, 5}, "ws_2": {0, 5}, "ws_3": {4_000, 5}}}
		l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
		l.kernel = counts
		l.readProject = func(_ string, project uint32) (Usage, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.drives[fmt.Sprintf("ws_%d", project)], nil
		}
		for project := range uint32(3) {
			a := l.account(fmt.Sprintf("ws_%d", project+1))
			a.isOpened, a.project = true, project+1
		}
		ofPerson := []string{"ws_2"}
		l.options.Payer = func(context.Context, string) (Payer, error) { return Payer{"usr_a", ofPerson}, nil }
		decide := func(isRefused bool) {
			t.Helper()
			if err := l.Require(t.Context(), "ws_2", Usage{Bytes: 1}); isFull(err) != isRefused {
				t.Errorf("the drive: %v", err)
			}
			if !retry.Pause(t.Context(), recentFor) {
				t.Fatal(t.Context().Err())
			}
			if err := l.CheckJournal("ws_2", 1); isFull(err) != isRefused {
				t.Errorf("the journal: %v", err)
			}
		}
		decide(false)
		ofPerson = []string{"ws_1", "ws_2"}
		if !retry.Pause(t.Context(), staleAfter) {
			t.Fatal(t.Context().Err())
		}
		decide(true)
		if d.walks != 0 {
			t.Errorf("drives were walked %d times", d.walks)
		}
	})
}
