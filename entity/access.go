package entity

import (
	"slices"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The capabilities that a role or a grant gives in a workspace.
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

// Capabilities are what a principal has in a workspace where its person has a role: the role's, cut down to the grant
// for an app or an OAuth client. They are sorted; the caller leaves them unchanged.
func Capabilities(p *wirev1.Principal, role workspacev1.Role) []string {
	all := roleCapabilities[role]
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP:
		app := p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_APP
		var granted []string
		for _, c := range all {
			if slices.Contains(p.GetGrants(), c) && !(app && c == Admin) {
				granted = append(granted, c)
			}
		}
		return granted
	default:
		return all
	}
}

// Human tells whether the principal is a person's own identity.
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

// IsPlatform tells whether the principal is the platform itself.
func IsPlatform(p *wirev1.Principal) bool {
	return p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM
}

// Actor is the specification's actor grammar for what a principal does to files.
func Actor(p *wirev1.Principal) string {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_USER, wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP:
		return "api-key:" + p.GetCredentialId()
	case wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:
		return "web:" + p.GetUserId()
	default:
		return "system"
	}
}

// Need is what a command or a list requires of its sender.
type Need struct {
	// Any of these capabilities; none: to belong to the entity.
	Any []string
	// Changes: the command changes the entity. It is refused to members who may only read, and while the entity is
	// suspended or closed.
	Changes bool
	// Human: the credential is a person's own identity, not one that acts on the person's behalf; see Human.
	Human bool
	// Lasting: the command makes or ends what outlives the credential, which an impersonation may not do.
	Lasting bool
}

// Reads returns the need of a command that reads, with any of these capabilities.
func Reads(any ...string) Need { return Need{Any: any} }

// Changes returns the need of a command that changes something, with any of these capabilities.
func Changes(any ...string) Need { return Need{Any: any, Changes: true} }

// Access says who may send a command, beside the platform, which may send any. The zero Access is PlatformOnly.
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

// PlatformOnly is the access to commands that only the platform sends.
func PlatformOnly() Access { return Access{} }

// Requires is the access of principals that have what need says of the entity, or of its owner.
func Requires(need Need) Access { return Access{sender: principal, need: need} }

// DecidedByRule is the access to commands whose own rule authorizes the sender.
func DecidedByRule() Access { return Access{sender: decidedByRule} }

var errPlatformOnly = Errorf(Forbidden, "only the platform may do this")

// Authorize refuses a principal that may not send a command of this access. check refuses a principal that does not
// have what a need says. A principal that does not belong to the entity gets the same refusal for every command.
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
