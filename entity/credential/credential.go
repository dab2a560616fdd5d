// Package credential implements the rules of credentials: the hashes against which the secrets of API keys, browser
// sessions and impersonations are compared. The identity of the entity is the id of the credential.
//
//	(none) ──RegisterCredential──► usable ──RevokeCredential──► revoked
//	   │                             └──────expires_at────────► expired
//	   └────────RevokeCredential──────────────────────────────► revoked
//
// A revocation is final. It takes effect even if it arrives before the registration, since the reactions that send the two commands
// may arrive in either order. Only the platform sends commands to a credential; the user entity has authorized the issue or the
// revocation.
//
// All keys of an app have one credential. The id of the credential is the id of the app. Its secrets have numbers: a registration with
// a higher number replaces the secret, and a revocation ends the numbers up to its own, so that a key stays revoked in whatever order
// the commands arrive.
package credential

import (
	"bytes"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var (
	errUnusable       = entity.Errorf(entity.Unauthorized, "the credential is not valid")
	errRegistered     = entity.Errorf(entity.InvalidRequest, "credential id is already registered with another secret or person")
	errID             = entity.Errorf(entity.InvalidRequest, "credential id is not the id of this entity")
	errKind           = entity.Errorf(entity.InvalidRequest, "credential kind is unknown or the platform's")
	errUnlimited      = entity.Errorf(entity.InvalidRequest, "grants is empty, but is required for a limited API key")
	errUnbound        = entity.Errorf(entity.InvalidRequest, "workspaceId is empty, but is required for the credential of an app or a computer")
	errNoImpersonator = entity.Errorf(entity.InvalidRequest, "impersonatorId is empty, but is required for an impersonation")
	errSecret         = entity.Errorf(entity.InvalidRequest, "secretSha256 is not a SHA-256 hash")
)

// Zero returns the state before the first event, which no secret matches.
func Zero(identity string) *credentialv1.Credential {
	return &credentialv1.Credential{Id: identity}
}

// IsUsable reports whether the credential authenticates requests at a time, in milliseconds since the Unix epoch.
func IsUsable(s *credentialv1.Credential, at int64) bool {
	return isRegistered(s) && s.GetRevokedAt() == 0 && (s.GetExpiresAt() == 0 || at < s.GetExpiresAt())
}

// Kind describes credentials to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of credentials.
var Rules = entity.Rules[*credentialv1.Credential, credentialv1.Command, credentialv1.Event]{
	Name: entity.KindCredential, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply,
	Exposed:   []credentialv1.Event{&credentialv1.CredentialRevoked{}},
	Unexposed: []credentialv1.Event{&credentialv1.CredentialRegistered{}, &credentialv1.CredentialUsed{}},
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: invalid_request, unauthorized.
func Decide(call entity.Call, s *credentialv1.Credential, c credentialv1.Command) ([]credentialv1.Event, error) {
	switch c := c.(type) {
	case *credentialv1.RegisterCredential:
		return register(call, s, c.GetCredential())
	case *credentialv1.RevokeCredential:
		return revoke(call, s, c)
	case *credentialv1.UseCredential:
		return use(call, s)
	case *credentialv1.DescribeCredential:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindCredential, c)
}

// Evolve returns the state after an event.
func Evolve(s *credentialv1.Credential, e credentialv1.Event) *credentialv1.Credential {
	next := entity.ShallowCopy(s)
	switch e := e.(type) {
	case *credentialv1.CredentialRegistered:
		next = entity.ShallowCopy(e.GetCredential())
		if isNumbered(next) {
			next.RevokedNumber, next.LastUsedAt = s.GetRevokedNumber(), s.GetLastUsedAt()
		} else if s.GetRevokedAt() != 0 {
			next.RevokedAt = s.GetRevokedAt()
		}
	case *credentialv1.CredentialRevoked:
		next.RevokedAt, next.RevokedNumber = e.GetAt(), e.GetNumber()
		if next.RevokedNumber == 0 && (isNumbered(s) || s.GetRevokedNumber() != 0) {
			next.RevokedNumber = math.MaxUint64
		}
	case *credentialv1.CredentialUsed:
		next.LastUsedAt = e.GetAt()
	}
	return next
}

// Reply returns the state, with the hash of the secret, for DescribeCredential, and Done for every other command.
func Reply(
	_ entity.Call, s *credentialv1.Credential, c credentialv1.Command, _ []credentialv1.Event,
) proto.Message {
	switch c.(type) {
	case *credentialv1.DescribeCredential:
		return s
	case *credentialv1.RegisterCredential, *credentialv1.RevokeCredential, *credentialv1.UseCredential:
	}
	return &wirev1.Done{}
}

// register decides a registration. It has no effect if it is a repetition or the credential was revoked before. Errors:
// invalid_request, also if the credential is registered with another secret or person.
func register(call entity.Call, s, c *credentialv1.Credential) ([]credentialv1.Event, error) {
	switch {
	case c.GetId() != call.Identity:
		return nil, errID
	case c.GetKind() <= wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM:
		// No credential of a request acts as the platform.
		return nil, errKind
	case !entity.IsSHA256(c.GetSecretSha256()):
		return nil, errSecret
	case isBoundToWorkspace(c.GetKind()) && c.GetWorkspaceId() == "":
		return nil, errUnbound
	case c.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION && c.GetImpersonatorId() == "":
		return nil, errNoImpersonator
	case c.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY && len(c.GetGrants()) == 0:
		return nil, errUnlimited
	case isNumbered(c):
		return registerNumber(s, c)
	case isRegistered(s):
		return nil, checkRepeated(s, c)
	case s.GetRevokedAt() != 0:
		return nil, nil
	}
	return []credentialv1.Event{&credentialv1.CredentialRegistered{Credential: c}}, nil
}

// registerNumber replaces the secret of an app. It has no effect if the secret has the number, or the number was revoked, or a later
// number is registered. Errors: invalid_request, also for another person or workspace.
func registerNumber(s, c *credentialv1.Credential) ([]credentialv1.Event, error) {
	switch {
	case isRegistered(s) && (s.GetKind() != c.GetKind() || s.GetWorkspaceId() != c.GetWorkspaceId()):
		return nil, errRegistered
	case isRegistered(s) && s.GetNumber() == c.GetNumber():
		return nil, checkRepeated(s, c)
	case c.GetNumber() < s.GetNumber(), c.GetNumber() <= s.GetRevokedNumber(), isRevokedForGood(s):
		return nil, nil
	}
	return []credentialv1.Event{&credentialv1.CredentialRegistered{Credential: c}}, nil
}

// checkRepeated returns an error unless the credential is registered with the same secret and person.
func checkRepeated(s, c *credentialv1.Credential) error {
	if s.GetUserId() != c.GetUserId() || !bytes.Equal(s.GetSecretSha256(), c.GetSecretSha256()) {
		return errRegistered
	}
	return nil
}

// revoke decides a revocation at the time of the command, or now if it has none. A revocation without a number is final.
func revoke(
	call entity.Call, s *credentialv1.Credential, c *credentialv1.RevokeCredential,
) ([]credentialv1.Event, error) {
	at := c.GetAt()
	if at <= 0 {
		at = call.At()
	}
	switch {
	case isRevokedForGood(s):
		return nil, nil
	case c.GetNumber() != 0 && (c.GetNumber() <= s.GetRevokedNumber() || c.GetNumber() < s.GetNumber()):
		return nil, nil // the secret is revoked or was replaced
	}
	return []credentialv1.Event{&credentialv1.CredentialRevoked{At: at, Number: c.GetNumber()}}, nil
}

// use updates last_used_at, at most once in entity.UsePrecision. Errors: unauthorized if the credential is not usable.
func use(call entity.Call, s *credentialv1.Credential) ([]credentialv1.Event, error) {
	switch {
	case !IsUsable(s, call.At()):
		return nil, errUnusable
	case entity.IsUseRecorded(s.GetLastUsedAt(), call.At()):
		return nil, nil
	}
	return []credentialv1.Event{&credentialv1.CredentialUsed{At: call.At()}}, nil
}

// isBoundToWorkspace reports whether credentials of a kind give access to a single workspace.
func isBoundToWorkspace(kind wirev1.CredentialKind) bool {
	return kind == wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM || kind == wirev1.CredentialKind_CREDENTIAL_KIND_APP
}

// isNumbered reports whether a credential has secrets with numbers, as the credentials of apps have.
func isNumbered(c *credentialv1.Credential) bool { return c.GetNumber() != 0 }

// isRevokedForGood reports whether a revocation without a number has ended the credential.
func isRevokedForGood(s *credentialv1.Credential) bool {
	return s.GetRevokedAt() != 0 && (s.GetRevokedNumber() == 0 || s.GetRevokedNumber() == math.MaxUint64)
}

func isRegistered(s *credentialv1.Credential) bool { return len(s.GetSecretSha256()) > 0 }
