package computer

import (
	"cmp"
	"context"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A Launch describes a process to start for a member of a workspace, for a session, or for an app.
type Launch struct {
	WorkspaceID string
	// Principal is the caller. The entity of the computer authorizes it: for a session and for an app the platform.
	Principal *wirev1.Principal
	Kind      computerv1.ProcessKind
	// SessionID is the session of the process, if Kind is the kind of a session. All processes of a session are one group of Spec, and
	// their changes have the actor "session:<id>" and the user UserID, which may be empty.
	SessionID string
	// AppID is the app of the process, if Kind is the kind of an app. All processes of an app are one group of Spec, and their
	// changes have the actor "api-key:<id>" and the user UserID, which may be empty.
	AppID string
	// UserID is empty for other kinds.
	UserID string
	// Argv, Cwd, Env, Terminal, Limits, OwnNetwork and Prepare are the fields of Spec with these names.
	Argv     []string
	Cwd      string
	Env      []string
	Terminal *TerminalSize
	Limits   Limits
	// OwnNetwork is refused if Fleet.OwnNetworks returns false.
	OwnNetwork bool
	Prepare    func(context.Context, Network) error
}

// check returns invalid_request if the launch has invalid or too long arguments.
func (l Launch) check() error {
	if err := checkProgram(l.Argv, l.Env, l.Terminal); err != nil {
		return err
	}
	if l.Cwd != "" {
		if err := entity.CheckPath(l.Cwd); err != nil { // not returned as it is: a nil *entity.Error is not a nil error
			return err
		}
	}
	return nil
}

// group returns the group of Spec: the group of the session or the app, or a group for the process alone.
func (l Launch) group(processID string) string {
	switch l.Kind {
	case computerv1.ProcessKind_PROCESS_KIND_SESSION:
		return kindOfProcess(l.Kind) + ":" + l.SessionID
	case computerv1.ProcessKind_PROCESS_KIND_APP:
		return kindOfProcess(l.Kind) + ":" + l.AppID
	default:
		return kindOfProcess(l.Kind) + ":" + processID
	}
}

// isPrivate reports whether the process is hidden from the others of its computer: an agent has a token for the turns of its session in
// its memory, and often in its environment and in the arguments of its descendants.
func (l Launch) isPrivate() bool { return l.Kind == computerv1.ProcessKind_PROCESS_KIND_SESSION }

// person returns the person that the process counts for: the creator of the session or the app, or else the caller.
func (l Launch) person() string { return cmp.Or(l.UserID, l.Principal.GetUserId()) }

// OwnNetworks reports whether Launch can give a process a network of its own.
func (f *Fleet) OwnNetworks() bool { return f.o.Host.OwnNetworks() }

// Usage returns the use of the machine by each process group of the computer of a workspace; see Host.Usage.
func (f *Fleet) Usage(ctx context.Context, workspaceID string) ([]Usage, error) {
	return f.o.Host.Usage(ctx, workspaceID)
}
