package apps

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var allStates = []state{stateWaiting, stateFailing, stateStarting, stateRestarting, stateRunning, stateReplacing, stateResting, stateClosed}

// attempting has the states in which an attempt is running.
var attempting = []state{stateStarting, stateRestarting, stateReplacing}

// A row has all cells of an event.
type row struct {
	event event
	// next has the next state for each state, in the order of allStates; "-": the event is ignored, and the state remains.
	next string
	// actions has the actions of all cells, in their order. but has the cells with different actions.
	actions string
	but     map[state]string
}

// rows is the whole table, in the form in which TestTransitions reads it.
var rows = []row{
	//                 waiting    failing    starting   restarting running    replacing  resting    closed
	{event: eventDue,
		next:    "starting   starting   -          -          replacing  -          replacing  -",
		actions: "begin an attempt"},
	{event: eventSuperseded,
		next:    "-          -          starting   restarting -          replacing  -          -",
		actions: "cancel the attempt"},
	{event: eventEvicted,
		next: "-          -          -          -          -          starting   -          -"},
	{event: eventReady,
		next:    "-          -          running    running    -          running    -          -",
		actions: "retire the old process, close relays, count a start, record the success"},
	{event: eventReconciled,
		next:    "-          -          running    running    -          running    -          -",
		actions: "retire the old process, close relays, count a start, record the success, report the success"},
	{event: eventCanceled,
		next:    "-          -          waiting    failing    -          running    -          -",
		actions: "close relays"},
	{event: eventInterrupted,
		next:    "-          -          waiting    failing    -          running    -          -",
		actions: "log the reason, pause, close relays"},
	{event: eventRefused,
		next:    "-          -          waiting    waiting    -          running    -          -",
		actions: "count a failed start, refuse the generation, log the reason, close relays, report the failure"},
	{event: eventRejected,
		next:    "-          -          failing    failing    -          running    -          -",
		actions: "count a failed start, refuse the generation, log the reason, close relays, report the failure"},
	{event: eventLapsed,
		next:    "-          -          failing    failing    -          running    -          -",
		actions: "count a failed start, count a failure, report the crash, close relays"},
	{event: eventEnded,
		next:    "-          -          -          -          failing    restarting failing    -",
		actions: "close relays, discard the old process",
		but:     map[state]string{stateReplacing: "discard the old process"}},
	{event: eventHalted,
		next:    "-          waiting    -          starting   -          -          -          -",
		actions: "log the reason, pause"},
	{event: eventCrashed,
		next:    "-          failing    -          restarting -          -          -          -",
		actions: "count a failure, report the crash"},
	{event: eventLateCrash,
		next:    "-          failing    -          restarting -          -          -          -",
		actions: "forget failures, count a failure, report the crash"},
	{event: eventIdle,
		next:    "-          -          -          -          resting    -          resting    -",
		actions: "report that the app is to sleep"},
	{event: eventAwake,
		next: "-          -          -          -          -          -          running    -"},
	{event: eventClosed,
		next:    "closed     closed     -          -          closed     -          closed     -",
		actions: "close relays, await the retired processes",
		but: map[state]string{
			stateRunning: "close relays, end the old process, await the retired processes",
			stateResting: "close relays, end the old process, await the retired processes",
		}},
}

func joined(actions []action) string {
	var all []string
	for _, a := range actions {
		all = append(all, string(a))
	}
	return strings.Join(all, ", ")
}

// TestTransitions compares every cell of the table, with the order of the actions. An event that cannot happen in a state is ignored: the state
// remains, and nothing is done.
func TestTransitions(t *testing.T) {
	var events []event
	for _, r := range rows {
		events = append(events, r.event)
		next := strings.Fields(r.next)
		if len(next) != len(allStates) {
			t.Fatalf("the row of %q has %d cells", r.event, len(next))
		}
		for i, from := range allStates {
			want := fmt.Sprintf("%s, true: %s", next[i], r.actions)
			if other, differs := r.but[from]; differs {
				want = fmt.Sprintf("%s, true: %s", next[i], other)
			}
			if next[i] == "-" {
				want = fmt.Sprintf("%s, false: ", from)
			}
			to, actions, isMove := transition(from, r.event)
			if got := fmt.Sprintf("%s, %v: %s", to, isMove, joined(actions)); got != want {
				t.Errorf("%s, %s:\n got %q\nwant %q", from, r.event, got, want)
			}
		}
	}
	slices.Sort(events)
	if known := slices.Sorted(maps.Keys(moves)); !slices.Equal(known, events) {
		t.Errorf("the events of the table are %q, tested are %q", known, events)
	}
	for e, of := range moves {
		for from, m := range of {
			if !slices.Contains(allStates, from) || !slices.Contains(allStates, m.to) {
				t.Errorf("%s, %s: the state %s or %s is not tested", from, e, from, m.to)
			}
		}
	}
}

// TestUnknownEvent expects that an event, or a state, that the table does not have does nothing.
func TestUnknownEvent(t *testing.T) {
	for _, of := range []struct {
		state state
		event event
	}{{stateRunning, "unknown"}, {"unknown", eventDue}} {
		if to, actions, isMove := transition(of.state, of.event); to != of.state || actions != nil || isMove {
			t.Errorf("%s, %s: %s, %q, %v", of.state, of.event, to, actions, isMove)
		}
	}
}

// TestLawsOfTransitions makes random sequences of events, and checks the obligations that every cell has.
func TestLawsOfTransitions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	visited := map[state]bool{}
	for range 500 {
		at := stateWaiting
		hasAttempt, hasProcess := false, false
		for range 60 {
			e := rows[random.IntN(len(rows))].event
			next, actions, isMove := transition(at, e)
			if !isMove {
				continue
			}
			begins, closes := slices.Contains(actions, actBegin), slices.Index(actions, actCloseRelays)
			report := slices.IndexFunc(actions, func(a action) bool { return a == actReportReconciled || a == actReportFailure })
			ends := slices.Contains(actions, actDiscard) || slices.Contains(actions, actEnd) || slices.Contains(actions, actRetire)
			switch {
			case begins && (hasAttempt || !slices.Contains(attempting, next)):
				t.Fatalf("%s, %s: an attempt begins, and the state is %s", at, e, next)
			case hasAttempt && !slices.Contains(attempting, next) && closes < 0:
				t.Fatalf("%s, %s: the relay of the attempt is not closed", at, e)
			case closes >= 0 && slices.Contains(attempting, next):
				t.Fatalf("%s, %s: the relay of the attempt is closed", at, e)
			case report >= 0 && report < closes:
				t.Fatalf("%s, %s: the result is reported before the relays are closed", at, e)
			case hasProcess && !next.hasProcess() && !ends && e != eventEvicted:
				t.Fatalf("%s, %s: the process is forgotten", at, e)
			case !hasProcess && next.hasProcess() && e != eventReady && e != eventReconciled:
				t.Fatalf("%s, %s: a process appears", at, e)
			}
			at, hasAttempt, hasProcess = next, slices.Contains(attempting, next), next.hasProcess()
			visited[at] = true
		}
		if _, _, isMove := transition(at, eventClosed); !isMove && !hasAttempt && at != stateClosed {
			t.Fatalf("the task of an app cannot close in the state %s", at)
		}
	}
	if len(visited) != len(allStates) {
		t.Errorf("only the states %v were reached", slices.Sorted(maps.Keys(visited)))
	}
}

func TestConditionOfStates(t *testing.T) {
	for s, want := range map[state]string{
		stateWaiting: "starting", stateStarting: "starting", stateClosed: "starting", stateFailing: "failing", stateRestarting: "failing",
		stateRunning: "ready", stateReplacing: "ready", stateResting: "ready",
	} {
		if got := s.condition(); got != want {
			t.Errorf("%s is counted as %s, want %s", s, got, want)
		}
	}
}
