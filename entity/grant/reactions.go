package grant

import (
	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// React returns the commands that follow from an event: a revoked grant leaves the list of the person who allowed it. A
// grant that was revoked before it was opened is in nobody's list.
func React(identity string, event grantv1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *grantv1.Revoked:
		if e.GetUserId() == "" {
			return nil
		}
		return []entity.Reaction{entity.Send(entity.KindUser, e.GetUserId(), &userv1.RevokeGrant{GrantId: identity})}
	default:
		return nil
	}
}
