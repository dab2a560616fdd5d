package tools

import (
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// AppView describes an app. Texts of an app in a list are shorter.
type AppView struct {
	AppID string `json:"appId"`
	Slug  string `json:"slug"`
	Name  string `json:"name,omitzero"`
	Path  string `json:"path"`
	// CanonicalURL is the address of the app.
	CanonicalURL string `json:"canonicalUrl"`
	// Status is reconciling, reconciled or reconcile_failed.
	Status string `json:"status"`
	// Reason says why the computer has refused the last configuration.
	Reason string `json:"reason,omitzero"`
	// Visibility is folder, for members of the workspace, or public.
	Visibility string `json:"visibility"`
	// Stopped says why the app is not served: disabled, suspended or no_folder; Asleep that its process starts at the next request.
	Stopped string `json:"stopped,omitzero"`
	Asleep  bool   `json:"asleep,omitzero"`
	// Crashes is the number of the recent unexpected ends of the process, and LastCrash the last one.
	Crashes   int             `json:"crashes,omitzero"`
	LastCrash *CrashView      `json:"lastCrash,omitzero"`
	Runtime   *AppRuntimeView `json:"runtime,omitzero"`
}

// CrashView describes an unexpected end of the process of an app.
type CrashView struct {
	At     int64  `json:"at"`
	Reason string `json:"reason"`
}

// AppRuntimeView is a configuration of an app: the accepted one, or the requested one if none is accepted yet.
type AppRuntimeView struct {
	Command           string   `json:"command"`
	InstallCommand    string   `json:"installCommand,omitzero"`
	Port              uint32   `json:"port"`
	APIScopes         []string `json:"apiScopes"`
	SleepAfterSeconds int64    `json:"sleepAfterSeconds,omitzero"`
	// Truncated reports that the end of a command was left out.
	Truncated bool `json:"truncated,omitzero"`
}

var appStatusNames = map[appv1.RuntimeStatus]string{
	appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING: "reconciling",
	appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED:  "reconciled",
	appv1.RuntimeStatus_RUNTIME_STATUS_FAILED:      "reconcile_failed",
}

// Limits of the texts of an app, in bytes. With them, a result has less than MaxResult even if JSON escapes each byte by six.
const (
	maxListReason = 300
	maxAppCommand = 1000
	maxLogTail    = 6 << 10
)

// viewApp returns the view of an app in a list.
func (c *call) viewApp(s *appv1.App, workspaceSlug string) AppView {
	view := AppView{
		AppID: s.GetId(), Slug: s.GetSlug(), Name: s.GetName(), Path: s.GetPath(),
		CanonicalURL: c.Apps.Addresses.Canonical(s, workspaceSlug), Status: appStatusNames[s.GetRuntimeStatus()],
		Reason: clip(s.GetReconciliationError(), maxListReason), Visibility: app.VisibilityNames[s.GetVisibility()], Asleep: s.GetAsleep(),
	}
	switch {
	case s.GetDisabledAt() != 0:
		view.Stopped = "disabled"
	case s.GetHalted():
		view.Stopped = "suspended"
	case s.GetFolderState() != appv1.FolderState_FOLDER_STATE_ACTIVE:
		view.Stopped = "no_folder"
	}
	return view
}

// viewWholeApp returns the view of an app with its configuration and crashes.
func (c *call) viewWholeApp(s *appv1.App, workspaceSlug string) AppView {
	view := c.viewApp(s, workspaceSlug)
	view.Reason = s.GetReconciliationError()
	if view.Crashes = len(s.GetCrashes()); view.Crashes > 0 {
		last := s.GetCrashes()[view.Crashes-1]
		view.LastCrash = &CrashView{last.GetAt(), clip(last.GetReason(), maxListReason)}
	}
	runtime := s.GetAccepted()
	if runtime == nil {
		runtime = s.GetRequested()
	}
	view.Runtime = &AppRuntimeView{
		Command: clip(runtime.GetCommand(), maxAppCommand), InstallCommand: clip(runtime.GetInstallCommand(), maxAppCommand), Port: runtime.GetPort(),
		APIScopes: append([]string{}, runtime.GetApiScopes()...), SleepAfterSeconds: runtime.GetSleepAfterMs() / 1000,
		Truncated: len(runtime.GetCommand()) > maxAppCommand || len(runtime.GetInstallCommand()) > maxAppCommand,
	}
	return view
}
