package apps

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// removed waits until a removal has ended, and reports whether the app is removed.
func (w *world) removed(taskID string) bool {
	w.t.Helper()
	w.do(&appv1.RemoveApp{TaskId: taskID})
	if !w.await(w.t.Context(), func(a *appv1.App) bool { return a.GetRemoval() == nil }) {
		w.t.Fatal("the removal did not end")
	}
	return w.state().GetRemoved()
}

func TestRemovalFailsWhileAProcessDoesNotEnd(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{stuck: true}
		w.register(&appv1.Runtime{Command: "serve"})
		for range 2 {
			at := time.Now()
			if w.removed("stop_1") {
				t.Fatal("the app was removed while its process runs")
			}
			// The test runs the two tasks in sequence: the loop ends within 40 s, and Stop within 45.
			if took := time.Since(at); took > 85*time.Second {
				t.Errorf("the removal failed after %s", took)
			}
			time.Sleep(10 * time.Minute)
			if all := w.started(); len(all) != 1 {
				t.Fatalf("%d processes were started beside the one that does not end", len(all)-1)
			}
		}
		w.expectStatus(w.state(), reconciledStatus)
		w.started()[0].fail <- computer.Exit{Status: 137}
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		if c, name := w.dial(); name != "serve" || len(w.alive()) != 1 {
			t.Errorf("after the end of the process, %q answers", name)
		} else {
			c.Close()
		}
		w.started()[1].fail <- computer.Exit{Status: 1}
		if !w.removed("stop_2") {
			t.Error("the app was not removed after its process had ended")
		}
	})
}

// TestReplacedProcessDoesNotEnd expects that the port of such a process is busy, also while the app is disabled, until it has ended.
func TestReplacedProcessDoesNotEnd(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["old"], w.programs["new"] = program{stuck: true}, program{}
		w.register(&appv1.Runtime{Command: "old"})
		w.offer(testPort + 1)
		w.do(&appv1.UpdateApp{Command: proto.String("new"), Port: proto.Uint32(testPort + 1)})
		w.expectStatus(w.reconciled(), reconciledStatus)
		expectBusy := func(when string, want ...uint32) {
			t.Helper()
			if busy := w.state().GetPorts().GetBusy(); !slices.Equal(busy, want) {
				t.Errorf("%s: the busy ports are %d, want %d", when, busy, want)
			}
		}
		time.Sleep(10 * time.Minute)
		expectBusy("while the app runs", testPort)
		w.do(&appv1.SetDisabled{Disabled: true})
		time.Sleep(10 * time.Minute)
		expectBusy("while the app is disabled", testPort)
		w.started()[0].fail <- computer.Exit{Status: 137}
		time.Sleep(2 * time.Minute)
		expectBusy("after the end of the process")
		if _, release, err := w.s.Logs(testWorkspace, testApp); err != nil {
			t.Error(err)
		} else {
			release()
		}
	})
}

// TestAfterACrashOfTheNode has a supervisor that did not run the app before: the app knows a busy port, and the computer has a record of a
// process.
func TestAfterACrashOfTheNode(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["old"], w.programs["new"] = program{}, program{}
		w.register(&appv1.Runtime{Command: "old"})
		w.offer(testPort + 1)
		open, _ := w.dial()
		w.do(&appv1.UpdateApp{Command: proto.String("new"), Port: proto.Uint32(testPort + 1)})
		w.reconciled()
		synctest.Wait()
		if busy := w.state().GetPorts().GetBusy(); len(busy) != 1 {
			t.Fatalf("the busy ports are %d", busy)
		}
		crashed := w.state()
		open.Close()
		w.do(&appv1.SetDisabled{Disabled: true})
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.app = proto.CloneOf(crashed)
		w.app.Revision = 1000
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		time.Sleep(time.Minute)
		if busy := w.state().GetPorts().GetBusy(); len(busy) > 0 {
			t.Errorf("the ports %d are busy after the crash", busy)
		}
		w.mu.Lock()
		w.recorded = map[string]*computerv1.Process{"prc_1": {AppId: testApp}, "prc_2": {AppId: "another"}}
		w.mu.Unlock()
		if w.removed("stop_1") {
			t.Fatal("the app was removed while one of its processes is recorded")
		}
		w.do(&appv1.RemoveApp{TaskId: "stop_2"})
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		delete(w.recorded, "prc_1")
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
		if !w.state().GetRemoved() {
			t.Error("the app was not removed after the end of its process was recorded")
		}
	})
}

// TestEndLeftTwice ends two processes that were left, as Run and Stop may do at the same time. Neither returns before both have ended.
func TestEndLeftTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, programs: map[string]program{"serve": {port: -1, ignoresTerm: true}}, listening: network{}}
		w.s = New(Options{Computers: w, Dir: t.TempDir()})
		l := w.s.newLoop("ws/app")
		for range 2 {
			p, err := w.Launch(t.Context(), Launch{Argv: []string{"serve"}})
			if err != nil {
				t.Fatal(err)
			}
			_ = p.Streams().Stdout.Close()
			i := &instance{l: l, process: p}
			i.watch()
			w.s.leave(i)
		}
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() {
				if err := w.s.endLeft(t.Context(), l.identity); err != nil || len(w.alive()) > 0 {
					t.Errorf("endLeft returned %v, and %d processes run", err, len(w.alive()))
				}
			})
		}
		callers.Wait()
	})
}
