package apps

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// TestIdleProcessDuringAnAttempt has a process that was idle for long enough while another configuration is being tried. The loop must
// wait for the attempt, and not ask again and again whether the app may sleep.
func TestIdleProcessDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Dir: t.TempDir()}).newLoop("ws/app")
		r := &runState{loop: l, attempt: &attempt{}, sleepAfter: time.Minute}
		l.current = &instance{l: l, used: time.Now()}
		time.Sleep(time.Hour)
		began := time.Now()
		<-r.nextTime()
		if waited := time.Since(began); waited < time.Minute {
			t.Errorf("the loop goes on after %s", waited)
		}
		r.timer.Stop()
	})
}

// TestUpdateWhileTheProcessBecomesReady requests a configuration while the connection that shows that the configuration before it is ready
// is being made. The attempt is cancelled too late and succeeds.
func TestUpdateWhileTheProcessBecomesReady(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"], w.programs["slow"] = program{}, program{connects: 2 * time.Second}
		w.programs["install"], w.programs["next"] = program{port: -1, life: time.Second}, program{}
		w.register(&appv1.Runtime{Command: "serve"})
		w.do(&appv1.UpdateApp{Command: proto.String("slow")})
		time.Sleep(time.Second)
		w.do(&appv1.UpdateApp{Command: proto.String("next"), InstallCommand: proto.String("install")})
		time.Sleep(time.Minute)
		w.expectStatus(w.state(), reconciledStatus)
		if c, name := w.dial(); name != "next" {
			t.Errorf("%q answers", name)
		} else {
			c.Close()
		}
		var commands []string
		for _, p := range w.started() {
			commands = append(commands, p.command)
		}
		if len(commands) != 4 || commands[2] != "install" {
			t.Errorf("the commands were %q", commands)
		}
	})
}

// TestStopOfTheComputerBeforeAStart stops the computer after the platform has opened its listeners there for a process, and before the
// process starts in the computer that has been started again. The app does not run without them.
func TestStopOfTheComputerBeforeAStart(t *testing.T) {
	serve := func(o *Options) { o.API = http.NotFoundHandler() }
	inWorld(t, serve, func(w *world) {
		w.programs["serve"] = program{}
		stopped := false
		w.mu.Lock()
		w.intercept = func(m proto.Message) error {
			if _, is := m.(*appv1.IssueKey); is && !stopped {
				stopped = true
				w.mu.Lock()
				opened := slices.Clone(w.listeners)
				w.mu.Unlock()
				if len(opened) != 1 {
					w.t.Errorf("%d listeners are open", len(opened))
				}
				for _, l := range opened {
					l.Close()
				}
			}
			return nil
		}
		w.mu.Unlock()
		w.expectStatus(w.register(&appv1.Runtime{Command: "serve", ApiScopes: []string{"sessions"}}), reconciledStatus)
		all := w.started()
		api, _ := all[len(all)-1].env("SERVICE_API_URL")
		_, port, err := net.SplitHostPort(strings.TrimPrefix(api, "http://"))
		if err != nil {
			w.t.Fatal(err)
		}
		number, _ := strconv.Atoi(port)
		for _, at := range []int{number, testPort} {
			if c, err := all[len(all)-1].Dial(w.t.Context(), at); err != nil {
				w.t.Errorf("port %d of the network of the process: %v", at, err)
			} else {
				c.Close()
			}
		}
		if c, name := w.throughComputer(); name != "serve" {
			w.t.Errorf("at the port in the computer, %q answers", name)
		} else {
			c.Close()
		}
	})
}

// TestUpdateWhileTheComputerIsStopped requests a configuration when the computer has not started processes for a while already. The
// configuration is tried for as long as any other configuration.
func TestUpdateWhileTheComputerIsStopped(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		refuse := func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refusal = err
		}
		w.programs["serve"], w.programs["next"] = program{}, program{}
		w.register(&appv1.Runtime{Command: "serve"})
		refuse(&entity.Error{Code: entity.Unavailable, Message: "the computer is being restored"})
		w.started()[0].fail <- computer.Exit{Reason: computer.EndedStopped}
		time.Sleep(5 * time.Minute)
		w.do(&appv1.UpdateApp{Command: proto.String("next")})
		time.Sleep(10 * time.Second)
		refuse(nil)
		w.expectStatus(w.reconciled(), reconciledStatus)
	})
}
