package user

import (
	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var (
	errNotFound  = entity.Errorf(entity.NotFound, "no such user")
	errForbidden = entity.Errorf(entity.Forbidden, "this credential may not do that for its person")
	errDisabled  = entity.Errorf(entity.Forbidden, "the person is disabled")
)

// Check refuses a principal that is not a credential of the person. A person has no capability over themselves: a need
// that names one is the platform's alone. Errors: not_found, forbidden.
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

// accessOf returns who may send a command, whether or not the person exists.
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
		*userv1.DescribePassword, *userv1.StartBrowserSession, *userv1.UnlinkIdentities, *userv1.StartImpersonation,
		*userv1.RegisterMachine:
	}
	return entity.PlatformOnly()
}

// needsStanding tells what a disabled person is refused: whatever would let somebody in.
func needsStanding(c userv1.Command) bool {
	switch c.(type) {
	case *userv1.IssueApiKey, *userv1.AllowGrant, *userv1.StartBrowserSession, *userv1.SetPassword,
		*userv1.OfferOneTimeLink:
		return true
	case *userv1.CreateUser, *userv1.JoinWorkspace, *userv1.LeaveWorkspace, *userv1.ReserveWorkspace,
		*userv1.ForgetWorkspace, *userv1.DescribeStanding, *userv1.Disable,
		*userv1.Enable, *userv1.SetInternalAdmin, *userv1.ReportLinkMailed, *userv1.DescribePassword, *userv1.StartImpersonation,
		*userv1.RegisterMachine, *userv1.EndBrowserSession, *userv1.RevokeApiKey, *userv1.ListApiKeys,
		*userv1.ChangeProfile, *userv1.ListBrowserSessions, *userv1.RevokeGrant, *userv1.ListGrants,
		*userv1.RemoveMachine, *userv1.ListMachines, *userv1.UnlinkIdentities, *userv1.DescribeUser:
	}
	return false
}

// asked is who sent a command, for the audit log: the person, none for the platform, and an impersonation's operator.
func asked(call entity.Call) (by, impersonator string) {
	return call.Principal.GetUserId(), call.Principal.GetImpersonatorId()
}

// actsFor tells whether the principal is a credential of the person, of whichever kind.
func actsFor(p *wirev1.Principal, identity string) bool {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_USER,
		wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION,
		wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION,
		wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH,
		wirev1.CredentialKind_CREDENTIAL_KIND_APP,
		wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM:
		return identity != "" && p.GetUserId() == identity
	default:
		return false
	}
}
