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
