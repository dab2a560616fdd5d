package email

import (
	"github.com/atelier-run/atelier/entity"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// React returns the commands that follow from an event: the owner of a claimed address is created.
func React(_ string, event emailv1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *emailv1.EmailClaimed:
		return []entity.Reaction{entity.Send(entity.KindUser, e.GetUserId(), &userv1.CreateUser{Email: e.GetAddress(), Name: e.GetName()})}
	default:
		return nil
	}
}
