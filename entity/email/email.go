// Package email implements the rules of email addresses. An address belongs to at most one user, and stores the invitations
// that workspaces have sent to it.
//
//	free ──ClaimEmail──► taken
//
// The identity of the entity is the address in lower case (address.go), so its stream orders concurrent claims and the
// first one wins. Invitations are stored before and after the address is claimed. Only the platform sends commands to it.
package email

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// MaxInvitations is the greatest number of invitations that an address stores, see invitationToEvict.
const MaxInvitations = 1000

var (
	errTaken      = entity.Errorf(entity.EmailTaken, "email belongs to another account")
	errNoUser     = entity.Errorf(entity.InvalidRequest, "userId is empty")
	errInvitation = entity.Errorf(entity.InvalidRequest, "invitationId and workspaceId must have 1 to %d bytes", entity.MaxIDLength)
	errInviter    = entity.Errorf(entity.InvalidRequest, "inviterId must have at most %d bytes", entity.MaxIDLength)
)

// Zero returns the state before the first event.
func Zero(identity string) *emailv1.Email {
	return &emailv1.Email{Address: identity}
}

// Kind describes email addresses to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of email addresses.
var Rules = entity.Rules[*emailv1.Email, emailv1.Command, emailv1.Event]{
	Name: entity.KindEmail, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply, React: React,
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: email_taken, invalid_request.
func Decide(call entity.Call, s *emailv1.Email, c emailv1.Command) ([]emailv1.Event, error) {
	switch c := c.(type) {
	case *emailv1.ClaimEmail:
		return claim(call, s, c)
	case *emailv1.AddInvitation:
		return addInvitation(call, s, c)
	case *emailv1.ResolveEmail:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindEmail, c)
}

// Evolve returns the state after an event.
func Evolve(s *emailv1.Email, e emailv1.Event) *emailv1.Email {
	switch e := e.(type) {
	case *emailv1.EmailClaimed:
		next := entity.ShallowCopy(s)
		next.Address, next.UserId = e.GetAddress(), e.GetUserId()
		return next
	case *emailv1.InvitationAdded:
		return applyInvitationAdded(s, e)
	}
	return s
}

// React returns the commands that follow from an event: a claimed address creates the user that claimed it.
func React(_ string, event emailv1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *emailv1.EmailClaimed:
		return []entity.Reaction{entity.Send(entity.KindUser, e.GetUserId(), &userv1.CreateUser{Email: e.GetAddress(), Name: e.GetName()})}
	default:
		return nil
	}
}

// Reply returns the state for every command.
func Reply(_ entity.Call, s *emailv1.Email, c emailv1.Command, _ []emailv1.Event) proto.Message {
	switch c.(type) {
	case *emailv1.ClaimEmail, *emailv1.ResolveEmail, *emailv1.AddInvitation:
	}
	return s
}

// claim assigns the address to a user. Errors: invalid_request, email_taken.
func claim(call entity.Call, s *emailv1.Email, c *emailv1.ClaimEmail) ([]emailv1.Event, error) {
	switch {
	case c.GetUserId() == "":
		return nil, errNoUser
	case c.GetUserId() == s.GetUserId():
		return nil, nil
	}
	if err := Check(call.Identity); err != nil {
		return nil, err
	}
	if err := entity.CheckName(c.GetName()); err != nil {
		return nil, err
	}
	if s.GetUserId() != "" {
		return nil, errTaken
	}
	return []emailv1.Event{&emailv1.EmailClaimed{
		Address: call.Identity,
		UserId:  c.GetUserId(),
		Name:    c.GetName(),
		At:      call.At(),
	}}, nil
}

// addInvitation adds an invitation, or updates a renewed one that has another inviter now or was evicted.
func addInvitation(call entity.Call, s *emailv1.Email, c *emailv1.AddInvitation) ([]emailv1.Event, error) {
	switch {
	case !entity.IsID(c.GetInvitationId()), !entity.IsID(c.GetWorkspaceId()):
		return nil, errInvitation
	case len(c.GetInviterId()) > entity.MaxIDLength:
		return nil, errInviter
	}
	if _, stored := s.GetInvitations()[c.GetInvitationId()]; stored && s.GetInviters()[c.GetInvitationId()] == c.GetInviterId() {
		return nil, nil
	}
	if err := Check(call.Identity); err != nil {
		return nil, err
	}
	return []emailv1.Event{&emailv1.InvitationAdded{
		InvitationId: c.GetInvitationId(), WorkspaceId: c.GetWorkspaceId(), InviterId: c.GetInviterId(),
	}}, nil
}

func applyInvitationAdded(s *emailv1.Email, e *emailv1.InvitationAdded) *emailv1.Email {
	next := entity.ShallowCopy(s)
	next.Invitations = entity.With(s.GetInvitations(), e.GetInvitationId(), e.GetWorkspaceId())
	next.Inviters = entity.With(s.GetInviters(), e.GetInvitationId(), e.GetInviterId())
	if len(next.GetInvitations()) > MaxInvitations {
		evicted := invitationToEvict(next, e.GetInvitationId())
		delete(next.GetInvitations(), evicted)
		delete(next.GetInviters(), evicted)
	}
	return next
}

// invitationToEvict returns the id of the oldest invitation of the inviter with the most invitations, so that no inviter
// can evict the invitations of others. If several inviters have as many, it returns the oldest of all their invitations.
// Ids are in the order of creation. The invitation added last is never evicted: a renewed one may have a low id.
func invitationToEvict(s *emailv1.Email, added string) string {
	count := map[string]int{}
	for id := range s.GetInvitations() {
		count[inviterOf(s, id)]++
	}
	others := maps.Keys(entity.Without(s.GetInvitations(), added))
	return slices.MinFunc(slices.Collect(others), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[inviterOf(s, b)], count[inviterOf(s, a)]), cmp.Compare(a, b))
	})
}

// inviterOf returns the user id of an invitation's inviter, or the workspace id if the inviter is not known.
func inviterOf(s *emailv1.Email, id string) string {
	return cmp.Or(s.GetInviters()[id], s.GetInvitations()[id])
}
