package user

import (
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxIdentities is how many issuers may know a person.
	MaxIdentities = 5
	// MaxIssuerLength is in bytes.
	MaxIssuerLength = 512
	// MaxSubjectLength is in characters, all of ASCII (OpenID Connect Core 1.0, section 2).
	MaxSubjectLength = 255
)

var (
	errIssuer        = entity.Errorf(entity.InvalidRequest, "issuer must have 1 to %d printable characters of ASCII", MaxIssuerLength)
	errSubject       = entity.Errorf(entity.InvalidRequest, "subject must have 1 to %d printable characters of ASCII", MaxSubjectLength)
	errOtherSubject  = entity.Errorf(entity.Forbidden, "another account of the provider signed in with this address before; ask an operator")
	errManyProviders = entity.Errorf(entity.Forbidden, "at most %d providers can be linked to a person; ask an operator", MaxIdentities)
)

// CheckIssuer tells why a text names no issuer. Errors: invalid_request.
func CheckIssuer(issuer string) error {
	if !isPrintable(issuer, MaxIssuerLength) {
		return errIssuer
	}
	return nil
}

// CheckSubject tells why a text names nobody at an issuer. Errors: invalid_request.
func CheckSubject(subject string) error {
	if !isPrintable(subject, MaxSubjectLength) {
		return errSubject
	}
	return nil
}

// linkIdentity is the event ahead of a session that an issuer let in; nil where it did before, or where none did.
func linkIdentity(call entity.Call, s *userv1.User, given *userv1.LinkedIdentity) (*userv1.IdentityLinked, error) {
	if given == nil {
		return nil, nil
	}
	if err := CheckIssuer(given.GetIssuer()); err != nil {
		return nil, err
	}
	if err := CheckSubject(given.GetSubject()); err != nil {
		return nil, err
	}
	known := s.GetLinkedIdentities()[given.GetIssuer()]
	switch {
	case known == nil && len(s.GetLinkedIdentities()) >= MaxIdentities:
		return nil, errManyProviders
	case known == nil:
		return &userv1.IdentityLinked{Identity: &userv1.LinkedIdentity{
			Issuer: given.GetIssuer(), Subject: given.GetSubject(), LinkedAt: call.At(),
		}}, nil
	case known.GetSubject() != given.GetSubject():
		return nil, errOtherSubject
	}
	return nil, nil
}

// unlinkIdentities ends the sessions too: those that a subject began must not outlast it.
func unlinkIdentities(call entity.Call, s *userv1.User) ([]userv1.Event, error) {
	if len(s.GetLinkedIdentities()) == 0 && len(s.GetBrowserSessions()) == 0 {
		return nil, nil
	}
	return []userv1.Event{&userv1.IdentitiesUnlinked{
		At: call.At(), EndedSessionIds: slices.Sorted(maps.Keys(s.GetBrowserSessions())),
	}}, nil
}
