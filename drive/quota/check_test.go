package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/volume"
)

// TestCheckDecidesDuringWalks has the walks of drives stand still while the disk fills. Check refuses nevertheless: a drive that is being
// walked, and a drive that waits for the walks of other drives.
func TestCheckDecidesDuringWalks(t *testing.T) {
	for name, test := range map[string]struct {
		limit Limit
		// used is the use of the drive. before is the use of the disk when Check begins, and after its use when the walks stand still.
		used, before, after uint64
		others              int
	}{
		"measured near the reserve":             {Limit{}, 100, 6_500, 9_300, 0},
		"measured near the reserve, others too": {Limit{}, 100, 6_500, 9_300, 2},
		"within the band, others are measured":  {Limit{}, 5_000, 6_500, 8_500, 2},
		"measured for the limit":                {Limit{Bytes: 9_900}, 100, 3_000, 9_300, 0},
		"measured for the limit, others too":    {Limit{Bytes: 9_900}, 3_000, 3_500, 8_500, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &fakeDisk{total: Usage{10_000, 100_000}, drives: map[string]Usage{"ws_1": {test.used, 5}, "ws_rest": {test.before - test.used, 5}}}
				l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
				l.options.Limit = test.limit
				l.options.Measure = func(ctx context.Context, workspaceID string, enough func(Usage) bool) (Usage, error) {
					if used, _ := d.measure(ctx, workspaceID, nil); enough != nil && enough(used) {
						return used, nil
					}
					<-ctx.Done()
					return Usage{}, ctx.Err()
				}
				ctx, cancel := context.WithCancel(t.Context())
				var others sync.WaitGroup
				for i := range test.others {
					others.Go(func() { _ = l.Check(ctx, fmt.Sprint("ws_other_", i), nil) })
				}
				synctest.Wait()
				refused := make(chan error)
				go func() { refused <- l.Check(ctx, "ws_1", nil) }()
				synctest.Wait()
				d.set("ws_rest", Usage{test.after - test.used, 5})
				if err := <-refused; !isFull(err) {
					t.Errorf("the processes of a drive on a full disk: %v", err)
				}
				cancel()
				others.Wait()
			})
		})
	}
}

// TestDriveThatCannotBeMeasured verifies that a walk that fails refuses a drive below the reserve, and that no drive is walked below the lower
// threshold.
func TestDriveThatCannotBeMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDisk{total: Usage{10_000, 100_000}, drives: map[string]Usage{"ws_1": {8_500, 5}}}
		l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
		var reasons []string
		l.options.Refused = func(reason string) { reasons = append(reasons, reason) }
		l.options.Measure = func(context.Context, string, func(Usage) bool) (Usage, error) {
			d.walks++
			return Usage{}, errors.New("too many open files")
		}
		if err := l.Check(t.Context(), "ws_1", nil); !isFull(err) || d.walks != 1 {
			t.Errorf("within the band: %v, %d walks", err, d.walks)
		}
		d.set("ws_1", Usage{9_300, 5})
		if err := l.Check(t.Context(), "ws_1", nil); !isFull(err) || d.walks != 1 {
			t.Errorf("below the lower threshold: %v, %d walks", err, d.walks)
		}
		if want := []string{ReasonShare, ReasonDisk}; !slices.Equal(reasons, want) {
			t.Errorf("the reasons are %v, want %v", reasons, want)
		}
	})
}

// TestSuspensionOfProcesses verifies which processes are suspended while Check decides: the processes of drives that may fill the disk, and
// all processes below the lower threshold. Processes are resumed when they are admitted, and not when they are refused.
func TestSuspensionOfProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		// known is set if the drive is measured before the rest of the disk fills.
		known        bool
		before       uint64
		drive, after uint64
		want         []bool
		isFull       bool
	}{
		"above the reserve":                     {false, 10, 10, 7_900, nil, false},
		"a small drive that is not known":       {false, 10, 10, 8_100, []bool{true, false}, false},
		"a small drive that is known":           {true, 10, 10, 8_100, nil, false},
		"a small drive that may have grown":     {true, 10, 10, 9_100, []bool{true, false}, false},
		"a drive that fills the disk":           {true, 10, 6_000, 9_100, []bool{true}, true},
		"a drive that fills the rest":           {true, 4_000, 4_500, 9_150, []bool{true}, true},
		"a small drive below the lower one":     {true, 10, 10, 9_300, []bool{true}, true},
		"a drive that is not known, below that": {false, 10, 10, 9_300, []bool{true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &fakeDisk{total: Usage{10_000, 100_000}, drives: map[string]Usage{"ws_1": {test.before, 5}, "ws_rest": {7_000 - test.before, 5}}}
				l := d.limiter(Usage{Bytes: 2_000}, Usage{Bytes: 400})
				if test.known {
					if err := l.Check(t.Context(), "ws_1", nil); err != nil {
						t.Fatal(err)
					}
				}
				d.set("ws_1", Usage{test.drive, 5})
				d.set("ws_rest", Usage{test.after - test.drive, 5})
				var got []bool
				err := l.Check(t.Context(), "ws_1", func(suspended bool) { got = append(got, suspended) })
				if !slices.Equal(got, test.want) || isFull(err) != test.isFull {
					t.Errorf("suspended: %v, want %v; %v", got, test.want, err)
				}
			})
		})
	}
}

// A fillingDisk is a fakeDisk on which processes of ws_1 write at a rate until they are suspended.
type fillingDisk struct {
	fakeDisk
	began time.Time
	rate  Usage // each millisecond
}

func (d *fillingDisk) statfs(dir string) (volume.Usage, error) {
	d.mu.Lock()
	ms := uint64(time.Since(d.began) / time.Millisecond)
	d.drives["ws_1"] = Usage{min(ms*d.rate.Bytes, d.total.Bytes), min(ms*d.rate.Files, d.total.Files)}
	d.mu.Unlock()
	return d.fakeDisk.statfs(dir)
}

// TestProcessAtTheSpeedOfMemory has a process fill a disk of a gigabyte as fast as a process can. It is suspended before a third of the
// space between the reserve and the lower threshold is gone.
func TestProcessAtTheSpeedOfMemory(t *testing.T) {
	for percent := range uint64(100) {
		rate := Usage{Bytes: fastestBytes / 100_000 * (percent + 1)}
		if percent%2 == 0 {
			rate = Usage{Files: fastestFiles / 100_000 * (percent + 1)}
		}
		t.Run(fmt.Sprintf("%+v", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &fillingDisk{fakeDisk: fakeDisk{total: Usage{1 << 30, 100_000}, drives: map[string]Usage{}}, began: time.Now(), rate: rate}
				l := d.limiter(Usage{512 << 20, 6_000}, Usage{64 << 20, 200})
				l.statfs = d.statfs
				fell, stop := l.Watch()
				defer stop()
				var left disk
				for hasStopped := false; !hasStopped; {
					<-fell
					stopped := func() {
						if !hasStopped {
							hasStopped = true
							left, _ = l.measureDisk()
						}
					}
					if err := l.Check(t.Context(), "ws_1", func(bool) { stopped() }); err != nil {
						stopped() // without a wait
					}
				}
				third := func(b band) uint64 { return b.high - (b.high-b.low)/3 }
				if left.FreeBytes < third(left.bytes) || left.FreeFiles < third(left.files) {
					t.Errorf("free: %d bytes of %+v, %d files of %+v", left.FreeBytes, left.bytes, left.FreeFiles, left.files)
				}
			})
		})
	}
}
