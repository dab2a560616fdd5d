package entity

import (
	"slices"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The capabilities in a workspace, given by the role of a member and limited by the grants of an app, an OAuth client or a
// limited API key.
const (
	Admin        = "admin"
	FilesRead    = "files:read"
	FilesWrite   = "files:write"
	Memory       = "memory"
	Sessions     = "sessions"
	Agents       = "agents"
	Services     = "services"
	Integrations = "integrations"
	Apps         = "apps"
	Share        = "share"
	Publish      = "publish"
	Members      = "members"
)

var roleCapabilities = map[workspacev1.Role][]string{
	workspacev1.Role_ROLE_OWNER: {
		Admin, Agents, Apps, FilesRead, FilesWrite, Integrations, Members, Memory, Publish, Services, Sessions, Share,
	},
	workspacev1.Role_ROLE_EDITOR: {
		Agents, Apps, FilesRead, FilesWrite, Integrations, Members, Memory, Publish, Services, Sessions, Share,
	},
	workspacev1.Role_ROLE_VIEWER: {Apps, FilesRead, Sessions},
}

// AgentCapabilities returns the capabilities that an agent can have: all but admin. They are sorted. The caller must not change the
// slice.
func AgentCapabilities() []string { return roleCapabilities[workspacev1.Role_ROLE_EDITOR] }

// MissingForProcesses returns which of the needed capabilities are not among the given ones. A turn needs them to run processes, and a
// credential to set the command of an app: services, and, because every process in a computer can read and change the whole drive,
// files:read and files:write.
func MissingForProcesses(has []string) []string {
	return slices.DeleteFunc([]string{FilesRead, FilesWrite, Services}, func(c string) bool { return slices.Contains(has, c) })
}

// Capabilities returns the capabilities of a principal in a workspace in which its user has the role: the capabilities of the
// role, and for a credential with grants only the capabilities of the role that the grants name as well. They are sorted. The
// caller must not change the slice.
func Capabilities(p *wirev1.Principal, role workspacev1.Role) []string {
	all := roleCapabilities[role]
	if !HasGrants(p) {
		return all
	}
	var granted []string
	for _, c := range all {
		if IsGranted(p, c) {
			granted = append(granted, c)
		}
	}
	return granted
}

// HasGrants reports whether the grants of a principal limit its capabilities, and not its role alone.
func HasGrants(p *wirev1.Principal) bool {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP,
		wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:
		return true
	default:
		return false
	}
}

// IsGranted reports whether the grants of a principal include a capability; the grants of apps and agents never include admin. A
// principal without grants is limited by its role alone.
func IsGranted(p *wirev1.Principal, capability string) bool {
	if !HasGrants(p) {
		return true
	}
	isProgram := p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_APP || p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_SESSION
	return slices.Contains(p.GetGrants(), capability) && !(isProgram && capability == Admin)
}

// Reaches reports whether the credential of a principal is valid for a workspace: it is neither bound to another workspace nor limited to
// others.
func Reaches(p *wirev1.Principal, workspaceID string) bool {
	if p.GetWorkspaceId() != "" && p.GetWorkspaceId() != workspaceID {
		return false
	}
	return len(p.GetWorkspaceIds()) == 0 || slices.Contains(p.GetWorkspaceIds(), workspaceID)
}

// AllCapabilities returns all capabilities, sorted. The caller must not change the slice.
func AllCapabilities() []string { return roleCapabilities[workspacev1.Role_ROLE_OWNER] }

// Human reports whether the principal is a person's own identity, and not a program that acts for the person or a key with limits.
// Changes of the account would exceed the limits of a program or of such a key.
func Human(p *wirev1.Principal) bool {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_USER,
		wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION,
		wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:
		return true
	default:
		return false
	}
}

// IsPlatform reports whether the principal is the platform itself.
func IsPlatform(p *wirev1.Principal) bool {
	return p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM
}

// Actor returns the name of a principal in file activity (specification, actor grammar).
func Actor(p *wirev1.Principal) string {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_USER, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP,
		wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:
		return "api-key:" + p.GetCredentialId()
	case wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:
		return "web:" + p.GetUserId()
	case wirev1.CredentialKind_CREDENTIAL_KIND_SESSION:
		return SessionActor(p.GetCredentialId())
	default:
		return "system"
	}
}

// SessionActor returns the author, in file activity, of the changes that the agent of a session makes.
func SessionActor(sessionID string) string { return "session:" + sessionID }

// Need describes the requirements of a command or a list on its sender.
type Need struct {
	// Any lists capabilities; the sender needs one of them. If it is empty, the sender only has to belong to the entity.
	Any []string
	// Changes marks a command that changes the entity. It is refused to members with read access only, and while the entity
	// is suspended or closed.
	Changes bool
	// Personal marks a command that changes only data of the sender, such as the rows that the sender has read. Members with
	// read access only may send it; while the entity is suspended or closed it is refused as Changes is.
	Personal bool
	// Human requires a credential that is a person's own identity, see the function Human.
	Human bool
	// Lasting marks a command with effects that outlive the credential, such as a new API key. It is refused to
	// impersonations.
	Lasting bool
}

// Reads returns the need of a query: one of the capabilities.
func Reads(any ...string) Need { return Need{Any: any} }

// Changes returns the need of a command that changes the entity: one of the capabilities.
func Changes(any ...string) Need { return Need{Any: any, Changes: true} }

// ChangesOwn returns the need of a command that changes only data of the sender: one of the capabilities.
func ChangesOwn(any ...string) Need { return Need{Any: any, Personal: true} }

// Access describes the authorization of a command. The platform may send every command. The zero Access is PlatformOnly.
type Access struct {
	sender sender
	need   Need
}

type sender uint8

const (
	platform sender = iota
	principal
	decidedByRule
)

// PlatformOnly returns the access to commands that only the platform may send.
func PlatformOnly() Access { return Access{} }

// Requires returns the access to commands that need has to be satisfied for, by the entity or by its owner.
func Requires(need Need) Access { return Access{sender: principal, need: need} }

// DecidedByRule returns the access to commands that Decide itself authorizes.
func DecidedByRule() Access { return Access{sender: decidedByRule} }

var errPlatformOnly = Errorf(Forbidden, "only the platform may send this command")

// Authorize returns an error unless the principal may send a command with this access. check returns an error unless the
// principal satisfies a need; it decides for the entity or its owner. A principal that does not belong to the entity gets
// one error for all commands, so that it cannot learn whether the entity exists. Errors: the errors of check, forbidden.
func (a Access) Authorize(p *wirev1.Principal, check func(Need) error) error {
	switch {
	case IsPlatform(p), a.sender == decidedByRule:
		return nil
	case a.sender == principal:
		return check(a.need)
	}
	if err := check(Need{}); err != nil {
		return err
	}
	return errPlatformOnly
}

// DriveAccess is the authorization of one request to a workspace's drive.
type DriveAccess struct {
	WorkspaceID string
	// Principal is the caller. It is the sender of the commands that record the caller's changes, so that the rules of the
	// workspace authorize each change again, in order with the changes of the workspace itself.
	Principal *wirev1.Principal
	// Host is the host of the server's public URL. A URL in a header may name it, or the host of the request: a proxy may
	// pass on another host than the client used. Empty: the host of the request only.
	Host string
	// BreaksLocks reports whether the caller may remove locks of other principals.
	BreaksLocks bool
	// Authenticate verifies without caches that the caller's credential is still valid. It is called right before a change is
	// decided, and its error refuses the change. If it is nil, the first authentication remains valid.
	Authenticate func() error
	// Authorize verifies that the caller still has access. It is called after Authenticate, right before a change that no
	// command decides, and its error refuses the change. If it is nil, the first authorization remains valid.
	Authorize func() error
}

// RoleNames has the names of roles in the API and on pages.
var RoleNames = map[workspacev1.Role]string{
	workspacev1.Role_ROLE_OWNER:  "owner",
	workspacev1.Role_ROLE_EDITOR: "editor",
	workspacev1.Role_ROLE_VIEWER: "viewer",
}
