package computer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// processOf is the launch of a process of an app with a network of its own.
func processOf(app string) computer.Launch {
	return computer.Launch{
		WorkspaceID: "ws_1", Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_APP, AppID: app, UserID: "usr_7",
		Argv: []string{"serve"}, Limits: computer.Limits{MemoryBytes: 1 << 20, Processors: 0.5, Processes: 7}, OwnNetwork: true,
	}
}

// TestLaunchForApp checks that the processes of an app have its actor and one group, and that their limits and network reach the
// host.
func TestLaunchForApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		w.host.ownNetworks = true
		var all []*computer.Running
		for range 2 { // generations
			l := processOf("app_1")
			l.Prepare = func(ctx context.Context, n computer.Network) error {
				w.host.did("prepare")
				if _, err := n.Listen(ctx, 1); err == nil || err.Error() != "listened on 1" {
					t.Errorf("Listen in Prepare returned %v", err)
				}
				return nil
			}
			r, err := w.fleet.Launch(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
			p := w.state.GetProcesses()[r.ID]
			if p.GetActor() != "api-key:app_1" || p.GetAppId() != "app_1" || p.GetUserId() != "usr_7" || p.GetProgram() != "serve" {
				t.Errorf("recorded %v", p)
			}
		}
		w.host.expectOrder("begin api-key:app_1 usr_7, attribute, prepare, start, begin api-key:app_1 usr_7, attribute, prepare, start")
		for i, r := range all {
			s := w.host.processes[i].spec
			if s.Group != "app:app_1" || !s.OwnNetwork || s.Limits != processOf("").Limits {
				t.Errorf("the host has got %+v", s)
			}
			if _, err := r.Dial(t.Context(), 5); err == nil || err.Error() != "dialed 5" {
				t.Errorf("Dial returned %v", err)
			}
			if _, err := r.Listen(t.Context(), 6); err == nil || err.Error() != "listened on 6" {
				t.Errorf("Listen returned %v", err)
			}
		}
		if got := metricOf(t, w.fleet, "atelier_computer_processes"); got["app"] != 2 {
			t.Errorf("running processes: %v", got)
		}
		for i, r := range all {
			w.host.processes[i].exit(computer.Exit{})
			<-r.Ended()
		}
	})
}

func TestLaunchForAppIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := provisioned(t)
		for _, own := range []bool{false, true} {
			w.host.ownNetworks = own
			exec := launch
			exec.AppID = "app_1"
			refused := map[string]computer.Launch{"no app": processOf(""), "exec of an app": exec}
			if !own {
				refused["own network"] = processOf("app_1")
			}
			for name, l := range refused {
				_, err := w.fleet.Launch(t.Context(), l)
				if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.InvalidRequest {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		w.host.expectOrder("")
	})
}
