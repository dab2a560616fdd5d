package apps

// A state says whether an app has a process that accepts connections, and whether an attempt to start a process is running. The loop changes its
// state only by step, with the table moves. An event that the table does not have for a state is ignored.
type state string

const (
	// stateWaiting: no process runs. Dial waits, because a start follows: at once, after a pause, or when the app has a configuration to run.
	stateWaiting state = "waiting"
	// stateFailing: no process runs, because the process has crashed or has not started. Dial fails. A start follows after a pause, or when the
	// app has a different configuration.
	stateFailing state = "failing"
	// stateStarting: no process runs, and an attempt is running. Dial waits.
	stateStarting state = "starting"
	// stateRestarting: the process has crashed during an attempt, which continues. Dial fails.
	stateRestarting state = "restarting"
	// stateRunning: the process serves connections.
	stateRunning state = "running"
	// stateReplacing: the process serves connections until the process of the attempt replaces it.
	stateReplacing state = "replacing"
	// stateResting: the process is idle, and the app was told that it is to sleep. Dial waits until the process has ended or the app has answered
	// that it is awake, because the process is about to end.
	stateResting state = "resting"
	// stateClosed: the task has closed. No further event follows.
	stateClosed state = "closed"
)

// hasProcess reports whether the app has a current process.
func (s state) hasProcess() bool {
	return s == stateRunning || s == stateReplacing || s == stateResting
}

// condition returns the label of the state in the metrics.
func (s state) condition() string {
	switch {
	case s.hasProcess():
		return "ready"
	case s == stateFailing || s == stateRestarting:
		return "failing"
	default:
		return "starting"
	}
}

// An event is a change that a loop may react to.
type event string

const (
	// eventDue: the wanted configuration is to be started now.
	eventDue event = "due"
	// eventSuperseded: the configuration of the attempt is not the wanted configuration any more.
	eventSuperseded event = "superseded"
	// eventEvicted: the attempt ends the current process, because both need the same port of the computer.
	eventEvicted event = "evicted"

	// eventReady to eventLapsed are the results of an attempt. eventReady: the process of the accepted configuration accepts connections.
	// eventReconciled: the process of the requested configuration accepts connections.
	eventReady      event = "ready"
	eventReconciled event = "reconciled"
	// eventCanceled: the attempt has ended without a process, and its configuration is not wanted any more.
	eventCanceled event = "canceled"
	// eventInterrupted: the attempt is to be repeated, because the computer was stopped or cannot start processes at the moment.
	eventInterrupted event = "interrupted"
	// eventRefused: the requested configuration does not start; the accepted configuration is to run instead.
	eventRefused event = "refused"
	// eventRejected: the requested configuration does not start, and the app has no accepted configuration.
	eventRejected event = "rejected"
	// eventLapsed: the accepted configuration does not start.
	eventLapsed event = "lapsed"

	// eventEnded: the current process has ended. When its descendants have ended, one of the next three events follows.
	eventEnded event = "ended"
	// eventHalted: the process has ended because the computer was stopped or lost.
	eventHalted event = "halted"
	// eventCrashed: the process has ended by itself. eventLateCrash: it had run for Options.Healthy before.
	eventCrashed   event = "crashed"
	eventLateCrash event = "late crash"

	// eventIdle: the process was idle for as long as the app allows.
	eventIdle event = "idle"
	// eventAwake: the state of the app says that it is awake.
	eventAwake event = "awake"
	// eventClosed: the task has closed, and no attempt is running.
	eventClosed event = "closed"
)

// An action is a step that the loop performs after an event, when it is in the next state (perform).
type action string

const (
	actBegin  action = "begin an attempt"
	actCancel action = "cancel the attempt"
	// actDiscard ends the process that is not current any more, and returns when it has ended. actRetire ends it after its connections, and
	// returns at once. actEnd ends it, or leaves it to the supervisor.
	actDiscard action = "discard the old process"
	actRetire  action = "retire the old process"
	actEnd     action = "end the old process"
	// actAwaitRetired waits until all retired processes have ended.
	actAwaitRetired action = "await the retired processes"
	// actCloseRelays closes all relays except the relay of the current process.
	actCloseRelays action = "close relays"

	// actCountReady to actLog change the history, the metrics and the log.
	actCountReady     action = "count a start"
	actCountFailed    action = "count a failed start"
	actSucceed        action = "record the success"
	actRefuse         action = "refuse the generation"
	actForgetFailures action = "forget failures"
	// actCountFailure counts a failure of the accepted configuration, sets the time of the next start, and logs both.
	actCountFailure action = "count a failure"
	// actPause sets the time of the next start to the end of the first pause.
	actPause action = "pause"
	actLog   action = "log the reason"

	// A report to the app lasts until the app has answered it.
	actReportReconciled action = "report the success"
	actReportFailure    action = "report the failure"
	actReportCrash      action = "report the crash"
	actReportAsleep     action = "report that the app is to sleep"
)

// A move is a cell of the table: the next state, and the actions in their order.
type move struct {
	to      state
	actions []action
}

// to returns a move.
func to(s state, actions ...action) move { return move{s, actions} }

// moves is the table of transitions. A relay is closed before the report of a result, because after the report a different app may take the port;
// after a crash the same app keeps the port.
var moves = map[event]map[state]move{
	eventDue: {
		stateWaiting: to(stateStarting, actBegin),
		stateFailing: to(stateStarting, actBegin),
		stateRunning: to(stateReplacing, actBegin),
		stateResting: to(stateReplacing, actBegin),
	},
	eventSuperseded: {
		stateStarting:   to(stateStarting, actCancel),
		stateRestarting: to(stateRestarting, actCancel),
		stateReplacing:  to(stateReplacing, actCancel),
	},
	eventEvicted: {
		stateReplacing: to(stateStarting), // the attempt discards the process
	},
	eventReady:       afterAttempt(stateRunning, stateRunning, actRetire, actCloseRelays, actCountReady, actSucceed),
	eventReconciled:  afterAttempt(stateRunning, stateRunning, actRetire, actCloseRelays, actCountReady, actSucceed, actReportReconciled),
	eventRefused:     afterAttempt(stateWaiting, stateWaiting, actCountFailed, actRefuse, actLog, actCloseRelays, actReportFailure),
	eventRejected:    afterAttempt(stateFailing, stateFailing, actCountFailed, actRefuse, actLog, actCloseRelays, actReportFailure),
	eventLapsed:      afterAttempt(stateFailing, stateFailing, actCountFailed, actCountFailure, actReportCrash, actCloseRelays),
	eventInterrupted: afterAttempt(stateWaiting, stateFailing, actLog, actPause, actCloseRelays),
	eventCanceled:    afterAttempt(stateWaiting, stateFailing, actCloseRelays),
	eventEnded: {
		stateRunning:   to(stateFailing, actCloseRelays, actDiscard),
		stateResting:   to(stateFailing, actCloseRelays, actDiscard),
		stateReplacing: to(stateRestarting, actDiscard), // the attempt has relays
	},
	eventHalted: {
		stateFailing:    to(stateWaiting, actLog, actPause),
		stateRestarting: to(stateStarting, actLog, actPause),
	},
	eventCrashed: {
		stateFailing:    to(stateFailing, actCountFailure, actReportCrash),
		stateRestarting: to(stateRestarting, actCountFailure, actReportCrash),
	},
	eventLateCrash: {
		stateFailing:    to(stateFailing, actForgetFailures, actCountFailure, actReportCrash),
		stateRestarting: to(stateRestarting, actForgetFailures, actCountFailure, actReportCrash),
	},
	eventIdle: {
		stateRunning: to(stateResting, actReportAsleep),
		stateResting: to(stateResting, actReportAsleep), // the app has not accepted the last report
	},
	eventAwake: {
		stateResting: to(stateRunning),
	},
	eventClosed: {
		stateWaiting: to(stateClosed, actCloseRelays, actAwaitRetired),
		stateFailing: to(stateClosed, actCloseRelays, actAwaitRetired),
		stateRunning: to(stateClosed, actCloseRelays, actEnd, actAwaitRetired),
		stateResting: to(stateClosed, actCloseRelays, actEnd, actAwaitRetired),
	},
}

// afterAttempt returns the moves of a result of an attempt. starting is the next state after stateStarting, restarting the next state after
// stateRestarting. After stateReplacing, a process runs: the process of the attempt, or the process that the attempt was to replace.
func afterAttempt(starting, restarting state, actions ...action) map[state]move {
	return map[state]move{
		stateStarting:   to(starting, actions...),
		stateRestarting: to(restarting, actions...),
		stateReplacing:  to(stateRunning, actions...),
	}
}

// transition returns the next state after an event, and the actions in their order. It returns false, and the same state, if the
// event is ignored in this state.
func transition(s state, e event) (state, []action, bool) {
	m, found := moves[e][s]
	if !found {
		return s, nil, false
	}
	return m.to, m.actions, true
}
