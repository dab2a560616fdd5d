// Package email holds the rules of an email address, which names at most one person, and of the invitations to it.
//
//	free ──ClaimEmail──► taken
//
// An address's identity is its lower-case text (check.go), so that its one stream settles who of several claimants wins.
// It keeps which workspaces invited it, whether or not it is anybody's yet (invitations.go). The platform alone asks it.
package email

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

var (
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of an email address")
	errTaken          = entity.Errorf(entity.EmailTaken, "email is another person's")
	errNoUser         = entity.Errorf(entity.InvalidRequest, "userId is empty")
)

// Zero is the state before the first event.
func Zero(identity string) *emailv1.Email {
	return &emailv1.Email{Address: identity}
}

// Kind describes an email address, to which the platform alone sends commands.
var Kind = rules.Kind()

var rules = entity.Rules[*emailv1.Email, emailv1.Command, emailv1.Event]{
	Name: entity.KindEmail, Zero: Zero, Decide: decide, Evolve: Evolve, Reply: Reply, React: React,
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: email_taken, invalid_request, forbidden.
func Decide(call entity.Call, s *emailv1.Email, c emailv1.Command) ([]emailv1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *emailv1.Email, c emailv1.Command) ([]emailv1.Event, error) {
	switch c := c.(type) {
	case *emailv1.ClaimEmail:
		return claim(call, s, c)
	case *emailv1.AddInvitation:
		return addInvitation(call, s, c)
	case *emailv1.ResolveEmail:
		return nil, nil
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event.
func Evolve(s *emailv1.Email, e emailv1.Event) *emailv1.Email {
	switch e := e.(type) {
	case *emailv1.EmailClaimed:
		return &emailv1.Email{
			Address: e.GetAddress(), UserId: e.GetUserId(), Invitations: s.GetInvitations(), Inviters: s.GetInviters(),
		}
	case *emailv1.InvitationAdded:
		return invitationAdded(s, e)
	}
	return s
}

// React returns the commands that follow from an event: the owner of a claimed address is created.
func React(_ string, event emailv1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *emailv1.EmailClaimed:
		return []entity.Reaction{entity.Send(entity.KindUser, e.GetUserId(), &userv1.CreateUser{Email: e.GetAddress(), Name: e.GetName()})}
	default:
		return nil
	}
}

// Reply is the state for every command.
func Reply(_ entity.Call, s *emailv1.Email, c emailv1.Command, _ []emailv1.Event) proto.Message {
	switch c.(type) {
	case *emailv1.ClaimEmail, *emailv1.ResolveEmail, *emailv1.AddInvitation:
	}
	return s
}

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
	if err := user.CheckName(c.GetName()); err != nil {
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
