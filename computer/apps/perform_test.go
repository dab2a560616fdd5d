package apps

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// A recorder is an app that accepts each report.
type recorder struct{ got []proto.Message }

// Ask implements entity.Asker.
func (r *recorder) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	r.got = append(r.got, c.Message)
	return &appv1.Description{}, nil
}

// Settle implements entity.AskSettler.
func (*recorder) Settle(context.Context, string, string) error { return nil }

// counted returns the values of the counters of a supervisor.
func counted(t *testing.T, s *Supervisor) (ready, failed, crashes float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.metrics.starts, s.metrics.crashes)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch {
			case family.GetName() == "atelier_app_crashes_total":
				crashes = m.GetCounter().GetValue()
			case m.GetLabel()[0].GetValue() == "ready":
				ready = m.GetCounter().GetValue()
			default:
				failed = m.GetCounter().GetValue()
			}
		}
	}
	return ready, failed, crashes
}

// withLoop calls a test with a loop in a state. The app of the loop accepts each report. The loop has a process if the state has a process.
func withLoop(t *testing.T, at state, test func(t *testing.T, r *runState, app *recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		app := &recorder{}
		w := &world{
			t: t, programs: map[string]program{"serve": {port: -1}, "stay": {port: -1, ignoresTerm: true}}, listening: network{},
		}
		r := &runState{loop: New(Options{Asker: app, Computers: w, Dir: t.TempDir()}).newLoop("ws/app")}
		var err error
		if r.log, err = r.s.logs.acquire("app"); err != nil {
			t.Fatal(err)
		}
		r.state = at
		if at.hasProcess() {
			r.current = launched(t, r.loop, "serve")
		}
		test(t, r, app)
		for _, p := range w.alive() {
			_ = p.End(t.Context())
		}
		r.draining.Wait()
		r.s.logs.release(r.log)
	})
}

// launched starts a process for a loop.
func launched(t *testing.T, l *loop, command string) *instance {
	t.Helper()
	p, err := l.s.o.Computers.Launch(t.Context(), Launch{Argv: []string{command}})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Streams().Stdout.Close()
	i := &instance{l: l, process: p, generation: 3, closed: make(chan struct{}), used: time.Now()}
	i.watch()
	return i
}

// A cell is an event in a state, with the move of the table.
type cell struct {
	from, next state
	event      event
	actions    []action
	isMove     bool
}

func (c cell) count(a action) (n int) {
	for _, done := range c.actions {
		if done == a {
			n++
		}
	}
	return n
}

// TestEffects feeds each event in each state, and compares the effects with the actions of the cell. An event that is ignored changes nothing.
func TestEffects(t *testing.T) {
	for _, row := range rows {
		for _, from := range allStates {
			c := cell{from: from, event: row.event}
			c.next, c.actions, c.isMove = transition(from, row.event)
			t.Run(string(from)+"/"+string(row.event), func(t *testing.T) {
				withLoop(t, from, c.test)
			})
		}
	}
}

func (c cell) test(t *testing.T, r *runState, app *recorder) {
	r.past = history{failures: 2, refused: 1, reconciled: 1}
	before, old, retired, canceled := r.past, r.current, launched(t, r.loop, "stay"), 0
	r.retire(retired)
	if _, err := r.openRelay(t.Context(), testPort+1); err != nil {
		t.Fatal(err)
	}
	r.target.wanted = &configuration{generation: 3, isRequested: true}
	if slices.Contains(attempting, c.from) {
		r.attempt = &attempt{cancel: func() { canceled++ }}
	}
	o := occurrence{event: c.event, reason: "why", configuration: configuration{
		generation: 3, isRequested: c.event != eventReady && c.event != eventDue, runtime: &appv1.Runtime{Command: "unknown", Port: testPort},
	}}
	if c.event == eventReady || c.event == eventReconciled {
		o.started = &instance{l: r.loop}
	}
	at := time.Now()
	if isMove := r.feed(t.Context(), o); isMove != c.isMove || r.state != c.next {
		t.Errorf("the state is %s, the event made a move: %v", r.state, isMove)
	}
	if hasEnded := isClosed(retired.gone); hasEnded != (c.count(actAwaitRetired) > 0) {
		t.Errorf("the retired process has ended: %v", hasEnded)
	}
	if isOpen := len(r.relays) > 0; isOpen != (c.count(actCloseRelays) == 0) {
		t.Errorf("the relay of the attempt is open: %v", isOpen)
	}
	if isRequested := r.target.wanted.isRequested; isRequested != (c.count(actReportReconciled) == 0) {
		t.Errorf("the configuration is still to be reconciled: %v", isRequested)
	}
	if r.asleep.IsZero() != (c.count(actReportAsleep) == 0) {
		t.Errorf("the time of the report of sleep is %s", r.asleep)
	}
	if canceled != c.count(actCancel) {
		t.Errorf("the attempt was canceled %d times", canceled)
	}
	if c.count(actBegin) > 0 {
		<-r.attempt.done // the attempt fails, because the program is unknown
		r.attempt.cancel()
	}
	r.draining.Wait()
	c.expectCounts(t, r, app)
	if want := c.history(r, before, at, o.configuration); r.past != want {
		t.Errorf("the history is %+v, want %+v", r.past, want)
	}
	c.expectProcess(t, r, old, o.started)
	r.current = nil
	r.closeRelays()
}

// expectCounts compares the metrics, the reports and the log with the actions.
func (c cell) expectCounts(t *testing.T, r *runState, app *recorder) {
	ready, failed, crashes := counted(t, r.s)
	if int(ready) != c.count(actCountReady) || int(failed) != c.count(actCountFailed) || int(crashes) != c.count(actCountFailure) {
		t.Errorf("%v starts, %v failed starts and %v crashes are counted", ready, failed, crashes)
	}
	var got, want []string
	for _, m := range app.got {
		got = append(got, string(m.ProtoReflect().Descriptor().Name()))
	}
	for _, a := range c.actions {
		switch a {
		case actReportReconciled, actReportFailure:
			want = append(want, "ReportReconciled")
		case actReportCrash:
			want = append(want, "ReportCrash")
		case actReportAsleep:
			want = append(want, "ReportAsleep")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the reports are %q, want %q", got, want)
	}
	if isLogged := strings.Contains(textOf(r.log), "why"); isLogged != (c.count(actLog)+c.count(actCountFailure) > 0) {
		t.Errorf("the log is %q", textOf(r.log))
	}
}

// history returns the history after the actions, which were performed at a time. It takes the time of the next start after a failure, which is random, from the loop.
func (c cell) history(r *runState, h history, at time.Time, of configuration) history {
	for _, a := range c.actions {
		switch a {
		case actForgetFailures:
			h.failures = 0
		case actCountFailure:
			h.countFailure(r.past.retryAt, of.generation, func(int) time.Duration { return 0 })
		case actPause:
			h.delay(at.Add(r.s.o.FirstPause), of.generation)
		case actRefuse:
			h.refused = of.generation
		case actSucceed:
			h.succeed(of)
		}
	}
	return h
}

// expectProcess expects that the loop has a process if its state has a process, and that the old process has ended if the loop does not have the
// old process any more. The attempt that has caused eventEvicted ends the process itself.
func (c cell) expectProcess(t *testing.T, r *runState, old, started *instance) {
	if hasProcess := r.current != nil; hasProcess != c.next.hasProcess() {
		t.Errorf("in the state %s, the loop has a process: %v", c.next, hasProcess)
	}
	if started != nil && c.isMove != (r.current == started) {
		t.Errorf("the process of the attempt is the current process: %v", r.current == started)
	}
	if old != nil {
		synctest.Wait()
		if hasEnded, isOld := isClosed(old.gone), r.current != old && c.event != eventEvicted; hasEnded != isOld {
			t.Errorf("the old process has ended: %v, want %v", hasEnded, isOld)
		}
	}
}

func textOf(l *appLog) string {
	var text strings.Builder
	for _, line := range l.read(0, maxLines).Lines {
		text.WriteString(line.Text + "\n")
	}
	return text.String()
}

// TestCrashesAtTheSameTime has a process that crashes again while the clock stands still. Each crash is counted and reported.
func TestCrashesAtTheSameTime(t *testing.T) {
	withLoop(t, stateFailing, func(t *testing.T, r *runState, app *recorder) {
		began := time.Now()
		for range 3 {
			r.feed(t.Context(), occurrence{event: eventCrashed, configuration: configuration{generation: 3}, reason: "exit status 1"})
		}
		if time.Now() != began {
			t.Fatal("the clock has moved")
		}
		if _, _, crashes := counted(t, r.s); r.past.failures != 3 || crashes != 3 || len(app.got) != 3 || !r.past.retryAt.After(began) {
			t.Errorf("%d failures, %v crashes, %d reports, the next start is at %s", r.past.failures, crashes, len(app.got), r.past.retryAt)
		}
	})
}

// TestConnectionBeforeRest makes a connection after the loop has seen that the process is idle. The app must not be told to sleep.
func TestConnectionBeforeRest(t *testing.T) {
	withLoop(t, stateRunning, func(t *testing.T, r *runState, app *recorder) {
		r.current.enter()
		if r.feed(t.Context(), occurrence{event: eventIdle}) || r.state != stateRunning || len(app.got) > 0 {
			t.Errorf("the state is %s, the app got %d reports", r.state, len(app.got))
		}
		r.current.leave()
		if !r.feed(t.Context(), occurrence{event: eventIdle}) || r.state != stateResting || len(app.got) != 1 {
			t.Errorf("without the connection, the state is %s, the app got %d reports", r.state, len(app.got))
		}
	})
}

// TestDialInEachState expects that a connection waits while a start follows or the process is about to end, and fails after a crash.
func TestDialInEachState(t *testing.T) {
	for at, want := range map[state]string{
		stateWaiting: "waits", stateStarting: "waits", stateResting: "waits", stateClosed: "waits",
		stateFailing: ReasonFailed, stateRestarting: ReasonFailed,
		stateRunning: "connects", stateReplacing: "connects",
	} {
		withLoop(t, at, func(t *testing.T, r *runState, _ *recorder) {
			if at.hasProcess() {
				r.current.port = testPort
				r.current.process.(*fakeProcess).network[testPort] = func(c net.Conn) { _ = c.Close() }
			}
			c, retry, err := r.dial(t.Context())
			got := reasonOfDial(err)
			switch {
			case err == nil:
				got = "connects"
				_ = c.Close()
			case retry != nil:
				got = "waits"
			}
			if got != want {
				t.Errorf("%s: a connection %s (%v), want %s", at, got, err, want)
			}
			if retry != nil {
				r.feed(t.Context(), occurrence{event: eventAwake})
				if isWoken := isClosed(retry); isWoken != (at == stateResting) {
					t.Errorf("%s: the connection is woken: %v", at, isWoken)
				}
			}
		})
	}
}
