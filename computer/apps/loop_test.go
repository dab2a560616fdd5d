package apps

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

const (
	reconciledStatus = appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED
	failedStatus     = appv1.RuntimeStatus_RUNTIME_STATUS_FAILED
)

// dial connects to the app, and returns the connection and the command of the process that has answered.
func (w *world) dial() (net.Conn, string) {
	w.t.Helper()
	c, err := w.s.Dial(w.t.Context(), testWorkspace, testApp)
	if err != nil {
		w.t.Fatal(err)
	}
	name, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return c, strings.TrimSuffix(name, "\n")
}

func reasonOfDial(err error) string {
	if refused, is := errors.AsType[*entity.Error](err); is {
		return refused.Reason
	}
	return ""
}

func TestEnvironmentOfTheProcesses(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["npm install"] = program{port: -1, life: time.Minute}
		w.programs["serve"] = program{}
		w.expectStatus(w.register(&appv1.Runtime{Command: "serve", InstallCommand: "npm install", ApiScopes: []string{"sessions"}}), reconciledStatus)
		all := w.started()
		if len(all) != 2 || all[0].command != "npm install" || all[1].command != "serve" {
			t.Fatalf("%d processes were started", len(all))
		}
		install, serve := all[0], all[1]
		if strings.Join(install.l.Env, " ") != "PORT=8080" {
			t.Errorf("the install command got %v", install.l.Env)
		}
		if serve.at.Sub(install.at) != time.Minute {
			t.Error("the command was started before the install command has ended")
		}
		if port, _ := serve.env("PORT"); port != "8080" || serve.l.Cwd != "site" || serve.l.UserID != "usr_1" || serve.l.AppID != testApp {
			t.Errorf("the process got port %q, folder %q, user %q", port, serve.l.Cwd, serve.l.UserID)
		}
		id, secret, _ := strings.Cut(strings.TrimPrefix(serve.key(), "atlapp_"), "_")
		hash := sha256.Sum256([]byte(secret))
		if issued := w.state().GetKey(); id != strings.TrimPrefix(testApp, "app_") || len(secret) < 32 || string(issued.GetSecretSha256()) != string(hash[:]) {
			t.Error("the key of the process is not the one that was issued")
		}
		if w.settled != 1 {
			t.Errorf("the process was started after %d waits for its credential", w.settled)
		}
	})
}

func TestKeyIsOnlyForScopes(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve"})
		if _, found := w.started()[0].env("SERVICE_APP_API_KEY"); found || w.state().GetKey() != nil {
			t.Error("an app without scopes got a key")
		}
	})
}

func TestReconcileFailures(t *testing.T) {
	for name, of := range map[string]struct {
		command, install program
		refusal          error
		want             []string
		after            time.Duration
	}{
		"exits at once": {
			command: program{port: -1, output: "no module named flask\n", life: time.Second, exit: computer.Exit{Status: 3}},
			want:    []string{"exit status 3", "no module named flask"}, after: time.Second,
		},
		"never listens":          {command: program{port: -1, output: "thinking\n"}, want: []string{"8080", "30s", "thinking"}, after: 30 * time.Second},
		"listens elsewhere":      {command: program{port: 3000, output: "on 3000\n"}, want: []string{"8080", "30s", "on 3000"}, after: 30 * time.Second},
		"listens too late":       {command: program{after: 31 * time.Second}, want: []string{"8080", "30s"}, after: 30 * time.Second},
		"ignores SIGTERM":        {command: program{port: -1, ignoresTerm: true}, want: []string{"30s"}, after: 40 * time.Second},
		"prints its key":         {command: program{port: -1, output: "key $KEY\n"}, want: []string{"key [key]"}, after: 30 * time.Second},
		"the install has failed": {install: program{port: -1, output: "404\n", life: 1, exit: computer.Exit{Status: 1}}, want: []string{"install", "exit status 1", "404"}},
		"the install does not end": {
			install: program{port: -1, output: "waiting\n", ignoresTerm: true}, want: []string{"install", "10m0s", "waiting"}, after: 10 * time.Minute,
		},
		"the computer refuses": {refusal: entity.Errorf(entity.LimitReached, "the drive is full"), want: []string{"the drive is full"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				begin := time.Now()
				w.programs["serve"], w.programs["install"], w.refusal = of.command, of.install, of.refusal
				runtime := &appv1.Runtime{Command: "serve", ApiScopes: []string{"sessions"}}
				if of.install != (program{}) {
					runtime.InstallCommand = "install"
				}
				a := w.register(runtime)
				w.expectStatus(a, failedStatus)
				for _, part := range of.want {
					if !strings.Contains(a.GetReconciliationError(), part) {
						t.Errorf("the error %q does not have %q", a.GetReconciliationError(), part)
					}
				}
				if took := time.Since(begin).Truncate(time.Second); took != of.after {
					t.Errorf("it failed after %s, want %s", took, of.after)
				}
				synctest.Wait()
				if len(w.alive()) > 0 {
					t.Error("a process is left after the failure")
				}
			})
		})
	}
}

func TestFailedUpdateKeepsTheAcceptedConfiguration(t *testing.T) {
	for _, port := range []uint32{testPort, testPort + 1} {
		inWorld(t, nil, func(w *world) {
			w.programs["serve"] = program{}
			w.programs["broken"] = program{port: -1, life: time.Second, exit: computer.Exit{Status: 1}}
			w.register(&appv1.Runtime{Command: "serve"})
			w.offer(port)
			w.do(&appv1.UpdateApp{Command: proto.String("broken"), Port: &port})
			w.expectStatus(w.reconciled(), failedStatus)
			c, name := w.dial()
			c.Close()
			if name != "serve" {
				t.Errorf("with port %d, %q answers after the failure", port, name)
			}
			if crashes := w.state().GetCrashes(); len(crashes) > 0 {
				t.Errorf("the failure is recorded as a crash: %v", crashes)
			}
		})
	}
}

func TestBackOffAfterCrashes(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve"})
		w.mu.Lock()
		w.programs["serve"] = program{life: time.Millisecond * 100, exit: computer.Exit{Status: 1}}
		w.mu.Unlock()
		first := w.started()[0]
		first.fail <- computer.Exit{Status: 9}
		time.Sleep(5 * time.Minute) // at least 9 and at most 18 crashes, because the pauses are random; the app has the last 20
		all := w.started()
		for i, longest := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if got := all[i+1].at.Sub(all[i].at.Add(all[i].life)); (got < longest*time.Second/2 || got > longest*time.Second) && i > 0 {
				t.Errorf("the pause before start %d was %s, want at most %d s", i+1, got, longest)
			}
		}
		w.expectStatus(w.state(), reconciledStatus)
		if crashes := w.state().GetCrashes(); len(crashes) < 8 || crashes[0].GetReason() != "exit status 9" {
			t.Errorf("the crashes are %v", crashes)
		}
		// A process that runs for a while begins the pauses anew.
		w.mu.Lock()
		w.programs["serve"] = program{}
		w.mu.Unlock()
		time.Sleep(3 * time.Minute)
		healthy := w.alive()
		if len(healthy) != 1 {
			t.Fatalf("%d processes run", len(healthy))
		}
		at := time.Now()
		healthy[0].fail <- computer.Exit{Status: 1}
		time.Sleep(5 * time.Second)
		if again := w.alive(); len(again) != 1 || again[0].at.Sub(at) > time.Second {
			t.Errorf("the pause after a healthy time was not the first one")
		}
	})
}

// TestTimesAreOfTheNodesClock checks the times of crashes and of the lines of the log, with a machine's clock that is behind the node's clock.
func TestTimesAreOfTheNodesClock(t *testing.T) {
	const ahead = 24 * time.Hour
	inWorld(t, func(o *Options) { o.Clock = func() time.Time { return time.Now().Add(ahead) } }, func(w *world) {
		began := time.Now().Add(ahead).UnixMilli()
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve"})
		w.started()[0].fail <- computer.Exit{Status: 9}
		time.Sleep(time.Second)
		if all := w.state().GetCrashes(); len(all) != 1 || all[0].GetAt() < began {
			t.Errorf("after %d: %v", began, all)
		}
		read, release, err := w.s.Logs(testWorkspace, testApp)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		for _, line := range read(0, 100).Lines {
			if line.At < began {
				t.Errorf("before %d: %v", began, line)
			}
		}
	})
}

func TestStoppedComputerIsNoCrash(t *testing.T) {
	for _, reason := range []computer.EndReason{computer.EndedStopped, computer.EndedLost} {
		inWorld(t, nil, func(w *world) {
			w.programs["serve"] = program{}
			w.register(&appv1.Runtime{Command: "serve"})
			w.started()[0].fail <- computer.Exit{Reason: reason}
			// While it is replaced, it starts no processes.
			w.mu.Lock()
			w.refusal = &entity.Error{Code: entity.Unavailable, Message: "the computer is being replaced"}
			w.mu.Unlock()
			time.Sleep(5 * time.Minute)
			w.mu.Lock()
			w.refusal = nil
			w.mu.Unlock()
			time.Sleep(2 * time.Minute)
			if c, name := w.dial(); name != "serve" {
				t.Errorf("%q answers", name)
			} else {
				c.Close()
			}
			if crashes := w.state().GetCrashes(); len(crashes) > 0 {
				t.Errorf("%s is recorded as a crash: %v", reason, crashes)
			}
			w.expectStatus(w.state(), reconciledStatus)
		})
	}
}

func TestReconcilingSurvivesAStopOfTheComputer(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{after: 5 * time.Second, life: 2 * time.Second, exit: computer.Exit{Reason: computer.EndedStopped}}
		go func() {
			time.Sleep(time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.programs["serve"] = program{}
		}()
		w.expectStatus(w.register(&appv1.Runtime{Command: "serve"}), reconciledStatus)
	})
}

func TestSleep(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve", SleepAfterMs: 60_000})
		time.Sleep(50 * time.Second)
		c, _ := w.dial()
		time.Sleep(time.Hour)
		if w.state().GetAsleep() || len(w.alive()) != 1 {
			t.Fatal("an app with an open connection fell asleep")
		}
		c.Close()
		time.Sleep(59 * time.Second)
		if w.state().GetAsleep() {
			t.Fatal("the app fell asleep too early")
		}
		time.Sleep(2 * time.Second)
		if !w.state().GetAsleep() || len(w.alive()) != 0 {
			t.Fatal("the app did not fall asleep")
		}
		if _, err := w.s.Dial(w.t.Context(), testWorkspace, testApp); reasonOfDial(err) != ReasonStopped {
			t.Errorf("Dial to a sleeping app returned %v", err)
		}
		w.do(&appv1.WakeApp{})
		synctest.Wait()
		if c, name := w.dial(); name != "serve" {
			t.Errorf("%q answers", name)
		} else {
			c.Close()
		}
		if len(w.state().GetCrashes()) > 0 {
			t.Error("sleep is recorded as a crash")
		}
	})
}

// TestConnectionsDoNotReachAProcessThatFallsAsleep connects while the report of sleep is under way. The app is then known to be stopped,
// so that the caller wakes it.
func TestConnectionsDoNotReachAProcessThatFallsAsleep(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.mu.Lock()
		w.intercept = func(m proto.Message) error {
			if _, is := m.(*appv1.ReportAsleep); is {
				time.Sleep(5 * time.Second)
			}
			return nil
		}
		w.mu.Unlock()
		w.register(&appv1.Runtime{Command: "serve", SleepAfterMs: 60_000})
		time.Sleep(62 * time.Second)
		if w.state().GetAsleep() {
			t.Fatal("the report has arrived too early")
		}
		if _, err := w.s.Dial(w.t.Context(), testWorkspace, testApp); reasonOfDial(err) != ReasonStopped {
			t.Errorf("Dial to an app that falls asleep returned %v", err)
		}
	})
}

func TestDialWaitsForAStart(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{after: 5 * time.Second}
		go w.register(&appv1.Runtime{Command: "serve"})
		synctest.Wait()
		short, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if _, err := w.s.Dial(short, testWorkspace, testApp); reasonOfDial(err) != ReasonStarting {
			t.Errorf("Dial to a starting app returned %v", err)
		}
		c, _ := w.dial()
		c.Close()
		w.mu.Lock()
		w.programs["serve"] = program{port: -1, life: 1, exit: computer.Exit{Status: 1}}
		w.mu.Unlock()
		w.started()[0].fail <- computer.Exit{Status: 1}
		synctest.Wait()
		if _, err := w.s.Dial(w.t.Context(), testWorkspace, testApp); reasonOfDial(err) != ReasonFailed {
			t.Errorf("Dial to a crashed app returned %v", err)
		}
		if _, err := w.s.Dial(w.t.Context(), testWorkspace, "app_01jd0000000000000000000001"); reasonOfDial(err) != ReasonStopped {
			t.Errorf("Dial to another app returned %v", err)
		}
	})
}

// TestDisablingAtAnyMoment disables the app at every moment of a start, an update and a drain; inWorld then finds processes that are left.
func TestDisablingAtAnyMoment(t *testing.T) {
	for moment := time.Millisecond; moment <= 16*time.Second; moment += 500 * time.Millisecond {
		inWorld(t, nil, func(w *world) {
			w.programs["install"] = program{port: -1, life: time.Second, ignoresTerm: true}
			w.programs["serve"], w.programs["next"] = program{after: 2 * time.Second}, program{after: 2 * time.Second, ignoresTerm: true}
			go func() {
				time.Sleep(moment)
				w.do(&appv1.SetDisabled{Disabled: true})
			}()
			w.do(&appv1.RegisterApp{Registration: &appv1.Registration{
				AppId: testApp, Path: "site", Slug: "site",
				Runtime: &appv1.Runtime{Command: "serve", InstallCommand: "install", Port: testPort, ApiScopes: []string{"sessions"}},
			}})
			for i, command := range []string{"next", "serve", "next"} {
				time.Sleep(4 * time.Second)
				w.offer(testPort + uint32(i%2))
				_ = w.try(&appv1.UpdateApp{Command: proto.String(command), Port: proto.Uint32(testPort + uint32(i%2))})
			}
			time.Sleep(time.Minute)
			if left := w.alive(); len(left) > 0 {
				t.Errorf("disabled after %s: %d processes are left", moment, len(left))
			}
			if w.state().GetKey() != nil {
				t.Errorf("disabled after %s: the app has a key", moment)
			}
			if busy := w.state().GetPorts().GetBusy(); len(busy) > 0 {
				t.Errorf("disabled after %s: the ports %d are busy without a process", moment, busy)
			}
			w.do(&appv1.SetDisabled{Disabled: false})
			c, _ := w.dialWhenReady()
			c.Close()
		})
	}
}

// dialWhenReady waits until the executor runs, and connects to the app.
func (w *world) dialWhenReady() (net.Conn, string) {
	w.t.Helper()
	synctest.Wait()
	return w.dial()
}

func TestUsage(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.register(&appv1.Runtime{Command: "serve"})
		used, err := w.s.Usage(w.t.Context(), testWorkspace, testApp)
		if want := (computer.Usage{Group: "app:" + testApp, Processes: 1, Processor: time.Second, MemoryBytes: 1 << 10}); err != nil || used != want {
			t.Errorf("the usage is %v, %v; want %v", used, err, want)
		}
		w.do(&appv1.SetDisabled{Disabled: true})
		synctest.Wait()
		if used, err := w.s.Usage(w.t.Context(), testWorkspace, testApp); err != nil || used.Processes != 0 {
			t.Errorf("the usage of a disabled app is %v, %v", used, err)
		}
	})
}
