package entity

import wirev1 "github.com/atelier-run/atelier/messages/wire/v1"

// DriveAccess is the access to a workspace's drive with which one request was authorized.
type DriveAccess struct {
	WorkspaceID string
	// Principal is the caller. The commands that decide the caller's changes travel with it, so that the workspace's rules
	// authorize them once more, in order with the workspace's own changes.
	Principal *wirev1.Principal
	// Host is the host of the server's public URL. A URL in a header may name it, or the host of the request: a proxy may
	// pass on another one than the client used. Empty: the host of the request only.
	Host string
	// BreaksLocks tells that the caller may remove locks that others made.
	BreaksLocks bool
	// Confirm authenticates and authorizes the caller again, past what is remembered of either. It is called right before
	// a change is decided; its error refuses the change. nil: nothing is asked again.
	Confirm func() error
}
