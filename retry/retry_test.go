package retry_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/retry"
)

func TestLimit(t *testing.T) {
	policy := retry.Policy{First: 50 * time.Millisecond, Longest: time.Second}
	for failures, want := range map[int]time.Duration{
		0: policy.First, 1: policy.First, 2: 2 * policy.First, 5: 16 * policy.First, 6: policy.Longest, math.MaxInt: policy.Longest,
	} {
		if got := policy.Limit(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
	if got := (retry.Policy{First: math.MaxInt64/2 + 1, Longest: math.MaxInt64}).Limit(3); got != math.MaxInt64 {
		t.Errorf("the limit overflows: %s", got)
	}
	if got := (retry.Policy{First: time.Hour, Longest: time.Minute}).Limit(1); got != time.Minute {
		t.Errorf("the first pause is longer than the longest: %s", got)
	}
}

func TestAfter(t *testing.T) {
	policy, seen := retry.Policy{First: time.Second, Longest: time.Minute}, map[time.Duration]bool{}
	for range 100 {
		pause := policy.After(3)
		if pause < 2*time.Second || pause > 4*time.Second {
			t.Errorf("the pause is %s", pause)
		}
		seen[pause] = true
	}
	if len(seen) == 1 {
		t.Error("all pauses are the same")
	}
	if pause := (retry.Policy{First: 1, Longest: 1}).After(1); pause < 0 || pause > 1 {
		t.Errorf("the pause is %s, want at most 1ns", pause)
	}
}

func TestAttempts(t *testing.T) {
	policy := retry.Policy{First: time.Second, Longest: 4 * time.Second}
	t.Run("pauses_grow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			last := time.Now()
			for n := range policy.Attempts(t.Context()) {
				if pause := time.Since(last); n > 1 && (pause < policy.Limit(n-1)/2 || pause > policy.Limit(n-1)) {
					t.Errorf("the pause before attempt %d is %s", n, pause)
				}
				if last = time.Now(); n == 6 {
					return
				}
			}
			t.Error("the loop ended")
		})
	})
	t.Run("context_ends_during_a_pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began, attempts := time.Now(), 0
			for range policy.Attempts(ctx) {
				attempts++
			}
			if took := time.Since(began); attempts != 1 || took != 100*time.Millisecond {
				t.Errorf("%d attempts in %s", attempts, took)
			}
		})
	})
	t.Run("context_has_ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			began, attempts := time.Now(), 0
			for range policy.Attempts(ctx) {
				attempts++
			}
			if attempts != 1 || time.Since(began) != 0 {
				t.Errorf("%d attempts in %s", attempts, time.Since(began))
			}
		})
	})
}

func TestPauseUnless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		if !retry.PauseUnless(t.Context(), time.Second, ended) {
			t.Error("the pause was ended")
		}
		time.AfterFunc(time.Second, func() { close(ended) })
		began := time.Now()
		if retry.PauseUnless(t.Context(), time.Minute, ended) || time.Since(began) != time.Second {
			t.Errorf("the pause took %s", time.Since(began))
		}
	})
}
