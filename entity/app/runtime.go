package app

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

const (
	// MaxReason is the greatest length of the reason of a failure, in characters (specification, reconciliationError).
	MaxReason = 2000
	// unknownReason stands for a reason without text.
	unknownReason = "unknown"
)

var errNotRunnable = entity.Errorf(entity.InvalidRequest, "the app cannot be restarted: it is disabled, or its folder does not exist")

// register creates the app. It has no effect if the app exists. The workspace has validated the registration.
func register(call entity.Call, s *appv1.App, c *appv1.RegisterApp) []appv1.Event {
	if isRegistered(s) {
		return nil
	}
	return []appv1.Event{&appv1.AppRegistered{Registration: c.GetRegistration(), WorkspaceId: s.GetWorkspaceId(), At: call.At()}}
}

// update changes the display metadata, the runtime or both. A configuration with the same values is no change, unless the last one has
// failed: it is tried again. Errors: not_found, forbidden, invalid_request, unavailable if the port is not reserved.
func update(call entity.Call, s *appv1.App, c *appv1.UpdateApp) ([]appv1.Event, error) {
	if err := CheckUpdate(call, s, c); err != nil {
		return nil, err
	}
	var events []appv1.Event
	// The same icon advances the time of the update (specification, App, rule 2): the file may have changed.
	if c.Icon != nil || c.Name != nil && c.GetName() != s.GetName() {
		e := &appv1.MetadataChanged{Name: s.GetName(), Icon: s.GetIcon(), At: call.At()}
		if c.Name != nil {
			e.Name = c.GetName()
		}
		if c.Icon != nil {
			e.Icon = c.GetIcon()
		}
		events = append(events, e)
	}
	if changesRuntime(c) {
		was, is := configured(s), withChanges(s, c)
		if c.Port != nil && !hasPort(s, c.GetPort()) {
			return nil, errNotReserved
		}
		if s.GetRuntimeStatus() == failed || !equalRuntime(was, is) {
			events = append(events, request(call, s, is))
		}
	}
	return events, nil
}

// CheckUpdate returns the error of an update, so that no port is reserved for one that would be refused. Errors: as update.
func CheckUpdate(call entity.Call, s *appv1.App, c *appv1.UpdateApp) error {
	if err := checkChangeable(s); err != nil {
		return err
	}
	if changesRuntime(c) && isReadOnly(s) {
		return errReadOnly
	}
	if c.Name != nil {
		if err := entity.CheckText("name", c.GetName(), 1, MaxName); err != nil {
			return err
		}
	}
	if c.Icon != nil {
		if err := checkIcon(c.GetIcon()); err != nil {
			return err
		}
	}
	if !changesRuntime(c) {
		return nil
	}
	is := withChanges(s, c)
	if err := checkRuntime(is, false); err != nil {
		return err
	}
	return CheckGrants(call, is.GetApiScopes())
}

// changesRuntime reports whether an update has a field of the runtime.
func changesRuntime(c *appv1.UpdateApp) bool {
	return c.Command != nil || c.InstallCommand != nil || c.Port != nil || c.ApiScopes != nil || c.SleepAfterMs != nil
}

// configured returns the configuration that an update changes: the requested one, or else the accepted one.
func configured(s *appv1.App) *appv1.Runtime {
	if s.GetRequested() != nil {
		return s.GetRequested()
	}
	return s.GetAccepted()
}

// withChanges returns the configuration after an update.
func withChanges(s *appv1.App, c *appv1.UpdateApp) *appv1.Runtime {
	next := entity.ShallowCopy(configured(s))
	if c.Command != nil {
		next.Command = c.GetCommand()
	}
	if c.InstallCommand != nil {
		next.InstallCommand = c.GetInstallCommand()
	}
	if c.Port != nil {
		next.Port = c.GetPort()
	}
	if c.ApiScopes != nil {
		next.ApiScopes = slices.Clone(c.GetApiScopes().GetScopes())
	}
	if c.SleepAfterMs != nil {
		next.SleepAfterMs = c.GetSleepAfterMs()
	}
	return next
}

// equalRuntime reports whether two configurations run in the same way. The order of scopes has no meaning.
func equalRuntime(a, b *appv1.Runtime) bool {
	if !equalScopes(a.GetApiScopes(), b.GetApiScopes()) {
		return false
	}
	b = entity.ShallowCopy(b)
	b.ApiScopes = a.GetApiScopes()
	return proto.Equal(a, b)
}

// request returns the event that makes a configuration the requested one.
func request(call entity.Call, s *appv1.App, r *appv1.Runtime) appv1.Event {
	return &appv1.RuntimeRequested{
		Generation: s.GetGeneration() + 1, Runtime: r, At: call.At(), PortReservation: s.GetPortReservation(),
	}
}

// restart requests the present configuration again, as a new generation with a new process. It has no effect while a generation is
// being reconciled. Errors: not_found, invalid_request if the app may not run.
func restart(call entity.Call, s *appv1.App) ([]appv1.Event, error) {
	switch err := checkChangeable(s); {
	case err != nil:
		return nil, err
	case !mayRun(s):
		return nil, errNotRunnable
	case s.GetRuntimeStatus() == reconciling:
		return nil, nil
	}
	return []appv1.Event{request(call, s, configured(s))}, nil
}

// reportReconciled records the result of the requested generation. It has no effect for another generation, and while the app may not
// run: its process was then ended and has not failed. The key ends if its scopes are not the scopes of the configuration that runs
// now.
func reportReconciled(call entity.Call, s *appv1.App, c *appv1.ReportReconciled) []appv1.Event {
	if s.GetRuntimeStatus() != reconciling || c.GetGeneration() != s.GetGeneration() || !mayRun(s) {
		return nil
	}
	runs := s.GetRequested()
	var event appv1.Event
	if c.GetFailure() == "" {
		event = &appv1.RuntimeReconciled{
			Generation: c.GetGeneration(), At: call.At(), Port: runs.GetPort(), PortReservation: s.GetPortReservation(),
			Ports: busyPorts(s, runs.GetPort(), c.GetBusyPorts()),
		}
	} else {
		port := runs.GetPort()
		if runs = s.GetAccepted(); runs != nil {
			port = runs.GetPort()
		}
		event = &appv1.RuntimeFailed{
			Generation: c.GetGeneration(), Reason: excerpt(c.GetFailure()), At: call.At(), Port: port, PortReservation: s.GetPortReservation(),
			Ports: busyPorts(s, port, c.GetBusyPorts()),
		}
	}
	events := []appv1.Event{event}
	if !equalScopes(s.GetKey().GetScopes(), runs.GetApiScopes()) {
		events = append(events, revokeKey(call, s)...)
	}
	return events
}

// setRuntimeSettings replaces the settings of the runtime. They need the capabilities that a configuration needs, because they
// decide how the process runs. Errors: not_found, forbidden, invalid_request.
func setRuntimeSettings(call entity.Call, s *appv1.App, c *appv1.SetRuntimeSettings) ([]appv1.Event, error) {
	if err := checkChangeable(s); err != nil {
		return nil, err
	}
	if isReadOnly(s) {
		return nil, errReadOnly
	}
	if err := checkRuntimeSettings(c.GetSettings()); err != nil {
		return nil, err
	}
	if err := CheckGrants(call, configured(s).GetApiScopes()); err != nil {
		return nil, err
	}
	settings := c.GetSettings()
	if proto.Size(settings) == 0 {
		settings = nil
	}
	if proto.Equal(s.GetRuntimeSettings(), settings) {
		return nil, nil
	}
	return []appv1.Event{&appv1.RuntimeSettingsChanged{Settings: settings, At: call.At()}}, nil
}

// excerpt returns the beginning of a reason without control characters except line breaks, as the API shows it.
func excerpt(reason string) string {
	clean := strings.Map(func(r rune) rune {
		if isOutsideScripts(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(reason, "\uFFFD"))
	clean = strings.TrimSpace(clean)
	if runes := []rune(clean); len(runes) > MaxReason {
		clean = strings.TrimSpace(string(runes[:MaxReason]))
	}
	if clean == "" {
		return unknownReason
	}
	return clean
}
