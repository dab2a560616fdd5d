package local_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/egress"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/entity"
)

// descriptorsOf returns the descriptors of this process and their targets.
func descriptorsOf(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range paths {
		if target, err := os.Readlink(path); err == nil { // or it was the descriptor of the glob
			files[path] = target
		}
	}
	return files
}

// opened returns the names of the files that were opened since a measurement.
func opened(t *testing.T, before map[string]string) (names []string) {
	t.Helper()
	now := descriptorsOf(t)
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if now[path] != before[path] {
			names = append(names, strings.TrimRight(now[path], "0123456789[]"))
		}
	}
	slices.Sort(names)
	return names
}

// TestDescriptorsOfProcesses counts the descriptors of a process that starts its computer, and of a second process. From the two
// counts cmd/node derives how many processes fit the limit of open files.
func TestDescriptorsOfProcesses(t *testing.T) {
	const ofComputer = 5 // two of its init, its connection, its messages and its link
	network, err := egress.New(egress.Options{Mode: egress.On})
	if err != nil {
		t.Fatal(err)
	}
	d, files := openHost(t, func(o *local.Options) { o.Network = network })
	for _, c := range []struct {
		name   string
		change func(*computer.Spec)
		want   int
	}{
		{"pipes", func(*computer.Spec) {}, 3},
		{"terminal", func(s *computer.Spec) { s.Terminal = &computer.TerminalSize{Columns: 80, Rows: 24} }, 2},
		{"own_network", func(s *computer.Spec) { s.OwnNetwork = true }, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := "ws_" + c.name
			e := provision(t, d, files, id)
			for i, want := range []int{ofComputer + c.want, c.want} {
				before := descriptorsOf(t)
				s := e.spec("read x")
				s.ID = fmt.Sprintf("%s_%d", s.ID, i)
				c.change(&s)
				p, err := d.Start(t.Context(), id, s)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := p.End(t.Context()); err != nil {
						t.Error(err)
					}
				}()
				if got := opened(t, before); len(got) != want {
					t.Errorf("process %d of the computer has %d descriptors, want %d: %q", i+1, len(got), want, got)
				}
			}
		})
	}
}

// TestUnusedComputersGiveWay starts processes in more computers than may run.
func TestUnusedComputersGiveWay(t *testing.T) {
	d, files := openHost(t, func(o *local.Options) { o.MaxComputers = 2 })
	start := func(id string) (computer.Process, error) {
		return d.Start(t.Context(), id, provision(t, d, files, id).spec("touch /tmp/used; read x"))
	}
	end := func(p computer.Process) {
		t.Helper()
		if err := p.End(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	isRunning := func(id string) bool {
		_, err := d.Dial(t.Context(), id, 1)
		return !strings.Contains(fmt.Sprint(err), "is not running")
	}
	var all []computer.Process
	for _, id := range []string{"ws_1", "ws_2"} {
		p, err := start(id)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if _, err := start("ws_3"); code(err) != entity.Unavailable {
		t.Errorf("a third computer beside two with processes: %v", err)
	}
	end(all[1])
	end(all[0])
	third, err := start("ws_3")
	if err != nil {
		t.Fatal(err)
	}
	if isRunning("ws_2") || !isRunning("ws_1") {
		t.Error("want that the computer that was unused for the longest time has stopped")
	}
	if _, err := d.Sample(t.Context(), "ws_2"); err != nil {
		t.Errorf("a computer that gave way counts as lost: %v", err)
	}
	end(third)
}
