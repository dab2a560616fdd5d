package machine

import (
	"math"
	"testing"
)

func TestForComputers(t *testing.T) {
	const mega, giga = 1 << 20, 1 << 30
	for _, c := range []struct {
		available uint64
		goLimit   int64
		want      uint64
		isShort   bool
	}{
		{16 * giga, math.MaxInt64, 14 * giga, false},
		{2 * giga, math.MaxInt64, 1536 * mega, false},
		{512 * mega, math.MaxInt64, 128 * mega, true},
		{8 * giga, 960 * mega, 7 * giga, false},
		{1 * giga, 900 * mega, 256 * mega, true},
		{0, math.MaxInt64, 0, true},
	} {
		if got, isShort := ForComputers(c.available, c.goLimit); got != c.want || isShort != c.isShort {
			t.Errorf("%d MiB with GOMEMLIMIT %d: %d MiB and %v, want %d MiB and %v", c.available/mega, c.goLimit/mega, got/mega, isShort, c.want/mega, c.isShort)
		}
	}
}
