package user

import (
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/subject"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// MaxIdentities is the greatest number of OpenID Connect issuers that are linked to a user.
const MaxIdentities = 5

var (
	errOtherSubject      = entity.Errorf(entity.Forbidden, "another account of the identity provider has signed in with this address before; ask an operator to unlink it")
	errTooManyIdentities = entity.Errorf(entity.Forbidden, "at most %d identity providers can be linked to an account; ask an operator to unlink them", MaxIdentities)
	errUnlinked          = entity.Errorf(entity.Forbidden, "the identity at the provider was unlinked during the sign-in; sign in again")
)

// linkIdentity links an identity. It has no effect if the identity is linked. Errors: invalid_request, and forbidden if
// another subject of the issuer is linked, too many issuers are, or the user is disabled.
func linkIdentity(call entity.Call, s *userv1.User, c *userv1.LinkIdentity) ([]userv1.Event, error) {
	given := c.GetIdentity()
	if err := subject.CheckIssuer(given.GetIssuer()); err != nil {
		return nil, err
	}
	if err := subject.Check(given.GetSubject()); err != nil {
		return nil, err
	}
	known := s.GetLinkedIdentities()[given.GetIssuer()]
	switch {
	case known != nil && known.GetSubject() == given.GetSubject():
		return nil, nil
	case known != nil:
		return nil, errOtherSubject
	case s.GetDisabledAt() != 0:
		return nil, errDisabled
	case len(s.GetLinkedIdentities()) >= MaxIdentities:
		return nil, errTooManyIdentities
	}
	return []userv1.Event{&userv1.IdentityLinked{Identity: &userv1.LinkedIdentity{
		Issuer: given.GetIssuer(), Subject: given.GetSubject(), LinkedAt: call.At(),
	}}}, nil
}

// checkLinked returns an error unless the given identity of a new session is linked, or no identity is given. Errors:
// forbidden.
func checkLinked(s *userv1.User, given *userv1.LinkedIdentity) error {
	known := s.GetLinkedIdentities()[given.GetIssuer()]
	switch {
	case given == nil, known != nil && known.GetSubject() == given.GetSubject():
		return nil
	case known != nil:
		return errOtherSubject
	case len(s.GetLinkedIdentities()) >= MaxIdentities:
		return errTooManyIdentities
	}
	return errUnlinked
}

// unlinkIdentities removes one identity or all. It also ends all browser sessions, because a session that an identity
// started must not outlast its link.
func unlinkIdentities(call entity.Call, s *userv1.User, c *userv1.UnlinkIdentities) ([]userv1.Event, error) {
	unlinked := linkedIdentities(s)
	if only := c.GetIdentity(); only != nil {
		unlinked = slices.DeleteFunc(unlinked, func(linked *userv1.LinkedIdentity) bool {
			return linked.GetIssuer() != only.GetIssuer() || linked.GetSubject() != only.GetSubject()
		})
		if len(unlinked) == 0 {
			return nil, nil
		}
	}
	if len(unlinked) == 0 && len(s.GetBrowserSessions()) == 0 {
		return nil, nil
	}
	return []userv1.Event{&userv1.IdentitiesUnlinked{
		At: call.At(), EndedSessionIds: sessionIDs(s), Identities: unlinked,
	}}, nil
}

// identitiesAfter returns the linked identities after some were unlinked. An event of an earlier version lists none, and
// unlinked all.
func identitiesAfter(s *userv1.User, e *userv1.IdentitiesUnlinked) map[string]*userv1.LinkedIdentity {
	if len(e.GetIdentities()) == 0 {
		return nil
	}
	var issuers []string
	for _, unlinked := range e.GetIdentities() {
		issuers = append(issuers, unlinked.GetIssuer())
	}
	return entity.Without(s.GetLinkedIdentities(), issuers...)
}

// linkedIdentities returns the linked identities in the order of their issuers.
func linkedIdentities(s *userv1.User) []*userv1.LinkedIdentity {
	var all []*userv1.LinkedIdentity
	for _, issuer := range slices.Sorted(maps.Keys(s.GetLinkedIdentities())) {
		all = append(all, s.GetLinkedIdentities()[issuer])
	}
	return all
}

// releaseSubjects returns the commands that make the subjects of a user free.
func releaseSubjects(userID string, unlinked []*userv1.LinkedIdentity) []entity.Reaction {
	var all []entity.Reaction
	for _, i := range unlinked {
		all = append(all, entity.Send(entity.KindSubject, subject.Key(i.GetIssuer(), i.GetSubject()), &subjectv1.ReleaseSubject{UserId: userID}))
	}
	return all
}
