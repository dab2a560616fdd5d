package user

import (
	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var (
	errNotFound  = entity.Errorf(entity.NotFound, "no such user")
	errForbidden = entity.Errorf(entity.Forbidden, "this credential may not do that for its person")
)

// authorize refuses who may not send the command, whether or not the person exists.
func authorize(call entity.Call, c userv1.Command) error {
	platform, person := entity.IsPlatform(call.Principal), actsFor(call.Principal, call.Identity)
	if !platform && !person {
		return errNotFound
	}
	human := person && entity.Human(call.Principal)
	allowed := false
	switch c.(type) {
	case *userv1.CreateUser, *userv1.JoinWorkspace:
		allowed = platform
	case *userv1.IssueApiKey, *userv1.ListApiKeys:
		allowed = platform || human
	case *userv1.RevokeApiKey:
		allowed = human
	case *userv1.DescribeUser:
		allowed = true
	}
	if !allowed {
		return errForbidden
	}
	return nil
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
