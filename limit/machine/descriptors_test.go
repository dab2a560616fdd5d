package machine

import (
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/persistence"
)

// divide divides descriptors with the least shares of a node.
func divide(limit, connections, processes int) (Descriptors, error) {
	return Demand{limit, connections, processes, persistence.MinOpenFiles, drive.MinDescriptors}.Divide()
}

func TestDivide(t *testing.T) {
	for _, processes := range []int{0, 1, 256, 10_000} {
		least := leastDescriptors
		if processes > 0 {
			least += leastComputerDescriptors
		}
		for limit := least; limit < 1<<20; limit += 1 + limit/7 {
			for _, wanted := range []int{1, 100, 12_000, 1_000_000} {
				expectShares(t, limit, wanted, processes)
			}
		}
		if d, err := divide(65536, 12_000, processes); err != nil || d.Connections != 12_000 || d.Drives < 4*4096 || d.Processes < min(processes, 2000) {
			t.Errorf("with the limit of the documentation: %+v, %v", d, err)
		}
		if _, err := divide(least-1, 100, processes); err == nil {
			t.Error("a node starts with too few descriptors")
		}
	}
	if d, err := divide(1024, 12_000, 256); err != nil || d.Processes < 24 || d.Connections < 256 {
		t.Errorf("with the usual limit of a shell: %+v, %v", d, err)
	}
}

func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		memory     uint64
		processors int
		want       int
	}{
		{8 << 30, 2, 256},
		{2 << 30, 8, 64},
		{256 << 30, 4, 512},
		{256 << 20, 1, 16},
		{0, 2, 128},
	} {
		if got := Processes(c.memory, c.processors); got != c.want {
			t.Errorf("%d MiB and %d processors: %d processes, want %d", c.memory>>20, c.processors, got, c.want)
		}
	}
}

func expectShares(t *testing.T, limit, wanted, processes int) {
	t.Helper()
	d, err := divide(limit, wanted, processes)
	if err != nil {
		t.Fatal(err)
	}
	accepted := d.Connections + d.Connections/8 + 16
	computers := d.Flows + processDescriptors*d.Processes
	if used := otherDescriptors + d.JournalFiles + journalSlack + d.Drives + accepted + computers; used > limit {
		t.Errorf("%d of %d descriptors: %+v", used, limit, d)
	}
	if d.Drives < drive.MinDescriptors || d.JournalFiles < persistence.MinOpenFiles || d.Connections < 1 || d.Connections > wanted {
		t.Errorf("%d, %d wanted: %+v", limit, wanted, d)
	}
	if runs := processes > 0; runs != (d.Processes > 0) || runs != (d.Flows > 0) || d.Processes > processes {
		t.Errorf("%d: computers have %+v", limit, d)
	}
}
