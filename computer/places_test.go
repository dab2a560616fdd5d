package computer_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/computer"
)

// limited returns a world with a fleet that has a number of places for processes.
func limited(t *testing.T, places int) *world {
	w := provisioned(t)
	w.fleet = computer.New(computer.Options{
		Driver: w, Host: w.host, Observer: w.host, Archive: w, Asker: w, Put: w.put, MaxProcesses: places,
	})
	return w
}

// agentIn is the launch of an agent of a person in a workspace.
func agentIn(workspace, user string) computer.Launch {
	l := agentOf("ses_1", user)
	l.WorkspaceID = workspace
	return l
}

func (w *world) launch(l computer.Launch) *computer.Running {
	w.t.Helper()
	r, err := w.fleet.Launch(w.t.Context(), l)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// launchMost starts processes until one is refused, and returns the processes.
func (w *world) launchMost(l computer.Launch) (all []*computer.Running) {
	w.t.Helper()
	for {
		r, err := w.fleet.Launch(w.t.Context(), l)
		if err != nil {
			if !isUnavailable(err) {
				w.t.Fatal(err)
			}
			return all
		}
		all = append(all, r)
	}
}

func (w *world) end(all ...*computer.Running) {
	w.t.Helper()
	for _, r := range all {
		if err := r.End(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		<-r.Ended()
	}
}

func (w *world) close() {
	w.t.Helper()
	if err := w.fleet.Close(w.t.Context()); err != nil {
		w.t.Error(err)
	}
}

func isEnded(r *computer.Running) bool {
	select {
	case <-r.Ended():
		return true
	default:
		return false
	}
}

// TestIdleProcessesGiveTheirPlaces fills all places with idle processes of one workspace, and starts processes of others.
func TestIdleProcessesGiveTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 4)
		defer w.close()
		var idle []*computer.Running
		for range 3 {
			r := w.launch(agentIn("ws_1", "usr_1"))
			r.Rest()
			idle = append(idle, r)
			time.Sleep(time.Second)
		}
		ofOther := w.launch(agentIn("ws_2", "usr_2"))
		ofOther.Rest()
		// The second of ws_1 works again, and then is idle again: it is the last one.
		if err := idle[1].Resume(); err != nil {
			t.Fatal(err)
		}
		idle[1].Rest()

		w.launch(agentIn("ws_3", "usr_3"))
		synctest.Wait()
		if !isEnded(idle[0]) || isEnded(idle[1]) || isEnded(idle[2]) || isEnded(ofOther) {
			t.Error("want the end of the process that was idle for the longest time, of the workspace with the most")
		}
		if err := idle[0].Resume(); !errors.Is(err, computer.ErrEnding) {
			t.Errorf("Resume of the ended process: %v", err)
		}
		w.launch(agentIn("ws_2", "usr_2"))
		synctest.Wait()
		if !isEnded(ofOther) || isEnded(idle[2]) {
			t.Error("want the end of the workspace's own idle process")
		}
		if got := metricOf(t, w.fleet, "atelier_computer_idle_evictions_total"); got["place"] != 2 {
			t.Errorf("evictions: %v", got)
		}
		if got := metricOf(t, w.fleet, "atelier_computer_idle_processes"); got[""] != 2 {
			t.Errorf("idle processes: %v", got)
		}
	})
}

// TestIdleProcessThatCannotBeEnded keeps its place, and is ended by the next start.
func TestIdleProcessThatCannotBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 1)
		defer w.close()
		idle := w.launch(agentIn("ws_1", "usr_1"))
		idle.Rest()
		w.host.processes[0].endFails.Store(true)
		if _, err := w.fleet.Launch(t.Context(), agentIn("ws_2", "usr_2")); !isUnavailable(err) || len(w.host.processes) != 1 {
			t.Errorf("a start without a place: %v, %d processes", err, len(w.host.processes))
		}
		w.launch(agentIn("ws_2", "usr_2"))
		synctest.Wait()
		if !isEnded(idle) {
			t.Error("two processes have one place")
		}
	})
}

// TestShareOfOneWorkspace lets one workspace start as many processes as it may, and then other workspaces.
func TestShareOfOneWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 64
		w := limited(t, places)
		defer w.close()
		greedy := w.launchMost(agentIn("ws_1", "usr_1"))
		if len(greedy) != places*3/4 {
			t.Errorf("one workspace alone got %d of %d places, want three quarters", len(greedy), places)
		}
		if got := metricOf(t, w.fleet, "atelier_computer_process_refusals_total"); got["workspace"] == 0 {
			t.Errorf("refusals: %v", got)
		}
		for i := range 3 {
			if got := len(w.launchMost(agentIn(fmt.Sprintf("ws_%d", i+2), fmt.Sprintf("usr_%d", i+2)))); got == 0 {
				t.Errorf("workspace %d beside a greedy one got no place", i+2)
			}
		}
	})
}

// TestSharesBecomeEqual lets processes of workspaces that always want more end one after the other.
func TestSharesBecomeEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places, workspaces = 39, 4 // each gets 3*39/(1+3*4) = 9
		w := limited(t, places)
		defer w.close()
		running := map[int][]*computer.Running{}
		fill := func(n int) {
			running[n] = append(running[n], w.launchMost(agentIn(fmt.Sprintf("ws_%d", n), fmt.Sprintf("usr_%d", n)))...)
		}
		for n := range workspaces {
			fill(n)
		}
		for range places {
			// One process of the workspace with the most ends, and all want its place, this workspace first.
			most := 0
			for n := range workspaces {
				if len(running[n]) > len(running[most]) {
					most = n
				}
			}
			w.end(running[most][0])
			running[most] = running[most][1:]
			fill(most)
			for n := range workspaces {
				fill(n)
			}
		}
		for n := range workspaces {
			if got := len(running[n]); got < 8 || got > 10 {
				t.Errorf("workspace %d has %d processes, want about 9", n, got)
			}
		}
	})
}

// TestShareOfAPerson starts processes of one person in many workspaces.
func TestShareOfAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 16)
		defer w.close()
		got := 0
		for n := range 16 {
			if _, err := w.fleet.Launch(t.Context(), agentIn(fmt.Sprintf("ws_%d", n), "usr_1")); err == nil {
				got++
			}
		}
		if got != 12 {
			t.Errorf("one person got %d of 16 places, want 12", got)
		}
		w.launch(agentIn("ws_1", "usr_2"))
	})
}

// TestResumeNeedsAShare lets the person of idle processes start others instead, and then use them again.
func TestResumeNeedsAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 16)
		defer w.close()
		idle := w.launchMost(agentIn("ws_1", "usr_1"))
		for _, r := range idle {
			r.Rest()
		}
		busy := w.launchMost(agentIn("ws_1", "usr_1"))
		synctest.Wait()
		left := slices.DeleteFunc(idle, isEnded)
		if len(busy) != 12 || len(left) != 4 {
			t.Fatalf("%d processes run, and %d are idle, want 12 and 4", len(busy), len(left))
		}
		if err := left[0].Resume(); !isUnavailable(err) {
			t.Errorf("Resume beyond the share: %v", err)
		}
		w.end(busy[0])
		if err := left[0].Resume(); err != nil {
			t.Errorf("Resume within the share: %v", err)
		}
	})
}

// TestIdleProcessesFreeMemory starts processes that each use a part of the memory of a computer, and lets one of them grow.
func TestIdleProcessesFreeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t, 0)
		defer w.close()
		w.host.perProcess = 20
		var all []*computer.Running
		for range 3 {
			all = append(all, w.launch(agentIn("ws_1", "usr_1")))
			time.Sleep(time.Second)
		}
		busy := all[0]
		all[1].Rest()
		time.Sleep(time.Second)
		all[2].Rest()
		time.Sleep(time.Minute)
		if isEnded(all[1]) || isEnded(all[2]) {
			t.Error("an idle process ended though 60 of 100 are used")
		}
		if _, err := w.fleet.Launch(t.Context(), launch); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !isEnded(all[1]) || isEnded(all[2]) {
			t.Error("want the end of the process that was idle for longest, before a start with 60 of 100 used")
		}
		w.host.mu.Lock()
		w.host.perProcess = 30
		w.host.mu.Unlock()
		<-all[2].Ended()
		if isEnded(busy) {
			t.Error("a process that works has ended")
		}
		if got := metricOf(t, w.fleet, "atelier_computer_idle_evictions_total"); got["memory"] != 2 || got["place"] != 0 {
			t.Errorf("evictions: %v", got)
		}
	})
}
