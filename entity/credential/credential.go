// Package credential holds the rules of what a secret is checked against. A credential's identity is its key id.
//
//	(none) ──RegisterCredential──► usable ──RevokeCredential──► revoked
//	   │                             └──────expires_at────────► expired
//	   └────────RevokeCredential──────────────────────────────► revoked
//
// Revoked is for good, also when it is learnt before the registration: the reactions that carry both here may swap.
// The platform alone asks; whoever issued or revoked was authorised where the key belongs.
package credential

import (
	"bytes"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

var (
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a credential")
	errUnusable       = entity.Errorf(entity.Unauthorized, "the credential is not valid")
	errOther          = entity.Errorf(entity.InvalidRequest, "credential id has another secret or person")
	errID             = entity.Errorf(entity.InvalidRequest, "credential id is another one's")
	errKind           = entity.Errorf(entity.InvalidRequest, "credential kind is none")
	errUnbound        = entity.Errorf(entity.InvalidRequest, "credential of an app or a computer names no workspace")
	errNoImpersonator = entity.Errorf(entity.InvalidRequest, "credential of an impersonation names no operator")
	errSecret         = entity.Errorf(entity.InvalidRequest, "credential secret is no SHA-256")
)

// Zero is the state before the first event: no secret fits it.
func Zero(identity string) *credentialv1.Credential {
	return &credentialv1.Credential{Id: identity}
}

// Usable tells whether the credential opens anything at a time, in milliseconds since the Unix epoch.
func Usable(s *credentialv1.Credential, at int64) bool {
	return registered(s) && s.GetRevokedAt() == 0 && (s.GetExpiresAt() == 0 || at < s.GetExpiresAt())
}

// Kind describes a credential, to which the platform alone sends commands.
var Kind = rules.Kind()

var rules = entity.Rules[*credentialv1.Credential, credentialv1.Command, credentialv1.Event]{
	Name: entity.KindCredential, Zero: Zero, Decide: decide, Evolve: Evolve, Reply: Reply,
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: forbidden, invalid_request, unauthorized.
func Decide(call entity.Call, s *credentialv1.Credential, c credentialv1.Command) ([]credentialv1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *credentialv1.Credential, c credentialv1.Command) ([]credentialv1.Event, error) {
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
	return nil, errUnknownCommand
}

// Evolve is the state after an event.
func Evolve(s *credentialv1.Credential, e credentialv1.Event) *credentialv1.Credential {
	next := copyOf(s)
	switch e := e.(type) {
	case *credentialv1.CredentialRegistered:
		next = copyOf(e.GetCredential())
		if s.GetRevokedAt() != 0 {
			next.RevokedAt = s.GetRevokedAt()
		}
	case *credentialv1.CredentialRevoked:
		next.RevokedAt = e.GetAt()
	case *credentialv1.CredentialUsed:
		next.LastUsedAt = e.GetAt()
	}
	return next
}

// Reply is the state for DescribeCredential, hash included, and Done for what changes it.
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

func register(call entity.Call, s, c *credentialv1.Credential) ([]credentialv1.Event, error) {
	switch {
	case c.GetId() != call.Identity:
		return nil, errID
	case c.GetKind() <= wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM:
		// Nothing that comes in a request acts as the platform.
		return nil, errKind
	case len(c.GetSecretSha256()) != sha256.Size:
		return nil, errSecret
	case bound(c.GetKind()) && c.GetWorkspaceId() == "":
		return nil, errUnbound
	case c.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION && c.GetImpersonatorId() == "":
		return nil, errNoImpersonator
	case registered(s):
		return nil, checkSame(s, c)
	case s.GetRevokedAt() != 0:
		return nil, nil
	}
	return []credentialv1.Event{&credentialv1.CredentialRegistered{Credential: c}}, nil
}

func checkSame(s, c *credentialv1.Credential) error {
	if s.GetUserId() != c.GetUserId() || !bytes.Equal(s.GetSecretSha256(), c.GetSecretSha256()) {
		return errOther
	}
	return nil
}

func revoke(
	call entity.Call, s *credentialv1.Credential, c *credentialv1.RevokeCredential,
) ([]credentialv1.Event, error) {
	if s.GetRevokedAt() != 0 {
		return nil, nil
	}
	at := c.GetAt()
	if at <= 0 {
		at = call.At()
	}
	return []credentialv1.Event{&credentialv1.CredentialRevoked{At: at}}, nil
}

func use(call entity.Call, s *credentialv1.Credential) ([]credentialv1.Event, error) {
	switch {
	case !Usable(s, call.At()):
		return nil, errUnusable
	case s.GetLastUsedAt() != 0 && call.At()-s.GetLastUsedAt() < entity.UsePrecision.Milliseconds():
		return nil, nil
	}
	return []credentialv1.Event{&credentialv1.CredentialUsed{At: call.At()}}, nil
}

// bound tells whether credentials of a kind are good in one workspace alone.
func bound(kind wirev1.CredentialKind) bool {
	return kind == wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM || kind == wirev1.CredentialKind_CREDENTIAL_KIND_APP
}

func registered(s *credentialv1.Credential) bool { return len(s.GetSecretSha256()) > 0 }

func copyOf(s *credentialv1.Credential) *credentialv1.Credential {
	return &credentialv1.Credential{
		Id:           s.GetId(),
		Kind:         s.GetKind(),
		UserId:       s.GetUserId(),
		SecretSha256: s.GetSecretSha256(),
		CreatedAt:    s.GetCreatedAt(),
		ExpiresAt:    s.GetExpiresAt(),
		RevokedAt:    s.GetRevokedAt(),
		LastUsedAt:   s.GetLastUsedAt(),

		Grants:         s.GetGrants(),
		WorkspaceId:    s.GetWorkspaceId(),
		ImpersonatorId: s.GetImpersonatorId(),
	}
}
