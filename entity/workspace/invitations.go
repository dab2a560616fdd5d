package workspace

import (
	"crypto/sha256"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Limits of invitations.
const (
	InvitationLifetime = 7 * 24 * time.Hour
	// What was revoked, used or has expired stays in the list for so long.
	invitationRetention = 30 * 24 * time.Hour
	// MaxPending and MaxInvitations are the most that wait for an answer, and the most that are kept.
	MaxPending     = 1000
	MaxInvitations = 5000
)

var (
	errNoInvitation   = entity.Errorf(entity.NotFound, "no such invitation")
	errNoInvitationID = entity.Errorf(entity.InvalidRequest, "invitationId is empty or of another invitation")
	errInvitedRole    = entity.Errorf(entity.InvalidRequest, "role must be editor or viewer")
	errSecret         = entity.Errorf(entity.InvalidRequest, "secretSha256 is no SHA-256")
	errAlreadyMember  = entity.Errorf(entity.AlreadyMember, "email is a member's")
	errTooMany        = entity.Errorf(entity.LimitReached, "a workspace has at most %d pending invitations", MaxPending)
	errTooManyKept    = entity.Errorf(entity.LimitReached, "a workspace makes at most %d invitations in 30 days", MaxInvitations)
	errConsumed       = entity.Errorf(entity.InvitationConsumed, "the invitation has been accepted")
	errRevoked        = entity.Errorf(entity.InvitationRevoked, "the invitation has been revoked")
	errExpired        = entity.Errorf(entity.InvitationExpired, "the invitation has expired")
	errNotThatPerson  = entity.Errorf(entity.Forbidden, "an invitation is accepted by whom it is addressed to")
)

// invite makes an invitation or renews the pending one of the address. The same secret again is the same request.
// Errors: already_member, limit_reached.
func invite(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Invite) ([]workspacev1.Event, error) {
	if err := checkInvite(c); err != nil {
		return nil, err
	}
	address, err := email.Canonical(c.GetEmail())
	if err != nil {
		return nil, err
	}
	for _, m := range s.GetMembers() {
		if m.GetEmail() == address {
			return nil, errAlreadyMember
		}
	}
	before := pendingOf(call, s, address)
	if before == nil {
		if err := room(call, s, c.GetInvitationId()); err != nil {
			return nil, err
		}
		before = &workspacev1.Invitation{Id: c.GetInvitationId(), CreatedAt: call.At(), Position: call.Version}
	}
	next := proto.CloneOf(before)
	next.Email, next.Role = address, c.GetRole()
	next.SecretSha256, next.Inviter = c.GetSecretSha256(), c.GetInviter()
	if proto.Equal(before, next) && len(next.GetSecretSha256()) > 0 {
		return nil, nil
	}
	next.ExpiresAt = call.Now.Add(InvitationLifetime).UnixMilli()
	if proto.Equal(before, next) {
		return nil, nil
	}
	next.MailId, next.MailRequestedAt = c.GetMailId(), 0
	if next.GetMailId() != "" {
		next.MailRequestedAt = call.At()
	}
	return []workspacev1.Event{&workspacev1.InvitationCreated{Invitation: next}}, nil
}

func checkInvite(c *workspacev1.Invite) error {
	switch {
	case c.GetInvitationId() == "":
		return errNoInvitationID
	case c.GetRole() != workspacev1.Role_ROLE_EDITOR && c.GetRole() != workspacev1.Role_ROLE_VIEWER:
		return errInvitedRole
	case len(c.GetSecretSha256()) != 0 && len(c.GetSecretSha256()) != sha256.Size:
		return errSecret
	}
	return nil
}

// room tells why there cannot be one more invitation with that id; nil where there can.
func room(call entity.Call, s *workspacev1.Workspace, id string) error {
	if _, used := s.GetInvitations()[id]; used {
		return errNoInvitationID
	}
	waiting, kept := 0, 0
	for _, i := range s.GetInvitations() {
		switch {
		case Pending(call.At(), i):
			waiting++
			kept++
		case !outdated(call.At(), i):
			kept++
		}
	}
	switch {
	case waiting >= MaxPending:
		return errTooMany
	case kept >= MaxInvitations:
		return errTooManyKept
	}
	return nil
}

func pendingOf(call entity.Call, s *workspacev1.Workspace, address string) *workspacev1.Invitation {
	for _, i := range s.GetInvitations() {
		if i.GetEmail() == address && Pending(call.At(), i) {
			return i
		}
	}
	return nil
}

// Pending tells whether an invitation waits for its answer at a time, in milliseconds since the Unix epoch.
func Pending(at int64, i *workspacev1.Invitation) bool {
	return i.GetRevokedAt() == 0 && i.GetConsumedAt() == 0 && at < i.GetExpiresAt()
}

// outdated tells whether an invitation has been settled for so long that it is forgotten.
func outdated(at int64, i *workspacev1.Invitation) bool {
	settled := i.GetExpiresAt()
	for _, earlier := range []int64{i.GetRevokedAt(), i.GetConsumedAt()} {
		if earlier != 0 {
			settled = min(settled, earlier)
		}
	}
	return at-settled > invitationRetention.Milliseconds()
}

// invited are the invitations with a new or renewed one, without those that were outdated when it was made.
func invited(all map[string]*workspacev1.Invitation, one *workspacev1.Invitation) map[string]*workspacev1.Invitation {
	next := entity.With(all, one.GetId(), one)
	maps.DeleteFunc(next, func(_ string, i *workspacev1.Invitation) bool { return outdated(one.GetCreatedAt(), i) })
	return next
}

// revokeInvitation. Errors: not_found, invitation_consumed.
func revokeInvitation(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.RevokeInvitation,
) ([]workspacev1.Event, error) {
	invitation, found := s.GetInvitations()[c.GetInvitationId()]
	switch {
	case !found:
		return nil, errNoInvitation
	case invitation.GetConsumedAt() != 0:
		return nil, errConsumed
	case invitation.GetRevokedAt() != 0:
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.InvitationRevoked{InvitationId: invitation.GetId(), At: call.At()}}, nil
}

// acceptInvitation lets in whom Check keeps out: the person whose address the invitation names. To all others it is not
// there. Errors: not_found, invitation_expired, invitation_revoked, workspace_suspended, workspace_closed.
func acceptInvitation(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.AcceptInvitation,
) ([]workspacev1.Event, error) {
	person := c.GetPerson()
	if !isPerson(call, person) {
		return nil, errNotThatPerson
	}
	invitation, found := s.GetInvitations()[c.GetInvitationId()]
	switch {
	case !found, deleted(s), person.GetEmail() != invitation.GetEmail():
		return nil, errNoInvitation
	case invitation.GetConsumedAt() != 0 && invitation.GetConsumedBy() == person.GetUserId():
		return nil, nil
	case invitation.GetConsumedAt() != 0:
		return nil, errNoInvitation
	case invitation.GetRevokedAt() != 0:
		return nil, errRevoked
	case !Pending(call.At(), invitation):
		return nil, errExpired
	}
	if err := takesChanges(s); err != nil {
		return nil, err
	}
	role := invitation.GetRole()
	if member, already := s.GetMembers()[person.GetUserId()]; already {
		role = member.GetRole()
	}
	return []workspacev1.Event{&workspacev1.InvitationAccepted{
		InvitationId: invitation.GetId(), Person: person, Role: role, At: call.At(), Position: call.Version, Slug: s.GetSlug(),
	}}, nil
}

func isPerson(call entity.Call, person *workspacev1.Person) bool {
	if person.GetUserId() == "" {
		return false
	}
	return entity.IsPlatform(call.Principal) ||
		entity.Human(call.Principal) && call.Principal.GetUserId() == person.GetUserId()
}

func accepted(next *workspacev1.Workspace, e *workspacev1.InvitationAccepted) {
	person := e.GetPerson()
	next.Invitations = altered(next.GetInvitations(), e.GetInvitationId(), func(i *workspacev1.Invitation) {
		i.ConsumedAt, i.ConsumedBy, i.AcceptedSlug = e.GetAt(), person.GetUserId(), e.GetSlug()
	})
	if _, already := next.GetMembers()[person.GetUserId()]; already {
		return
	}
	next.Members = entity.With(next.GetMembers(), person.GetUserId(), &workspacev1.Membership{
		UserId: person.GetUserId(), Role: e.GetRole(), JoinedAt: e.GetAt(),
		Email: person.GetEmail(), Name: person.GetName(), Position: e.GetPosition(),
	})
}
