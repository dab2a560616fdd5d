// Package app implements the rules of apps: folders of a drive with a command that serves HTTP.
//
//	         RegisterApp                       ReportReconciled
//	(none) ──────────────► reconciling ─────────────────────────────► reconciled
//	                        ▲   ▲   │ ReportReconciled: failure             │
//	                        │   │   └────────────────────► failed           │
//	                        │   └── UpdateApp, RestartApp ───┘              │
//	                        └─────── UpdateApp, RestartApp ─────────────────┘
//
// A configuration of the runtime has a number, its generation. The requested one is tried while the accepted one runs; if it fails,
// the accepted one continues, and a later update tries again (runtime.go). Beside this status, an app may run or not:
//
//   - The task RunTask is open while the app may run: it is neither disabled, nor suspended with its workspace (halted), nor being
//     removed, its folder exists, and it is not asleep. Its executor runs the process, and ends it when the task closes.
//   - RemoveApp closes it and opens StopTask. ReportStopped then removes the app, or keeps it registered if its process
//     could not be ended (lifecycle.go). StopTask is open, too, while the app does not run and has ports that may be busy.
//   - The process has a key if its configuration has scopes. No key is valid while the app may not run (keys.go).
//
// The settings of the runtime, such as the time of a response, say how the platform treats the process. They belong to no configuration: a
// change of them starts no process.
//
// An app is owned by its workspace, which reserves the slug, the path and the ports in the app's anchor. Registering an app is a chain
// of commands over two entities:
//
//  1. A member sends RegisterApp to the workspace: AnchorCreated, or a refusal.
//  2. React of the workspace sends RegisterApp to the app: AppRegistered, which opens RunTask.
//  3. The executor reports with ReportReconciled: RuntimeReconciled or RuntimeFailed. The member waits for it with AwaitApp.
//  4. React sends ReleaseAppPorts to the workspace, which ends the reservations of ports that the app does not use (ports.go).
//
// Moves and breaks of the anchor, and suspensions, follow from events of the workspace in the same way. A custom domain is a chain
// between the app and the binding of the host name (domain.go). Lists and audit rows are in lists.go, the permissions in access.go.
package app

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// The kinds of the tasks of an app.
const (
	// RunTask runs the process of an app. Its message is an appv1.RunTask. No command completes it: it closes when the app may not run.
	RunTask = "app.run"
	// StopTask confirms that no process of the app is left, which is being removed or does not run. Its message is an appv1.StopTask,
	// and ReportStopped completes it.
	StopTask = "app.stop"
)

// runTaskID is the ID of the RunTask: an app has at most one.
const runTaskID = "run"

// The short names of statuses and states.
const (
	reconciling = appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING
	reconciled  = appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED
	failed      = appv1.RuntimeStatus_RUNTIME_STATUS_FAILED

	removing = appv1.DomainStatus_DOMAIN_STATUS_REMOVING
)

// Kind describes apps to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of apps.
var Rules = entity.Rules[*appv1.App, appv1.Command, appv1.Event]{
	Name: entity.KindApp, Owner: entity.KindWorkspace, Version: 2, Zero: Zero, Access: accessOf, Decide: Decide, Evolve: Evolve, Reply: Reply,
	Rows: Rows, Tasks: Tasks, Timers: Timers, Pauses: map[string]time.Duration{portsTimer: OfferTime}, Waits: Waits, React: React,
	Exposed: []appv1.Event{
		&appv1.AppRegistered{}, &appv1.RuntimeReconciled{}, &appv1.RuntimeFailed{}, &appv1.VisibilityChanged{},
		&appv1.RuntimeSettingsChanged{}, &appv1.AppDisabled{}, &appv1.AppEnabled{}, &appv1.AppHalted{}, &appv1.AppSlept{},
		&appv1.AppWoken{}, &appv1.AnchorFollowed{}, &appv1.RemovalRequested{}, &appv1.RemovalFailed{}, &appv1.AppRemoved{},
		&appv1.DomainRequested{}, &appv1.DomainReported{}, &appv1.DomainRemovalRequested{}, &appv1.DomainRefused{}, &appv1.DomainReleased{},
	},
	Unexposed: []appv1.Event{
		&appv1.MetadataChanged{}, &appv1.RuntimeRequested{}, &appv1.PortOffered{}, &appv1.PortsReleased{}, &appv1.KeyIssued{},
		&appv1.KeyRevoked{}, &appv1.InvitingEnded{}, &appv1.AppCrashed{}, &appv1.DomainRecheckRequested{},
	},
}

// Zero returns the state before the first event. The identity is <workspace id>/<app id>.
func Zero(identity string) *appv1.App {
	workspaceID, id := SplitIdentity(identity)
	return &appv1.App{Id: id, WorkspaceId: workspaceID}
}

// Decide turns a command into events. It returns no events and no error if the state is already as the command requires, or if the
// command is a query. Errors: not_found if the app does not exist any more, and the errors of the rules.
func Decide(call entity.Call, s *appv1.App, c appv1.Command) ([]appv1.Event, error) {
	if done, err := decideAbsent(s, c); done {
		return nil, err
	}
	events, err := decide(call, s, c)
	if mayInvite(s) && !mayInvite(evolveAll(s, events)) {
		events = append(events, &appv1.InvitingEnded{At: call.At()})
	}
	return events, err
}

func evolveAll(s *appv1.App, events []appv1.Event) *appv1.App {
	for _, e := range events {
		s = Evolve(s, e)
	}
	return s
}

// decide is Decide for an app that is registered, or for its registration.
func decide(call entity.Call, s *appv1.App, c appv1.Command) ([]appv1.Event, error) {
	switch c := c.(type) {
	case *appv1.RegisterApp:
		return register(call, s, c), nil
	case *appv1.UpdateApp:
		return update(call, s, c)
	case *appv1.RestartApp:
		return restart(call, s)
	case *appv1.SetVisibility:
		return setVisibility(call, s, c)
	case *appv1.SetDisabled:
		return setDisabled(call, s, c)
	case *appv1.SetRuntimeSettings:
		return setRuntimeSettings(call, s, c)
	case *appv1.RemoveApp:
		return remove(call, s, c)
	case *appv1.AttachDomain:
		return attachDomain(call, s, c)
	case *appv1.RecheckDomain:
		return recheckDomain(call, s)
	case *appv1.RemoveDomain:
		return removeDomain(call, s), nil
	case *appv1.FollowAnchor:
		return followAnchor(call, s, c), nil
	case *appv1.HaltApp:
		return halt(call, s, c), nil
	case *appv1.WakeApp:
		return wake(call, s), nil
	case *appv1.ReportAsleep:
		return reportAsleep(call, s, c), nil
	case *appv1.IssueKey:
		return issueKey(call, s, c)
	case *appv1.OfferPort:
		return offerPort(call, s, c), nil
	case *appv1.ExpirePorts:
		return expirePorts(call, s), nil
	case *appv1.ReportFreePorts:
		return reportFreePorts(s, c), nil
	case *appv1.ReportReconciled:
		return reportReconciled(call, s, c), nil
	case *appv1.ReportCrash:
		return reportCrash(call, s, c), nil
	case *appv1.ReportStopped:
		return reportStopped(call, s, c), nil
	case *appv1.ReportDomain:
		return reportDomain(s, c), nil
	case *appv1.ReportDomainRefused:
		return reportDomainRefused(s, c), nil
	case *appv1.ReportDomainReleased:
		return reportDomainReleased(call, s, c), nil
	case *appv1.DescribeApp, *appv1.AwaitApp, *appv1.AwaitRuntime:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindApp, c)
}

// decideAbsent decides a command to an app that was never registered or is removed. done reports whether it has decided the command;
// if not, the rule of the command decides it.
func decideAbsent(s *appv1.App, c appv1.Command) (done bool, err error) {
	if isRegistered(s) {
		return false, nil
	}
	switch c := c.(type) {
	case *appv1.RegisterApp:
		return s.GetRemoved(), nil
	case *appv1.RemoveApp:
		return true, nil
	case *appv1.AwaitApp:
		if c.GetRemoval() && s.GetRemoved() {
			return true, nil
		}
		return true, errNotFound
	case *appv1.FollowAnchor, *appv1.HaltApp, *appv1.ReportAsleep, *appv1.ReportReconciled, *appv1.ReportCrash, *appv1.ReportStopped,
		*appv1.ReportDomain, *appv1.ReportDomainRefused, *appv1.ReportDomainReleased, *appv1.OfferPort, *appv1.ExpirePorts,
		*appv1.ReportFreePorts:
		// Commands of the platform may arrive after the removal. They succeed without effect.
		return true, nil
	default:
		return true, errNotFound
	}
}

// Waits reports whether the answer to a query must wait, see the messages AwaitApp and AwaitRuntime. A query that is refused does not
// wait.
func Waits(_ entity.Call, s *appv1.App, c appv1.Command) bool {
	if !isRegistered(s) {
		return false
	}
	switch c := c.(type) {
	case *appv1.AwaitApp:
		d := s.GetDomain()
		return s.GetRuntimeStatus() == reconciling && s.GetGeneration() <= c.GetGeneration() && mayRun(s) ||
			c.GetRemoval() && s.GetRemoval() != nil ||
			c.GetDomainId() != "" && d.GetId() == c.GetDomainId() && !d.GetClaimed() && d.GetStatus() != removing
	case *appv1.AwaitRuntime:
		return s.GetRevision() <= c.GetRevision()
	default:
		return false
	}
}

// Reply returns the answer to a command; s is the state after the events.
func Reply(call entity.Call, s *appv1.App, c appv1.Command, _ []appv1.Event) proto.Message {
	switch c.(type) {
	case *appv1.UpdateApp, *appv1.RestartApp, *appv1.SetVisibility, *appv1.SetDisabled, *appv1.SetRuntimeSettings, *appv1.RemoveApp,
		*appv1.DescribeApp, *appv1.AwaitApp, *appv1.AwaitRuntime, *appv1.AttachDomain, *appv1.RecheckDomain, *appv1.RemoveDomain, *appv1.WakeApp,
		*appv1.ReportReconciled:
		return &appv1.Description{App: s, Controls: ControlsOf(call, s)}
	case *appv1.IssueKey:
		return s.GetKey()
	case *appv1.RegisterApp, *appv1.FollowAnchor, *appv1.HaltApp, *appv1.ReportAsleep, *appv1.ReportCrash, *appv1.ReportStopped,
		*appv1.ReportDomain, *appv1.ReportDomainRefused, *appv1.ReportDomainReleased, *appv1.OfferPort, *appv1.ExpirePorts,
		*appv1.ReportFreePorts:
	}
	return &wirev1.Done{}
}

// Tasks returns the task that runs the process, or the task that confirms its end: for a removal, and for ports that may be busy.
func Tasks(s *appv1.App) []entity.Task {
	switch {
	case s.GetRemoval() != nil:
		id := s.GetRemoval().GetTaskId()
		return []entity.Task{{Kind: StopTask, ID: id, Message: &appv1.StopTask{TaskId: id}}}
	case mayRun(s) && !s.GetAsleep() && (s.GetAccepted() != nil || s.GetRuntimeStatus() == reconciling):
		return []entity.Task{{Kind: RunTask, ID: runTaskID, Message: &appv1.RunTask{}}}
	case isRegistered(s) && len(s.GetPorts().GetBusy()) > 0:
		id := portsTaskID(s)
		return []entity.Task{{Kind: StopTask, ID: id, Message: &appv1.StopTask{TaskId: id, Remains: true}}}
	default:
		return nil
	}
}

// portsTaskID returns the ID of the task that confirms that no process is left on the busy ports. It changes with each generation, after
// which other ports may be busy.
func portsTaskID(s *appv1.App) string { return "ports-" + strconv.FormatUint(s.GetGeneration(), 10) }

func isRegistered(s *appv1.App) bool { return s.GetCreatedAt() != 0 && !s.GetRemoved() }

// mayRun reports whether the process of the app may run. An app that is asleep may: it runs again when it is needed.
func mayRun(s *appv1.App) bool {
	return isEnabled(s) && !s.GetHalted()
}

// isEnabled reports whether the process of the app may run while the workspace is not suspended.
func isEnabled(s *appv1.App) bool {
	return isRegistered(s) && s.GetRemoval() == nil && s.GetDisabledAt() == 0 && s.GetFolderState() == appv1.FolderState_FOLDER_STATE_ACTIVE
}
