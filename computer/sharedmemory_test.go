package computer_test

import (
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
)

// uses sets the memory of a process.
func (w *world) uses(r *computer.Running, memory uint64) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	if w.host.memoryOf == nil {
		w.host.memoryOf = map[string]uint64{}
	}
	w.host.memoryOf[r.ID] = memory
}

// limitAll sets the limit of all computers together, and their use besides the memory of uses.
func (w *world) limitAll(limit, unmeasured uint64) {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	w.host.sharedLimit, w.host.unmeasured = limit, unmeasured
}

func (w *world) refuses(l computer.Launch, want string) {
	w.t.Helper()
	_, err := w.fleet.Launch(w.t.Context(), l)
	if !isUnavailable(err) || err.(*entity.Error).Message != want || err.(*entity.Error).RetryAfter == 0 {
		w.t.Errorf("a start: %v, want %s", err, want)
	}
}

// TestMemoryOfAllComputersIsShared lets one person use most of the memory of all computers, in two workspaces, beside another person.
func TestMemoryOfAllComputersIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 0)
		defer w.close()
		w.limitAll(100, 0)
		greedy, second := w.launch(agentIn("ws_1", "usr_1")), w.launch(agentIn("ws_2", "usr_1"))
		idle := w.launch(agentIn("ws_3", "usr_3"))
		idle.Rest()
		w.uses(greedy, 40)
		w.uses(second, 35)
		w.uses(idle, 10)
		modest := w.launch(agentIn("ws_4", "usr_2"))
		w.uses(modest, 5)
		synctest.Wait()
		if !isEnded(idle) {
			t.Error("an idle process has kept its memory though 85 of 100 are used")
		}
		// 20 are left, so that shares are 60.
		w.refuses(agentIn("ws_5", "usr_1"), "the person has their share of the memory of the server")
		w.uses(modest, 10)
		// 15 are left, so that shares are 45.
		w.uses(second, 30)
		w.uses(greedy, 48)
		w.refuses(agentIn("ws_1", "usr_2"), "the workspace has its share of the memory of the server")
		w.launch(agentIn("ws_4", "usr_2"))
		w.uses(modest, 45)
		// The greatest process is a process of the person with less memory.
		w.uses(second, 44)
		w.uses(greedy, 43)
		w.refuses(agentIn("ws_4", "usr_2"), "the processes of the server use all memory that computers may have")
		<-second.Ended()
		synctest.Wait()
		if exit, _ := second.Wait(t.Context()); exit.Reason != computer.EndedOutOfMemory {
			t.Errorf("end for lack of memory: %+v", exit)
		}
		if isEnded(modest) || isEnded(greedy) {
			t.Error("more has ended than was needed")
		}
		if got := metricOf(t, w.fleet, "atelier_computer_memory_ends_total"); got[""] != 1 {
			t.Errorf("ends: %v", got)
		}
		if got := metricOf(t, w.fleet, "atelier_computer_process_refusals_total"); got["person_memory"] != 1 || got["workspace_memory"] != 1 || got["node_memory"] != 1 {
			t.Errorf("refusals: %v", got)
		}
	})
}

// TestMemoryIsSharedWithoutMeasurement has a host that knows the use of all computers, but not the use of each group: starts are shared by
// the number of processes, and nothing ends.
func TestMemoryIsSharedWithoutMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 0)
		defer w.close()
		var all []*computer.Running
		for range 9 {
			all = append(all, w.launch(agentIn("ws_1", "usr_1")))
		}
		w.limitAll(100, 80)
		w.refuses(agentIn("ws_1", "usr_1"), "the workspace has its share of the memory of the server")
		w.launch(agentIn("ws_2", "usr_2"))
		w.limitAll(100, 95)
		w.refuses(agentIn("ws_2", "usr_2"), "the processes of the server use all memory that computers may have")
		synctest.Wait()
		for _, r := range all {
			if isEnded(r) {
				t.Error("a process has ended though nobody knows what it uses")
			}
		}
	})
}

// TestUnusedComputersFreeMemory has computers without processes. Their temporary files use memory: the computers stop before an idle
// process ends.
func TestUnusedComputersFreeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 0)
		defer w.close()
		idle := w.launch(agentIn("ws_1", "usr_1"))
		idle.Rest()
		w.limitAll(100, 90)
		w.host.mu.Lock()
		w.host.unused = []uint64{10, 20, 30}
		w.host.mu.Unlock()
		w.launch(agentIn("ws_2", "usr_2"))
		synctest.Wait()
		w.host.mu.Lock()
		defer w.host.mu.Unlock()
		if isEnded(idle) || len(w.host.unused) != 1 {
			t.Errorf("the idle process has ended: %v; %d unused computers are left, want 1", isEnded(idle), len(w.host.unused))
		}
	})
}
