package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// TestCheckDecidesDuringWalks has the walks of drives stand still while the disk fills. Check refuses nevertheless: a drive that is being
// walked, and a drive whose walk waits for those of others.
func TestCheckDecidesDuringWalks(t *testing.T) {
	for name, test := range map[string]struct {
		limit Limit
		// used is what the drive uses, before and after are what the disk has when Check begins, and when the walks stand still.
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
					others.Go(func() { _ = l.Check(ctx, fmt.Sprint("ws_other_", i)) })
				}
				synctest.Wait()
				refused := make(chan error)
				go func() { refused <- l.Check(ctx, "ws_1") }()
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
		if err := l.Check(t.Context(), "ws_1"); !isFull(err) || d.walks != 1 {
			t.Errorf("within the band: %v, %d walks", err, d.walks)
		}
		d.set("ws_1", Usage{9_300, 5})
		if err := l.Check(t.Context(), "ws_1"); !isFull(err) || d.walks != 1 {
			t.Errorf("below the lower threshold: %v, %d walks", err, d.walks)
		}
		if want := []string{ReasonShare, ReasonDisk}; !slices.Equal(reasons, want) {
			t.Errorf("the reasons are %v, want %v", reasons, want)
		}
	})
}
