package computer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// agentOf is the launch of a session's agent.
func agentOf(session, user string) computer.Launch {
	return computer.Launch{
		WorkspaceID: "ws_1", Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_SESSION,
		SessionID: session, UserID: user, Argv: []string{computer.ProgramPath, "agent"},
	}
}

// TestLaunchForSession checks that the processes of a session have its actor, its user and one group.
func TestLaunchForSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		var all []*computer.Running
		for _, user := range []string{"usr_7", ""} {
			r, err := w.fleet.Launch(t.Context(), agentOf("ses_1", user))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
			p := w.state.GetProcesses()[r.ID]
			if p.GetActor() != "session:ses_1" || p.GetSessionId() != "ses_1" || p.GetUserId() != user || p.GetProgram() != computer.ProgramPath {
				t.Errorf("recorded %v", p)
			}
		}
		w.host.expectOrder("begin session:ses_1 usr_7, attribute, start, begin session:ses_1 , attribute, start")
		other, err := w.fleet.Launch(t.Context(), launch)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"session:ses_1", "session:ses_1", "exec:" + other.ID} {
			if got := w.host.processes[i].group; got != want {
				t.Errorf("process %d is in the group %q, want %q", i, got, want)
			}
		}
		if got := metricOf(t, w.fleet, "atelier_computer_processes"); got["session"] != 2 || got["exec"] != 1 || got["terminal"] != 0 {
			t.Errorf("running processes: %v", got)
		}
		for i, r := range append(all, other) {
			w.host.processes[i].exit(computer.Exit{})
			<-r.Ended()
		}
	})
}

func TestLaunchForInvalidSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		none := agentOf("", "usr_7")
		exec := launch
		exec.SessionID = "ses_1"
		for name, l := range map[string]computer.Launch{"no session": none, "exec of a session": exec, "path": agentOf("../x", "")} {
			_, err := w.fleet.Launch(t.Context(), l)
			if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.InvalidRequest {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.host.expectOrder("")
	})
}

// TestTasksEndProcesses checks that tasks that need a computer without processes end them first, with the right reason.
func TestTasksEndProcesses(t *testing.T) {
	for name, task := range map[string]computerv1.Command{
		"replace": &computerv1.Reprovision{TaskId: "tsk_3"},
		"restore": &computerv1.Restore{TaskId: "tsk_3", BackupId: "bkp_1"},
		"retire":  &computerv1.RetireComputer{TaskId: "tsk_3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := provisioned(t)
				w.ask(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bkp_1"})
				w.runAll(1)
				var all []*computer.Running
				for _, l := range []computer.Launch{launch, agentOf("ses_1", "usr_7")} {
					r, err := w.fleet.Launch(t.Context(), l)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, r)
				}
				w.ask(task)
				for _, l := range []computer.Launch{launch, agentOf("ses_1", "usr_7")} {
					if _, err := w.fleet.Launch(t.Context(), l); !isUnavailable(err) {
						t.Errorf("Launch while the task is open: %v", err)
					}
				}
				w.runAll(1)
				for _, r := range all {
					exit, err := r.Wait(t.Context())
					if err != nil || exit.Reason != computer.EndedStopped {
						t.Errorf("ended %+v, %v", exit, err)
					}
				}
				if len(w.state.GetProcesses()) != 0 {
					t.Errorf("recorded %v", w.state.GetProcesses())
				}
			})
		})
	}
}

// TestProcessOfLostComputer checks that Wait returns when the host says that the computer is lost, and that this is recorded.
func TestProcessOfLostComputer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		r, err := w.fleet.Launch(t.Context(), agentOf("ses_1", "usr_7"))
		if err != nil {
			t.Fatal(err)
		}
		w.host.processes[0].exit(computer.Exit{Status: 137, Reason: computer.EndedLost})
		exit, err := r.Wait(t.Context())
		if err != nil || exit.Reason != computer.EndedLost || len(w.state.GetProcesses()) != 0 {
			t.Errorf("ended %+v, %v; recorded %v", exit, err, w.state.GetProcesses())
		}
		if last := w.events[len(w.events)-1]; last != "ProcessEnded" {
			t.Errorf("the last event is %s", last)
		}
	})
}

// loopback listens on this machine in place of a computer.
func loopback(context.Context, string, int) (net.Listener, error) {
	return net.Listen("tcp", "127.0.0.1:0")
}

// TestListen checks that no listener starts a computer that a task needs stopped.
func TestListen(t *testing.T) {
	w := provisioned(t)
	w.host.listen = loopback
	l, err := w.fleet.Listen(t.Context(), "ws_1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	w.setFail(func(action string) error {
		if strings.HasPrefix(action, "provision") {
			if _, err := w.fleet.Listen(t.Context(), "ws_1", 0); !isUnavailable(err) {
				t.Errorf("Listen while the computer is replaced: %v", err)
			}
		}
		return nil
	})
	w.ask(&computerv1.Reprovision{TaskId: "tsk_2"})
	w.runAll(1)
	w.host.expectOrder("listen, stop")
	w.host.listen = nil
	if _, err := w.fleet.Listen(t.Context(), "ws_1", 0); err == nil {
		t.Error("Listen hides the error of the host")
	}
	if err := w.fleet.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.fleet.Listen(t.Context(), "ws_1", 0); !isUnavailable(err) {
		t.Errorf("Listen after Close: %v", err)
	}
}

// TestTaskWaitsForListen checks that a task does not stop the computer before a listener is open that is about to start it.
func TestTaskWaitsForListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		opening := make(chan struct{})
		w.host.listen = func(context.Context, string, int) (net.Listener, error) {
			<-opening
			w.host.did("opened")
			return nil, errors.New("no port")
		}
		go func() { _, _ = w.fleet.Listen(t.Context(), "ws_1", 0) }()
		synctest.Wait()
		w.ask(&computerv1.Reprovision{TaskId: "tsk_2"})
		ended := make(chan struct{})
		go func() { defer close(ended); w.runAll(1) }()
		synctest.Wait()
		w.host.expectOrder("listen")
		close(opening)
		<-ended
		w.host.expectOrder("opened, stop")
	})
}
