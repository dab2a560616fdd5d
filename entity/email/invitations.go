package email

import (
	"cmp"
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
)

// MaxInvitations is how many are kept. Where there would be one more, the oldest goes of whoever invited most often, so
// that nobody crowds out what others sent.
const MaxInvitations = 1000

const maxIDLength = 128

var (
	errInvitation = entity.Errorf(entity.InvalidRequest, "invitationId or workspaceId is empty or too long")
	errInviter    = entity.Errorf(entity.InvalidRequest, "inviterId must have at most %d bytes", maxIDLength)
)

// addInvitation takes in a renewed invitation too, where it is kept no longer or as another's.
func addInvitation(call entity.Call, s *emailv1.Email, c *emailv1.AddInvitation) ([]emailv1.Event, error) {
	switch {
	case !isID(c.GetInvitationId()), !isID(c.GetWorkspaceId()):
		return nil, errInvitation
	case len(c.GetInviterId()) > maxIDLength:
		return nil, errInviter
	}
	if _, kept := s.GetInvitations()[c.GetInvitationId()]; kept && s.GetInviters()[c.GetInvitationId()] == c.GetInviterId() {
		return nil, nil
	}
	if err := Check(call.Identity); err != nil {
		return nil, err
	}
	return []emailv1.Event{&emailv1.InvitationAdded{
		InvitationId: c.GetInvitationId(), WorkspaceId: c.GetWorkspaceId(), InviterId: c.GetInviterId(),
	}}, nil
}

func isID(id string) bool { return id != "" && len(id) <= maxIDLength }

func invitationAdded(s *emailv1.Email, e *emailv1.InvitationAdded) *emailv1.Email {
	next := &emailv1.Email{
		Address: s.GetAddress(), UserId: s.GetUserId(),
		Invitations: entity.With(s.GetInvitations(), e.GetInvitationId(), e.GetWorkspaceId()),
		Inviters:    entity.With(s.GetInviters(), e.GetInvitationId(), e.GetInviterId()),
	}
	if len(next.GetInvitations()) > MaxInvitations {
		gone := crowded(next, e.GetInvitationId())
		delete(next.GetInvitations(), gone)
		delete(next.GetInviters(), gone)
	}
	return next
}

// crowded is the oldest invitation, which has the lowest id, of whoever has most; of several such inviters it is the
// oldest of all. The one that was just added stays: a renewal has the id of its first making.
func crowded(s *emailv1.Email, just string) string {
	count := map[string]int{}
	for id := range s.GetInvitations() {
		count[inviterOf(s, id)]++
	}
	others := maps.Keys(entity.Without(s.GetInvitations(), just))
	return slices.MinFunc(slices.Collect(others), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[inviterOf(s, b)], count[inviterOf(s, a)]), cmp.Compare(a, b))
	})
}

// inviterOf is who invited, or the workspace where no person is known to have.
func inviterOf(s *emailv1.Email, id string) string {
	return cmp.Or(s.GetInviters()[id], s.GetInvitations()[id])
}
