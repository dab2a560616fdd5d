package workspace

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/email"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	// InvitationLifetime is the time after which an invitation expires.
	InvitationLifetime = 7 * 24 * time.Hour
	// invitationRetention is how long an invitation stays in the list after it was accepted or revoked, or
	// expired.
	invitationRetention = 30 * 24 * time.Hour
	// MaxPending is the greatest number of pending invitations, MaxInvitations the greatest number of invitations in the
	// list.
	MaxPending     = 1000
	MaxInvitations = 5000
	// maxReplaced is the number of replaced links of an invitation that are remembered, so that their page can say so.
	maxReplaced = 10
)

var (
	errNoInvitation   = entity.Errorf(entity.NotFound, "no such invitation")
	errNoInvitationID = entity.Errorf(entity.InvalidRequest, "invitationId is empty or already in use")
	errBeyondGrants   = entity.Errorf(entity.Forbidden, "the role has capabilities that the credential does not have")
	errInvitedRole    = entity.Errorf(entity.InvalidRequest, "role must be editor or viewer")
	errSecret         = entity.Errorf(entity.InvalidRequest, "secretSha256 is not a SHA-256 hash")
	errAlreadyMember  = entity.Errorf(entity.AlreadyMember, "email is the address of a member")
	errTooManyPending = entity.Errorf(entity.LimitReached, "a workspace has at most %d pending invitations", MaxPending)
	errTooManyListed  = entity.Errorf(entity.LimitReached, "a workspace can create at most %d invitations in 30 days", MaxInvitations)
	errConsumed       = entity.Errorf(entity.InvitationConsumed, "the invitation has been accepted")
	errRevoked        = entity.Errorf(entity.InvitationRevoked, "the invitation has been revoked")
	errExpired        = entity.Errorf(entity.InvitationExpired, "the invitation has expired")
	errNotInvited     = entity.Errorf(entity.Forbidden, "only the invited person can accept an invitation")
)

// invite creates an invitation, or renews the pending one of the same address. A command with the secret, role and inviter
// of the pending invitation is a repetition and has no effect. Errors: invalid_request, already_member, limit_reached.
func invite(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Invite) ([]workspacev1.Event, error) {
	if err := checkInvite(c); err != nil {
		return nil, err
	}
	if !mayGive(call.Principal, c.GetRole()) {
		return nil, errBeyondGrants
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
	before := pendingFor(call, s, address)
	if before == nil {
		if err := checkRoom(call, s, c.GetInvitationId()); err != nil {
			return nil, err
		}
		before = &workspacev1.Invitation{Id: c.GetInvitationId(), CreatedAt: call.At(), Position: call.Version}
	}
	next := proto.CloneOf(before)
	next.Email, next.Role = address, c.GetRole()
	next.SecretSha256, next.Inviter = c.GetSecretSha256(), c.GetInviter()
	next.InviterCredentialId = programOf(call.Principal)
	if proto.Equal(before, next) && len(next.GetSecretSha256()) > 0 {
		return nil, nil
	}
	if len(before.GetSecretSha256()) > 0 && !bytes.Equal(before.GetSecretSha256(), next.GetSecretSha256()) {
		next.ReplacedSha256 = append(next.GetReplacedSha256(), before.GetSecretSha256())
		next.ReplacedSha256 = next.GetReplacedSha256()[max(0, len(next.GetReplacedSha256())-maxReplaced):]
	}
	next.ExpiresAt = call.Now.Add(InvitationLifetime).UnixMilli()
	if end := call.Principal.GetExpiresAt(); end != 0 {
		next.ExpiresAt = min(next.GetExpiresAt(), end)
	}
	if proto.Equal(before, next) {
		return nil, nil
	}
	next.MailId, next.MailRequestedAt, next.Delivery = c.GetMailId(), 0, nil
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
	case len(c.GetSecretSha256()) != 0 && !entity.IsSHA256(c.GetSecretSha256()):
		return errSecret
	}
	return nil
}

// checkRoom returns an error if the workspace cannot have another invitation, with that id. Errors: invalid_request,
// limit_reached.
func checkRoom(call entity.Call, s *workspacev1.Workspace, id string) error {
	if _, used := s.GetInvitations()[id]; used {
		return errNoInvitationID
	}
	pending, listed := 0, 0
	for _, i := range s.GetInvitations() {
		switch {
		case Pending(call.At(), i):
			pending++
			listed++
		case !isOutdated(call.At(), i):
			listed++
		}
	}
	switch {
	case pending >= MaxPending:
		return errTooManyPending
	case listed >= MaxInvitations:
		return errTooManyListed
	}
	return nil
}

// pendingFor returns the pending invitation of an address, or nil.
func pendingFor(call entity.Call, s *workspacev1.Workspace, address string) *workspacev1.Invitation {
	for _, i := range s.GetInvitations() {
		if i.GetEmail() == address && Pending(call.At(), i) {
			return i
		}
	}
	return nil
}

// Pending reports whether an invitation can be accepted at a time, in milliseconds since the Unix epoch: it has not been
// accepted or revoked, and has not expired.
func Pending(at int64, i *workspacev1.Invitation) bool {
	return i.GetRevokedAt() == 0 && i.GetConsumedAt() == 0 && at < i.GetExpiresAt()
}

// isOutdated reports whether the retention of an invitation is over: it was accepted or revoked, or expired, too long ago.
func isOutdated(at int64, i *workspacev1.Invitation) bool {
	endedAt := i.GetExpiresAt()
	for _, earlier := range []int64{i.GetRevokedAt(), i.GetConsumedAt()} {
		if earlier != 0 {
			endedAt = min(endedAt, earlier)
		}
	}
	return at-endedAt > invitationRetention.Milliseconds()
}

// invitationsAfter returns the invitations after an invitation was created or renewed, without the invitations that were
// outdated then.
func invitationsAfter(all map[string]*workspacev1.Invitation, made *workspacev1.Invitation) map[string]*workspacev1.Invitation {
	next := entity.With(all, made.GetId(), made)
	maps.DeleteFunc(next, func(_ string, i *workspacev1.Invitation) bool { return isOutdated(made.GetCreatedAt(), i) })
	return next
}

// revokeInvitation revokes an invitation. Errors: not_found, invitation_consumed.
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

// An invitation ends when its inviter loses the right to invite: the inviter is removed or gets a role without that right, the account
// is disabled, the OAuth grant or the limited key with which the person invited is revoked, or the app that invited is disabled or removed,
// loses its folder or the scope to invite. The command that takes the right away revokes the pending invitations. An invitation that was
// sent with a limited key expires with the key at the latest. acceptInvitation refuses invitations that earlier versions left pending of
// people who lost the right, and invitations of an app without a folder: the key of the app ends a moment after its anchor breaks, and the
// app can invite in that moment.

// mayInvite reports whether members with a role may invite.
func mayInvite(role workspacev1.Role) bool {
	return role != workspacev1.Role_ROLE_VIEWER && hasCapability(unrestricted, role, entity.Members)
}

// isInviterAuthorized reports whether the inviter still may invite. An invitation without a person as inviter is of the
// workspace's computer or of the platform.
func isInviterAuthorized(s *workspacev1.Workspace, i *workspacev1.Invitation) bool {
	if program := i.GetInviterCredentialId(); app.IsID(program) && appByID(s, program).GetState() != active {
		return false
	}
	id := i.GetInviter().GetUserId()
	member := s.GetMembers()[id]
	return id == "" || mayInvite(member.GetRole()) && !member.GetDisabled()
}

// mayGive reports whether a principal may give a role, by an invitation or by a change of a role. A credential with grants (an OAuth grant,
// an app, an agent or a limited key) gives no role with a capability that its grants lack, because its holder could give the role to another
// account of their own.
func mayGive(p *wirev1.Principal, role workspacev1.Role) bool {
	return !slices.ContainsFunc(entity.Capabilities(unrestricted, role), func(c string) bool { return !entity.IsGranted(p, c) })
}

// programOf returns the id of the OAuth grant, the app or the limited key that a principal is; "" for other principals.
func programOf(p *wirev1.Principal) string {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP,
		wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:
		return p.GetCredentialId()
	default:
		return ""
	}
}

// revokeInvitationsBy returns the events that revoke the pending invitations of an inviter.
func revokeInvitationsBy(call entity.Call, s *workspacev1.Workspace, userID string) []workspacev1.Event {
	return revokePending(call, s, func(i *workspacev1.Invitation) bool { return i.GetInviter().GetUserId() == userID })
}

// revokeInvitationsOfApp returns the events that revoke the pending invitations of the app of an anchor that breaks. The key of the app
// ends later: the app learns from a reaction that its folder does not exist.
func revokeInvitationsOfApp(call entity.Call, s *workspacev1.Workspace, anchor *workspacev1.Anchor) []workspacev1.Event {
	return endInvitations(call, s, &workspacev1.EndInvitations{CredentialId: anchor.GetApp().GetId()})
}

// endInvitations revokes the pending invitations that an OAuth grant, an app or a limited key has sent.
func endInvitations(call entity.Call, s *workspacev1.Workspace, c *workspacev1.EndInvitations) []workspacev1.Event {
	if c.GetCredentialId() == "" {
		return nil
	}
	return revokePending(call, s, func(i *workspacev1.Invitation) bool { return i.GetInviterCredentialId() == c.GetCredentialId() })
}

// revokePending returns the events that revoke the selected pending invitations, in the order of their ids.
func revokePending(call entity.Call, s *workspacev1.Workspace, selected func(*workspacev1.Invitation) bool) []workspacev1.Event {
	var events []workspacev1.Event
	for _, id := range slices.Sorted(maps.Keys(s.GetInvitations())) {
		if i := s.GetInvitations()[id]; Pending(call.At(), i) && selected(i) {
			events = append(events, &workspacev1.InvitationRevoked{InvitationId: id, At: call.At()})
		}
	}
	return events
}

// acceptInvitation makes the invited person a member. It authorizes the sender itself, because Check refuses people who
// are not members: the address of the person must be the address of the invitation. For all other people the invitation
// does not exist. A member who accepts an invitation keeps the present role. Errors: forbidden, not_found,
// invitation_expired, invitation_revoked, workspace_suspended, workspace_closed.
func acceptInvitation(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.AcceptInvitation,
) ([]workspacev1.Event, error) {
	person := c.GetPerson()
	if !isSenderOrPlatform(call, person) {
		return nil, errNotInvited
	}
	invitation, found := s.GetInvitations()[c.GetInvitationId()]
	switch {
	case !found, isDeleted(s), person.GetEmail() != invitation.GetEmail():
		return nil, errNoInvitation
	case invitation.GetConsumedAt() != 0 && invitation.GetConsumedBy() == person.GetUserId():
		return nil, nil
	case invitation.GetConsumedAt() != 0:
		return nil, errNoInvitation
	case invitation.GetRevokedAt() != 0, !isInviterAuthorized(s, invitation):
		return nil, errRevoked
	case !Pending(call.At(), invitation):
		return nil, errExpired
	}
	if err := checkAcceptsChanges(s); err != nil {
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

// isSenderOrPlatform reports whether a person has sent the command, or the platform has.
func isSenderOrPlatform(call entity.Call, person *workspacev1.Person) bool {
	if person.GetUserId() == "" {
		return false
	}
	return entity.IsPlatform(call.Principal) ||
		entity.Human(call.Principal) && call.Principal.GetUserId() == person.GetUserId()
}

func applyAccepted(next *workspacev1.Workspace, e *workspacev1.InvitationAccepted) {
	person := e.GetPerson()
	next.Invitations = entity.WithChanged(next.GetInvitations(), e.GetInvitationId(), func(i *workspacev1.Invitation) {
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

// reportInvitationMailed completes the task that mails an invitation. A report of another mail has no effect.
func reportInvitationMailed(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReportInvitationMailed) []workspacev1.Event {
	if i := s.GetInvitations()[c.GetInvitationId()]; i.GetMailId() == "" || i.GetMailId() != c.GetMailId() {
		return nil
	}
	return []workspacev1.Event{&workspacev1.InvitationMailed{
		InvitationId: c.GetInvitationId(), MailId: c.GetMailId(), GivenUp: c.GetGivenUp(), Refusal: c.GetRefusal(), At: call.At(),
	}}
}
