package quota

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/volume"
)

// A fakeDrive is measured by a Limiter.
type fakeDrive struct {
	mu    sync.Mutex
	used  Usage
	walks int
	err   error
	// during is called while the drive is walked.
	during func()
}

func (d *fakeDrive) measure(context.Context, string, func(Usage) bool) (Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.walks++
	if d.during != nil {
		d.during()
	}
	return d.used, d.err
}

func (d *fakeDrive) limiter(t *testing.T, limit Limit) *Limiter {
	t.Helper()
	l := New(Options{Dir: t.TempDir(), Limit: limit, Measure: d.measure, Log: slog.New(slog.DiscardHandler)})
	l.kernel = ignores
	return l
}

func isFull(err error) bool {
	refusal, is := errors.AsType[*entity.Error](err)
	return is && refusal.Code == Full
}

func TestRequire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A walk that takes a second is not repeated during the test, however other processes change the free space of the disk.
		d := &fakeDrive{used: Usage{Bytes: 10, Files: 1}, during: func() { time.Sleep(time.Second) }}
		l := d.limiter(t, Limit{Bytes: 100, Files: 4})
		for i, step := range []struct {
			need   Usage
			isFull bool
		}{
			{Usage{50, 1}, false}, {Usage{41, 0}, true}, {Usage{40, 1}, false}, {Usage{0, 2}, true}, {Usage{0, 1}, false}, {Usage{0, 1}, true},
			{Usage{1 << 63, 0}, true},
		} {
			if err := errors.Join(l.Fits(t.Context(), "ws_1", step.need)); isFull(err) != step.isFull {
				t.Errorf("step %d: Fits: %v", i, err)
			}
			if err := l.Require(t.Context(), "ws_1", step.need); isFull(err) != step.isFull || !step.isFull && err != nil {
				t.Errorf("step %d: %v", i, err)
			}
		}
		if err := l.Require(t.Context(), "ws_2", Usage{50, 1}); err != nil {
			t.Errorf("another drive: %v", err)
		}
	})
}

// TestGrantsDuringWalk verifies that grants during a walk of the drive count in addition to its result.
func TestGrantsDuringWalk(t *testing.T) {
	d := &fakeDrive{}
	l := d.limiter(t, Limit{Bytes: 100})
	if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 30}); err != nil {
		t.Fatal(err)
	}
	d.used.Bytes = 30
	d.during = func() {
		if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 40}); err != nil {
			t.Error(err)
		}
	}
	if err := l.walk(t.Context(), l.account("ws_1"), "ws_1"); err != nil {
		t.Fatal(err)
	}
	d.during = nil
	if err := l.Fits(t.Context(), "ws_1", Usage{Bytes: 30}); err != nil {
		t.Error(err)
	}
	if err := l.Fits(t.Context(), "ws_1", Usage{Bytes: 31}); !isFull(err) {
		t.Error(err)
	}
}

// TestFailedUploadReleasesItsGrant verifies that a drive is walked again if operations were granted something that the disk does
// not show: an upload that broke off has left nothing.
func TestFailedUploadReleasesItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDrive{}
		l := d.limiter(t, Limit{Files: 10})
		l.options.Dir = "/proc" // the use of this file system never changes
		if err := l.Require(t.Context(), "ws_1", Usage{Files: 8}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the upload has failed, and its file was removed
		if err := l.Require(t.Context(), "ws_1", Usage{Files: 8}); err != nil {
			t.Errorf("the second attempt: %v", err)
		}
		walks := d.walks
		time.Sleep(time.Second)
		if err := l.Require(t.Context(), "ws_1", Usage{Files: 2}); err != nil || d.walks != walks {
			t.Errorf("%d walks, %v", d.walks, err)
		}
	})
}

// TestProcessesWriteAfterMeasurement lets processes write to a drive after it was measured, and then asks for more than is left.
func TestProcessesWriteAfterMeasurement(t *testing.T) {
	for _, test := range []struct {
		name string
		// took is how long a walk takes, and written the bytes that processes write. hidden is set if others free as much meanwhile.
		took    time.Duration
		written uint64
		hidden  bool
		// runs is whether processes run.
		runs    bool
		refused bool
	}{
		{"no processes", 0, 90, false, false, false},
		{"processes that have written little", 0, 50, false, true, false},
		{"processes that have written much", 0, 90, false, true, true},
		{"others have freed as much", 0, 90, true, true, true},
		{"a slow walk", 2 * time.Second, 90, false, true, true},
		{"a walk that is too slow", 10 * time.Second, 90, false, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &fakeDrive{used: Usage{Bytes: 10}, during: func() { time.Sleep(test.took) }}
				l := d.limiter(t, Limit{Bytes: 100})
				if err := l.Fits(t.Context(), "ws_1", Usage{Bytes: 45}); err != nil {
					t.Fatal(err)
				}
				if test.runs {
					if err := l.Check(t.Context(), "ws_1", nil); err != nil {
						t.Fatal(err)
					}
				}
				a, walks := l.account("ws_1"), d.walks
				d.used.Bytes = test.written
				time.Sleep(time.Second)
				a.mu.Lock()
				a.free.UsedFiles++ // the disk has changed
				if !test.hidden {
					a.free.FreeBytes += 1 << 50
				}
				a.mu.Unlock()
				err := l.Require(t.Context(), "ws_1", Usage{Bytes: 45})
				if (err != nil) != test.refused {
					t.Errorf("%v", err)
				}
				if !test.runs && d.walks != walks {
					t.Error("the drive was walked again though no process could have written")
				}
				if refusal, is := errors.AsType[*entity.Error](err); is && refusal.Code == entity.Unavailable && refusal.RetryAfter <= 0 {
					t.Errorf("no time to try again: %v", err)
				}
				if test.refused && isFull(err) != (test.took < 5*time.Second) {
					t.Errorf("the reason: %v", err)
				}
			})
		})
	}
}

func TestMeasureFails(t *testing.T) {
	d := &fakeDrive{err: errors.New("no such drive")}
	l := d.limiter(t, Limit{Bytes: 100})
	for name, err := range map[string]error{
		"Require": l.Require(t.Context(), "ws_1", Usage{Bytes: 1}), "Check": l.Check(t.Context(), "ws_1", nil),
	} {
		if !errors.Is(err, d.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.err = nil
	if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 1}); err != nil {
		t.Error(err)
	}
}

// TestWalksAreBounded verifies when a drive is walked again.
func TestWalksAreBounded(t *testing.T) {
	d := &fakeDrive{used: Usage{Bytes: 10}}
	l := d.limiter(t, Limit{Bytes: 100})
	if err := l.Check(t.Context(), "ws_1", nil); err != nil {
		t.Fatal(err)
	}
	a := l.account("ws_1")
	for _, test := range []struct {
		name      string
		age, took time.Duration
		// changed and lost describe how the disk's free space has changed since the walk.
		changed bool
		lost    uint64
		want    bool
	}{
		{"just measured", time.Second, 0, true, 0, false},
		{"later", 3 * time.Second, 0, true, 0, true},
		{"disk unchanged", 9 * time.Minute, 0, false, 0, false},
		{"disk unchanged for long", 11 * time.Minute, 0, false, 0, true},
		{"slow walk", 30 * time.Second, 2 * time.Second, true, 0, false},
		{"slow walk, later", 40 * time.Second, 2 * time.Second, true, 0, true},
		{"slow walk, disk lost the rest of the limit", 6 * time.Second, 2 * time.Second, true, 91, true},
		{"slow walk, disk lost less", 6 * time.Second, 2 * time.Second, true, 0, false},
	} {
		now, err := volume.Measure(l.options.Dir)
		if err != nil {
			t.Fatal(err)
		}
		a.free = now
		if test.changed {
			a.free.UsedFiles += 1 << 40
			// The changes of the disk by other processes in the meantime are smaller.
			a.free.FreeBytes = a.free.FreeBytes - a.free.FreeBytes/2 + test.lost*(a.free.FreeBytes/91)
		}
		a.took, a.measured = test.took, time.Now().Add(-test.age)
		if !test.changed {
			l = d.limiter(t, Limit{Bytes: 100}) // another folder: on a disk in use the free space changes all the time
			if a.free, err = volume.Measure(l.options.Dir); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.isDue(a, checkEvery, false); got != test.want {
			if again, _ := volume.Measure(l.options.Dir); !test.changed && again != a.free {
				t.Logf("%s: another process has used the disk", test.name)
				continue
			}
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestConcurrentRequire verifies that operations together are granted no more than the limit.
func TestConcurrentRequire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDrive{during: func() { time.Sleep(time.Second) }} // see TestRequire
		l := d.limiter(t, Limit{Bytes: 100})
		var granted atomic.Int64
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if l.Require(t.Context(), "ws_1", Usage{Bytes: 7}) == nil {
					granted.Add(1)
				}
			})
		}
		all.Wait()
		if n := granted.Load(); n != 14 {
			t.Errorf("%d operations were granted 7 of 100 bytes", n)
		}
	})
}

func hasInodes(t *testing.T, dir string) bool {
	t.Helper()
	u, err := volume.Measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	return u.FreeFiles != volume.Unlimited
}

// TestMayExceed verifies when a drive has to be measured: not while its whole file system has fewer files than the drive may have.
func TestMayExceed(t *testing.T) {
	for _, test := range []struct {
		limit Limit
		used  uint64
		need  uint64
		want  bool
	}{
		{Limit{}, 1 << 40, 1, false},
		{Limit{Files: 100}, 90, 10, false},
		{Limit{Files: 100}, 90, 11, true},
		{Limit{Files: 100}, 101, 0, true},
		{Limit{Files: 100}, 0, 101, true},
		{Limit{Files: 100}, volume.Unlimited, 0, true},
		{Limit{Bytes: 1, Files: 100}, 0, 0, true},
	} {
		l := &Limiter{options: Options{Limit: test.limit}}
		if got := l.options.Limit.mayExceed(volume.Usage{UsedFiles: test.used}, Usage{Files: test.need}); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestReserve(t *testing.T) {
	d := &fakeDrive{}
	l := d.limiter(t, Limit{})
	l.options.Reserve = Usage{Bytes: 1 << 62}
	for name, err := range map[string]error{
		"Require": l.Require(t.Context(), "ws_1", Usage{}), "Check": l.Check(t.Context(), "ws_1", nil), "RequireFree": l.RequireFree(t.Context(), "ws_1", Usage{}),
	} {
		if !isFull(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.options.Reserve = Usage{Files: volume.Unlimited}
	if err := l.Require(t.Context(), "ws_1", Usage{Files: 1}); !isFull(err) && hasInodes(t, l.options.Dir) {
		t.Errorf("a reserve of files: %v", err)
	}
	l.options.Reserve = Usage{}
	if err := errors.Join(l.Require(t.Context(), "ws_1", Usage{Bytes: 1}), l.Check(t.Context(), "ws_1", nil)); err != nil {
		t.Error(err)
	}
	if err := l.RequireFree(t.Context(), "ws_1", Usage{Bytes: 1 << 62}); !isFull(err) {
		t.Error(err)
	}
	l.options.Dir = filepath.Join(l.options.Dir, "none")
	if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
