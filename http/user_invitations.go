package http

import (
	"maps"
	"slices"

	"github.com/atelier-run/atelier/entity"
	rules "github.com/atelier-run/atelier/entity/workspace"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type addressedView struct {
	ID        string       `json:"id"`
	Workspace invitingView `json:"workspace"`
	Inviter   *inviterView `json:"inviter"`
	Role      string       `json:"role"`
	ExpiresAt int64        `json:"expiresAt"`
}

type invitingView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Slug string `json:"slug"`
}

type inviterView struct {
	Email string `json:"email"`
	Name  string `json:"name,omitzero"`
}

type invitationAccepted struct {
	WorkspaceID   string `json:"workspaceId"`
	WorkspaceSlug string `json:"workspaceSlug"`
}

// addressed are the workspaces that invited an address, by invitation.
func (c *call) addressed(address string) (map[string]string, error) {
	found, err := c.resolveEmail(address)
	return found.GetInvitations(), err
}

// mostLooks bounds the invitations that one page looks at.
const mostLooks = 200

// listUserInvitations goes through what the caller's address was sent, in the order of its making, and shows what is
// pending. A page that has looked at many that are not is short.
func (s *Server) listUserInvitations(c *call, in listing) (collection[addressedView], error) {
	var none collection[addressedView]
	user, err := c.describeCaller()
	if err != nil {
		return none, err
	}
	from, err := c.addressed(user.GetEmail())
	if err != nil {
		return none, err
	}
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(id string) bool { return id <= in.after })
	items, next := []addressedView{}, ""
	for looks := 0; len(ids) > 0 && len(items) < int(in.limit) && looks < mostLooks; {
		some := ids[:min(len(ids), int(in.limit)-len(items))]
		found, err := c.describeAllPending(from, some)
		if err != nil {
			return none, err
		}
		items, looks, ids = append(items, found...), looks+len(some), ids[len(some):]
		next = some[len(some)-1]
	}
	if len(ids) == 0 {
		next = ""
	}
	return page(c, in, items, next), nil
}

func (c *call) describeAllPending(from map[string]string, ids []string) ([]addressedView, error) {
	shown := make([]*addressedView, len(ids))
	err := each(len(ids), func(i int) (err error) {
		shown[i], err = c.describePending(from[ids[i]], ids[i])
		return err
	})
	var items []addressedView
	for _, item := range shown {
		if item != nil {
			items = append(items, *item)
		}
	}
	return items, err
}

// describePending is an invitation that can be accepted; nil: it cannot.
func (c *call) describePending(workspaceID, id string) (*addressedView, error) {
	w, err := c.workspaceOf(workspaceID)
	if hidden(err) || err == nil && w.GetStatus() == workspacev1.Status_STATUS_DELETED {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i, err := c.describeInvitation(workspaceID, id)
	if hidden(err) || err == nil && !rules.Pending(c.server.now().UnixMilli(), i) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	view := &addressedView{
		ID: id, Workspace: invitingView{w.GetId(), w.GetName(), w.GetSlug()}, Role: roleNames[i.GetRole()], ExpiresAt: i.GetExpiresAt(),
	}
	if inviter := i.GetInviter(); inviter.GetEmail() != "" {
		view.Inviter = &inviterView{inviter.GetEmail(), inviter.GetName()}
	}
	return view, nil
}

func (c *call) describeInvitation(workspaceID, id string) (*workspacev1.Invitation, error) {
	return ask[*workspacev1.Invitation](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(),
		Message: &workspacev1.DescribeInvitation{InvitationId: id},
	})
}

// acceptInvitation answers when the workspace is among the caller's, and ever after the same.
func (s *Server) acceptInvitation(c *call, _ none) (invitationAccepted, error) {
	var none invitationAccepted
	user, err := c.describeCaller()
	if err != nil {
		return none, err
	}
	from, err := c.addressed(user.GetEmail())
	if err != nil {
		return none, err
	}
	id := c.variable("inviteId")
	workspaceID := from[id]
	if workspaceID == "" {
		return none, errNotFound
	}
	slug, err := c.accept(workspaceID, id, user, c.caller.principal)
	return invitationAccepted{workspaceID, slug}, err
}

// accept makes a person a member, as a principal that acts for them, and tells the workspace's slug as it was then.
func (c *call) accept(workspaceID, id string, user *userv1.User, as *wirev1.Principal) (slug string, err error) {
	accepted, err := ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: as, ID: c.server.options.NewID("cmd_"),
		Message: &workspacev1.AcceptInvitation{InvitationId: id, Person: personOf(user)},
	})
	if err != nil {
		return "", err
	}
	return accepted.GetWorkspace().GetSlug(), c.settle(entity.KindWorkspace, workspaceID)
}
