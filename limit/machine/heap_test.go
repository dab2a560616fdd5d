package machine

import "testing"

// TestGrowthPercent checks the size of the heap at the next collection for different ratios of live to scanned memory.
func TestGrowthPercent(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		name                 string
		live, scanned, roots uint64
		// wantMiB is the size of the heap at which the next collection begins, in MiB.
		wantMiB uint64
	}{
		{"idle", 8 * mib, 4 * mib, mib, 8 + 1 + 64},
		{"full_cache", 280 * mib, 20 * mib, 4 * mib, 280 + 4 + 4*24},
		{"many_entities", 500 * mib, 400 * mib, 0, 500 + 1600},
		{"nothing_measured", 0, 0, 0, 64},
	} {
		t.Run(test.name, func(t *testing.T) {
			base := max(test.live+test.roots, mib)
			goal := (base + base*uint64(growthPercent(test.live, test.scanned, test.roots))/100) / mib
			if goal > test.wantMiB+1 || goal+3 < test.wantMiB {
				t.Errorf("the next collection begins at %d MiB, want %d", goal, test.wantMiB)
			}
		})
	}
}
