package node

import (
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/persistence"
)

func TestDivideDescriptors(t *testing.T) {
	for _, runs := range []bool{false, true} {
		least := leastDescriptors
		if runs {
			least += leastComputerDescriptors
		}
		for limit := least; limit < 1<<20; limit += 1 + limit/7 {
			for _, wanted := range []int{1, 100, 12_000, 1_000_000} {
				expectShares(t, limit, wanted, runs)
			}
		}
		if d, err := divideDescriptors(65536, 12_000, runs); err != nil || d.connections != 12_000 || d.drives < 4*4096 {
			t.Errorf("with the limit of the documentation: %+v, %v", d, err)
		}
		if _, err := divideDescriptors(least-1, 100, runs); err == nil {
			t.Error("a node starts with too few descriptors")
		}
	}
}

func expectShares(t *testing.T, limit, wanted int, runs bool) {
	t.Helper()
	d, err := divideDescriptors(limit, wanted, runs)
	if err != nil {
		t.Fatal(err)
	}
	accepted := d.connections + d.connections/8 + 16
	computers := d.flows + processDescriptors*d.processes
	if used := otherDescriptors + d.journalFiles + journalSlack + d.drives + accepted + computers; used > limit {
		t.Errorf("%d of %d descriptors: %+v", used, limit, d)
	}
	if d.drives < drive.MinDescriptors || d.journalFiles < persistence.MinOpenFiles || d.connections < 1 || d.connections > wanted {
		t.Errorf("%d, %d wanted: %+v", limit, wanted, d)
	}
	if runs != (d.processes > 0) || runs != (d.flows > 0) {
		t.Errorf("%d: computers have %+v", limit, d)
	}
}
