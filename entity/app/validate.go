package app

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

const (
	// MaxCommand is the greatest length of a command and an install command, in characters.
	MaxCommand = 8192
	// MaxName is the greatest length of a name, in characters (specification, Limits).
	MaxName = 64
	// MaxIcon is the greatest length of the path of an icon, in bytes.
	MaxIcon = 1024
	// MaxPort is the greatest port.
	MaxPort = 65535
	// MaxSleepAfter is the longest time without requests after which the process of an app ends.
	MaxSleepAfter = 7 * 24 * time.Hour
	// MinResponseTimeout and MaxResponseTimeout bound the time in which the process of an app must begin a response, as the setting
	// app-response of the node does.
	MinResponseTimeout = time.Second
	MaxResponseTimeout = time.Hour
)

// Scopes are the capabilities that an app may have (specification, App).
var Scopes = []string{
	entity.FilesRead, entity.FilesWrite, entity.Memory, entity.Sessions, entity.Agents, entity.Services, entity.Integrations,
	entity.Apps, entity.Share, entity.Publish, entity.Members,
}

// reservedSlugs are the words that neither a workspace nor an app may have as its slug (decisions, sections 3 and 7). Other words that
// workspaces may not have, such as docs and blog, are ordinary names of apps: the address of an app names its workspace, too.
var reservedSlugs = []string{"admin", "api", "app", "root", "www"}

var (
	errReserved   = entity.Errorf(entity.InvalidRequest, "slug must not be one of %s", strings.Join(reservedSlugs, ", "))
	errScopes     = entity.Errorf(entity.InvalidRequest, "apiScopes must be different ones of %s", strings.Join(Scopes, ", "))
	errPort       = entity.Errorf(entity.InvalidRequest, "port must be 1 to %d", MaxPort)
	errIcon       = entity.Errorf(entity.InvalidRequest, "icon must be a path of at most %d bytes relative to the folder of the app", MaxIcon)
	errSleep      = entity.Errorf(entity.InvalidRequest, "sleepAfterSeconds must be 0 to %d", MaxSleepAfter/time.Second)
	errTimeout    = entity.Errorf(entity.InvalidRequest, "responseTimeoutSeconds must be %d to %d", MinResponseTimeout/time.Second, MaxResponseTimeout/time.Second)
	errNoRuntime  = entity.Errorf(entity.InvalidRequest, "runtime is empty")
	errOrigin     = entity.Errorf(entity.InvalidRequest, "origin must have the share, the app and the mode of a replica")
	errVisibility = entity.Errorf(entity.InvalidRequest, "visibility must be folder or public")
)

// CheckRegistration validates the fields of a request to register an app; the port may be missing. Errors: invalid_request.
func CheckRegistration(r *appv1.Registration) error {
	if err := entity.CheckPath(r.GetPath()); err != nil {
		return err
	}
	if err := slug.CheckForm(r.GetSlug()); err != nil {
		return err
	}
	if slices.Contains(reservedSlugs, r.GetSlug()) {
		return errReserved
	}
	if err := checkMetadata(r.GetName(), r.GetIcon()); err != nil {
		return err
	}
	if o := r.GetOrigin(); o != nil {
		_, known := appv1.ShareMode_name[int32(o.GetMode())]
		if !known || o.GetMode() == appv1.ShareMode_SHARE_MODE_UNSPECIFIED || !entity.IsID(o.GetSourceShareId()) || !entity.IsID(o.GetSourceAppId()) ||
			o.GetListingSubscriptionId() != "" && !entity.IsID(o.GetListingSubscriptionId()) {
			return errOrigin
		}
	}
	if r.GetRuntime() == nil {
		return errNoRuntime
	}
	return checkRuntime(r.GetRuntime(), true)
}

// checkMetadata validates a name and an icon. Either may be empty. Errors: invalid_request.
func checkMetadata(name, icon string) error {
	if name != "" {
		if err := entity.CheckText("name", name, 1, MaxName); err != nil {
			return err
		}
	}
	if icon != "" {
		return checkIcon(icon)
	}
	return nil
}

// checkIcon accepts a path of the drive that no browser takes for an address: neither with a scheme nor with a backslash.
func checkIcon(icon string) error {
	if len(icon) > MaxIcon || entity.CheckPath(icon) != nil || strings.ContainsAny(icon, `:\`) {
		return errIcon
	}
	return nil
}

// checkRuntime validates a configuration. Errors: invalid_request.
func checkRuntime(r *appv1.Runtime, portOptional bool) error {
	if err := checkCommand("command", r.GetCommand()); err != nil {
		return err
	}
	if r.GetInstallCommand() != "" {
		if err := checkCommand("installCommand", r.GetInstallCommand()); err != nil {
			return err
		}
	}
	switch {
	case r.GetPort() == 0 && !portOptional, r.GetPort() > MaxPort:
		return errPort
	case r.GetSleepAfterMs() < 0 || r.GetSleepAfterMs() > MaxSleepAfter.Milliseconds():
		return errSleep
	}
	return checkScopes(r.GetApiScopes())
}

// checkRuntimeSettings validates the settings of the runtime. Errors: invalid_request.
func checkRuntimeSettings(s *appv1.RuntimeSettings) error {
	if ms := s.GetResponseTimeoutMs(); ms != 0 && (ms < MinResponseTimeout.Milliseconds() || ms > MaxResponseTimeout.Milliseconds()) {
		return errTimeout
	}
	return nil
}

// checkCommand accepts a script for a shell, which may have several lines.
func checkCommand(field, command string) error {
	switch {
	case !utf8.ValidString(command), strings.ContainsFunc(command, isOutsideScripts):
		return entity.Errorf(entity.InvalidRequest, "%s has a control character or is not UTF-8", field)
	case strings.TrimSpace(command) == "", utf8.RuneCountInString(command) > MaxCommand:
		return entity.Errorf(entity.InvalidRequest, "%s must have 1 to %d characters and not be blank", field, MaxCommand)
	}
	return nil
}

func isOutsideScripts(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// checkScopes refuses unknown and repeated scopes. As all are different, there are at most as many as the specification allows.
func checkScopes(scopes []string) error {
	for i, scope := range scopes {
		if !slices.Contains(Scopes, scope) || slices.Contains(scopes[:i], scope) {
			return errScopes
		}
	}
	return nil
}

// equalScopes reports whether two lists have the same scopes, in any order.
func equalScopes(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(scope string) bool { return !slices.Contains(b, scope) })
}
