package entity_test

import (
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
)

const year = 365 * 24 * time.Hour

func TestHasPassed(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	for _, test := range []struct {
		ago  time.Duration
		want bool
	}{
		{0, false}, {time.Hour - time.Millisecond, false}, {time.Hour, true}, {year, true},
		{-time.Millisecond, false}, {-time.Hour, false}, // another member's clock is a little ahead
		{-time.Hour - time.Millisecond, true}, {-year, true},
	} {
		if got := entity.HasPassed(at.Add(-test.ago).UnixMilli(), at.UnixMilli(), time.Hour); got != test.want {
			t.Errorf("%v ago: %t", test.ago, got)
		}
	}
	if !entity.HasPassed(0, at.UnixMilli(), year) {
		t.Error("no period has passed since the epoch")
	}
}
