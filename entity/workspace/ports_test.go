package workspace_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	entityapp "github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/workspace"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A reservation is a workspace with one app, and the commands between the two that are under way. Each direction keeps its order, as
// the lanes of reactions do.
type reservation struct {
	t         *rapid.T
	workspace *workspacev1.Workspace
	version   uint64
	app       *appv1.App
	toApp     []appv1.Command
	toSpace   []workspacev1.Command
	now       time.Time
	// processes are the ports on which processes of the app listen.
	processes map[uint32]bool
}

func (r *reservation) call() entity.Call {
	return entity.Call{
		Now: r.now, Identity: acme, Principal: entity.Platform(), Role: workspacev1.Role_ROLE_OWNER, Version: r.version + 1,
	}
}

func (r *reservation) tellSpace(c workspacev1.Command) error {
	events, err := workspace.Decide(r.call(), r.workspace, c)
	for _, e := range events {
		r.version++
		r.workspace = workspace.Evolve(r.workspace, e)
		for _, sent := range workspace.Kind.React(acme, e) {
			if sent.Kind == entity.KindApp {
				r.toApp = append(r.toApp, sent.Message.(appv1.Command))
			}
		}
	}
	return err
}

func (r *reservation) tellApp(c appv1.Command) error {
	events, err := entityapp.Decide(r.call(), r.app, c)
	for _, e := range events {
		r.app = entityapp.Evolve(r.app, e)
		for _, sent := range entityapp.React(acme+"/"+appID("1"), e) {
			if sent.Kind == entity.KindWorkspace {
				r.toSpace = append(r.toSpace, sent.Message.(workspacev1.Command))
			}
		}
	}
	return err
}

// deliver delivers the first command of one direction.
func (r *reservation) deliver(toApp bool) {
	switch {
	case toApp && len(r.toApp) > 0:
		c := r.toApp[0]
		r.toApp = r.toApp[1:]
		if err := r.tellApp(c); err != nil {
			r.t.Fatalf("%T: %v", c, err)
		}
	case !toApp && len(r.toSpace) > 0:
		c := r.toSpace[0]
		r.toSpace = r.toSpace[1:]
		if err := r.tellSpace(c); err != nil {
			r.t.Fatalf("%T: %v", c, err)
		}
	}
}

// reserved returns the ports that the workspace has reserved for the app, in order.
func (r *reservation) reserved() (all []uint32) {
	for _, p := range r.workspace.GetAnchors()["anc_1"].GetApp().GetPorts() {
		all = append(all, p.GetPort())
	}
	slices.Sort(all)
	return all
}

// needed returns the ports of the configurations of the app, in order.
func (r *reservation) needed() (all []uint32) {
	for _, runtime := range []*appv1.Runtime{r.app.GetAccepted(), r.app.GetRequested()} {
		if runtime != nil && !slices.Contains(all, runtime.GetPort()) {
			all = append(all, runtime.GetPort())
		}
	}
	slices.Sort(all)
	return all
}

// listening returns the ports on which processes listen, in order.
func (r *reservation) listening() (all []uint32) {
	for port := range r.processes {
		all = append(all, port)
	}
	slices.Sort(all)
	return all
}

// work takes a step that the executor of the open task may take next: it starts and ends processes, and reports.
func (r *reservation) work() {
	open := entityapp.Tasks(r.app)
	if len(open) == 0 {
		return
	}
	if open[0].Kind == entityapp.StopTask {
		r.processes = map[uint32]bool{}
		_ = r.tellApp(&appv1.ReportStopped{TaskId: open[0].ID})
		return
	}
	switch rapid.IntRange(0, 3).Draw(r.t, "work") {
	case 0: // a process starts
		r.processes[r.app.GetAccepted().GetPort()] = r.app.GetAccepted() != nil
		r.processes[r.app.GetRequested().GetPort()] = r.app.GetRequested() != nil
		for port, runs := range r.processes {
			if !runs {
				delete(r.processes, port)
			}
		}
	case 1: // a process ends
		if all := r.listening(); len(all) > 0 {
			delete(r.processes, rapid.SampledFrom(all).Draw(r.t, "ends"))
		}
	case 2:
		failure := rapid.SampledFrom([]string{"", "no"}).Draw(r.t, "failure")
		_ = r.tellApp(&appv1.ReportReconciled{Generation: r.app.GetGeneration(), Failure: failure, BusyPorts: r.listening()})
	default:
		var free []uint32
		for _, port := range r.app.GetPorts().GetBusy() {
			if !r.processes[port] {
				free = append(free, port)
			}
		}
		_ = r.tellApp(&appv1.ReportFreePorts{Generation: r.app.GetGeneration(), Ports: free})
	}
}

// check expects that a reservation exists for each port that the app may use, or on which one of its processes listens.
func (r *reservation) check() {
	if r.app.GetCreatedAt() == 0 || r.app.GetRemoved() {
		return
	}
	reserved := r.reserved()
	for _, port := range slices.Concat(r.needed(), r.app.GetPorts().GetBusy(), r.listening()) {
		if !slices.Contains(reserved, port) {
			r.t.Fatalf("port %d of %v is not reserved, but %d", port, r.app, reserved)
		}
	}
}

// TestPortReservations sends random requests. The commands of a request stop at any step. The test delivers the commands between the
// entities at any time. No reservation is lost; and once all commands have arrived, all timers were due and all processes have ended, none
// is left.
func TestPortReservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &reservation{t: t, workspace: open(), now: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), app: entityapp.Zero(acme + "/" + appID("1")), processes: map[uint32]bool{}}
		r.version = uint64(100)
		c := newApp("anc_1", "site", "site", 3000)
		if err := r.tellSpace(c); err != nil {
			t.Fatal(err)
		}
		port := rapid.Uint32Range(3000, 3003)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			r.now = r.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1:
				_ = r.tellSpace(&workspacev1.ReserveAppPort{AppId: appID("1"), Port: port.Draw(t, "reserved")})
			case 2, 3:
				_ = r.tellApp(&appv1.UpdateApp{Port: proto.Uint32(port.Draw(t, "updated"))})
			case 4:
				_ = r.tellApp(&appv1.SetDisabled{Disabled: rapid.Bool().Draw(t, "disabled")})
			case 5, 6:
				r.work()
			case 7:
				r.fire()
			default:
				r.deliver(rapid.Bool().Draw(t, "to the app"))
			}
			r.check()
		}
		r.finish()
		if got, want := r.reserved(), r.needed(); !slices.Equal(got, want) {
			t.Fatalf("in the end the ports %d are reserved, and %d are needed: %v", got, want, r.app)
		}
		if at := workspace.MaxAppPorts; len(r.reserved()) > at {
			t.Fatalf("more than %d reservations", at)
		}
	})
}

// fire sends the timer that is due.
func (r *reservation) fire() {
	for _, timer := range entityapp.Timers(r.app) {
		if timer.At <= r.now.UnixMilli() {
			_ = r.tellApp(timer.Message.(appv1.Command))
		}
	}
}

// finish delivers all commands, ends all processes but the processes of the present configurations, and lets the time of all offers pass.
func (r *reservation) finish() {
	for range 100 {
		for len(r.toApp)+len(r.toSpace) > 0 {
			r.deliver(true)
			r.deliver(false)
			r.check()
		}
		r.now = r.now.Add(entityapp.OfferTime)
		r.fire()
		r.processes = map[uint32]bool{}
		if all := entityapp.Tasks(r.app); len(all) > 0 && all[0].Kind == entityapp.StopTask {
			_ = r.tellApp(&appv1.ReportStopped{TaskId: all[0].ID})
		} else {
			_ = r.tellApp(&appv1.ReportFreePorts{Generation: r.app.GetGeneration(), Ports: r.app.GetPorts().GetBusy()})
		}
	}
	if len(entityapp.Timers(r.app)) > 0 {
		r.t.Fatal(fmt.Sprint("timers are left: ", entityapp.Timers(r.app)))
	}
}
