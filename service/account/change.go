package account

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
)

// Changes are changes of an account by an operator. A nil field changes nothing.
type Changes struct {
	Disabled, InternalAdmin *bool
	// Unlinked removes the link to the provider's subject and ends the browser sessions; the next sign-in links a subject again.
	Unlinked bool
}

// Change changes an account, as the platform. When it returns, this member applies the changes; other members do so within a second. Errors:
// not_found.
func Change(r service.Request, userID string, in Changes) error {
	var changes []proto.Message
	switch {
	case in.Disabled == nil:
	case *in.Disabled:
		changes = append(changes, &userv1.Disable{})
	default:
		changes = append(changes, &userv1.Enable{})
	}
	if in.InternalAdmin != nil {
		changes = append(changes, &userv1.SetInternalAdmin{InternalAdmin: *in.InternalAdmin})
	}
	if in.Unlinked {
		changes = append(changes, &userv1.UnlinkIdentities{})
	}
	for _, m := range changes {
		if _, err := r.Ask(service.PlatformCommand(r, entity.KindUser, userID, m)); err != nil {
			return err
		}
	}
	err := r.Settle(entity.KindUser, userID) // reactions revoke the credentials of sessions that end
	r.InvalidateUser(userID, in.Unlinked || in.Disabled != nil && *in.Disabled)
	return err
}
