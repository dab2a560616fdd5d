package agent

import (
	"os"
	"slices"
	"testing"
)

func TestParseProcess(t *testing.T) {
	// A program may choose a name that looks like the rest of the line.
	line := "42 (a) R 1 (b\n) S 7 42 42 34816 43 4194304 1 2 3 4 10 20 30 40 20 0 1 0 5000 1000 99 0"
	p, err := parseProcess(42, []byte(line))
	want := process{pid: 42, parent: 7, foreground: 43, ticks: 100, started: 5000}
	if err != nil || p != want {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
	for _, broken := range []string{"", "42 (a", "42 (a) S 7", ")"} {
		if p, err := parseProcess(42, []byte(broken)); err == nil {
			t.Errorf("%q: got %+v, want an error", broken, p)
		}
	}
	self, err := readProcess(os.Getpid())
	if err != nil || self.parent != os.Getppid() || memory(os.Getpid()) == 0 || !IsStartedAt(os.Getpid(), self.started) {
		t.Errorf("got %+v, %v", self, err)
	}
}

// TestTable has init (1), two programs of the engine (10 and 20) with descendants, and leftovers of a third one.
func TestTable(t *testing.T) {
	parents := map[int]int{1: 0, 10: 0, 11: 10, 12: 11, 20: 0, 21: 20, 30: 1, 31: 30}
	all := table{}
	for pid, parent := range parents {
		all[pid] = process{pid: pid, parent: parent}
	}
	all[40] = process{pid: 40, parent: 1, isEnded: true}
	ids := func(found []process) (pids []int) {
		for _, p := range found {
			pids = append(pids, p.pid)
		}
		slices.Sort(pids)
		return pids
	}
	if r, err := all.root(12); err != nil || r.pid != 10 {
		t.Errorf("the root of 12 is %+v, %v", r, err)
	}
	left, isWhole := all.leftovers()
	if got := ids(left); !slices.Equal(got, []int{30, 31}) || !isWhole {
		t.Errorf("the leftovers are %v, %t", got, isWhole)
	}
	// The parent of 12 has ended while the table was read: 12 may be a leftover now.
	delete(all, 11)
	if left, isWhole := all.leftovers(); len(left) != 2 || isWhole {
		t.Errorf("the leftovers are %v, %t", ids(left), isWhole)
	}
	all[50], all[51] = process{pid: 50, parent: 51}, process{pid: 51, parent: 50}
	if _, err := all.root(50); err == nil {
		t.Error("a cycle has a root")
	}
}
