package user

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var (
	errNotFound  = entity.Errorf(entity.NotFound, "no such user")
	errForbidden = entity.Errorf(entity.Forbidden, "this credential is not allowed to do that for the account")
	errDisabled  = entity.Errorf(entity.Forbidden, "the account is disabled")
)

// Check returns an error unless the principal of the call is a credential of the user and satisfies the need. Users have no
// capabilities over their own account, so only the platform satisfies a need that names one. Errors: not_found, forbidden.
func Check(call entity.Call, s *userv1.User, need entity.Need) error {
	p := call.Principal
	switch {
	case !exists(s), !entity.IsPlatform(p) && !actsFor(p, call.Identity):
		return errNotFound
	case entity.IsPlatform(p):
		return nil
	case len(need.Any) > 0, need.Human && !entity.Human(p),
		need.Lasting && p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:
		return errForbidden
	}
	return nil
}

// accessOf returns the access to a command.
func accessOf(c userv1.Command) entity.Access {
	switch c.(type) {
	case *userv1.IssueApiKey, *userv1.AllowGrant, *userv1.EndBrowserSession:
		return entity.Requires(entity.Need{Human: true, Lasting: true})
	case *userv1.RevokeApiKey, *userv1.ListApiKeys, *userv1.ChangeProfile, *userv1.ListBrowserSessions,
		*userv1.RevokeGrant, *userv1.ListGrants, *userv1.RemoveMachine, *userv1.ListMachines:
		return entity.Requires(entity.Need{Human: true})
	case *userv1.DescribeUser:
		return entity.Requires(entity.Need{})
	case *userv1.CreateUser, *userv1.JoinWorkspace, *userv1.LeaveWorkspace, *userv1.ReserveWorkspace,
		*userv1.ForgetWorkspace, *userv1.DescribeStanding, *userv1.Disable,
		*userv1.Enable, *userv1.SetInternalAdmin, *userv1.ReportLinkMailed, *userv1.OfferOneTimeLink, *userv1.SetPassword,
		*userv1.DescribePassword, *userv1.StartBrowserSession, *userv1.LinkIdentity, *userv1.DescribeIdentities,
		*userv1.UnlinkIdentities, *userv1.StartImpersonation, *userv1.RegisterMachine:
	}
	return entity.PlatformOnly()
}

// needsActiveUser reports whether a command is refused for a disabled user, because its effect could give access to the account.
func needsActiveUser(c userv1.Command) bool {
	switch c.(type) {
	case *userv1.IssueApiKey, *userv1.AllowGrant, *userv1.StartBrowserSession, *userv1.SetPassword,
		*userv1.OfferOneTimeLink:
		return true
	case *userv1.CreateUser, *userv1.JoinWorkspace, *userv1.LeaveWorkspace, *userv1.ReserveWorkspace,
		*userv1.ForgetWorkspace, *userv1.DescribeStanding, *userv1.Disable,
		*userv1.Enable, *userv1.SetInternalAdmin, *userv1.ReportLinkMailed, *userv1.DescribePassword, *userv1.StartImpersonation,
		*userv1.RegisterMachine, *userv1.EndBrowserSession, *userv1.RevokeApiKey, *userv1.ListApiKeys,
		*userv1.ChangeProfile, *userv1.ListBrowserSessions, *userv1.RevokeGrant, *userv1.ListGrants,
		*userv1.RemoveMachine, *userv1.ListMachines, *userv1.LinkIdentity, *userv1.DescribeIdentities,
		*userv1.UnlinkIdentities, *userv1.DescribeUser:
	}
	return false
}

// requester returns the sender of a command for the audit log: the user id, which is empty for the platform, and the
// operator if the sender is an impersonation.
func requester(call entity.Call) (userID, impersonator string) {
	return call.Principal.GetUserId(), call.Principal.GetImpersonatorId()
}

// actsFor reports whether the principal is a credential, of any kind, of the user with that identity.
func actsFor(p *wirev1.Principal, identity string) bool {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_USER,
		wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION,
		wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION,
		wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY,
		wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH,
		wirev1.CredentialKind_CREDENTIAL_KIND_APP,
		wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM:
		return identity != "" && p.GetUserId() == identity
	default:
		return false
	}
}

var (
	errExpiryPast  = entity.Errorf(entity.InvalidRequest, "expiresAt is in the past")
	errExpiryLate  = entity.Errorf(entity.InvalidRequest, "expiresAt must be at most %d", int64(entity.MaxTime))
	errSecret      = entity.Errorf(entity.InvalidRequest, "secretSha256 is not a SHA-256 hash")
	errNoEmail     = entity.Errorf(entity.InvalidRequest, "email is empty")
	errNoWorkspace = entity.Errorf(entity.InvalidRequest, "workspaceId is empty")
)

// CheckName returns an error unless a text may be the name of a person; see entity.CheckName.
func CheckName(name string) *entity.Error { return entity.CheckName(name) }

// CheckLabel returns an error unless a text may be the name of an API key or a machine; see entity.CheckLabel.
func CheckLabel(name string) error { return entity.CheckLabel(name) }

// hasULID reports whether an id is the prefix followed by a ULID.
func hasULID(id, prefix string) bool {
	ulid, found := strings.CutPrefix(id, prefix)
	return found && entity.IsULID(ulid)
}
