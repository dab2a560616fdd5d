package http

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type workspaceRequest struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
}

type workspaceCreated struct {
	WorkspaceID string `json:"workspaceId"`
	Slug        string `json:"slug"`
	Status      string `json:"status"`
}

// decodeWorkspace refuses whoever acts for less than the whole of a person, to whom a workspace belongs, before it looks
// at what they send.
func decodeWorkspace(c *call) (workspaceRequest, error) {
	if !entity.Human(c.caller.principal) {
		return workspaceRequest{}, errForbidden
	}
	return body[workspaceRequest](c)
}

// createWorkspace claims the slug; the workspace and its creator's membership follow from that, and the answer waits for
// them.
func (s *Server) createWorkspace(c *call, in workspaceRequest) (workspaceCreated, error) {
	var none workspaceCreated
	switch {
	case in.Slug == "":
		return none, invalid("slug is required")
	case in.Name == "":
		return none, invalid("name is required")
	}
	if err := slug.Check(in.Slug); err != nil { // no entity is woken for a name that no workspace can have
		return none, err
	}
	creator, err := c.describeCaller()
	if err != nil {
		return none, err
	}
	id := s.options.NewID("ws_")
	if err := c.reserveWorkspace(creator.GetId(), id); err != nil {
		return none, err
	}
	if err := c.claimSlug(in.Slug, &slugv1.ClaimSlug{
		WorkspaceId: id, WorkspaceName: in.Name, CreatorId: creator.GetId(),
		CreatorEmail: creator.GetEmail(), CreatorName: creator.GetName(),
		ImpersonatorId: c.caller.principal.GetImpersonatorId(),
	}); err != nil {
		if entity.IsRefusal(err) { // else the workspace may come to be yet
			c.forgetWorkspace(creator.GetId(), id)
		}
		return none, err
	}
	return workspaceCreated{id, in.Slug, statusNames[workspacev1.Status_STATUS_PROVISIONING]}, nil
}

// reserveWorkspace takes a place among the workspaces that a person may have created. Errors: limit_reached.
func (c *call) reserveWorkspace(userID, id string) error {
	limit := c.server.options.Limits.Workspaces
	if limit < 0 {
		return nil
	}
	_, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"),
		Message: &userv1.ReserveWorkspace{WorkspaceId: id, Limit: int32(limit)},
	})
	return err
}

// forgetWorkspace gives the place of a workspace back that is not created. Where that fails it is given back by itself.
func (c *call) forgetWorkspace(userID, id string) {
	if _, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"),
		Message: &userv1.ForgetWorkspace{WorkspaceId: id},
	}); err != nil {
		c.server.log.Warn("the place of a workspace that was not created stays taken for minutes", "request", c.w.id, "error", err)
	}
}

// claimSlug takes a slug for a workspace, and waits for what follows from that for both.
func (c *call) claimSlug(name string, claim *slugv1.ClaimSlug) error {
	if _, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"),
		Message: claim,
	}); err != nil {
		return err
	}
	c.server.workspaces.forget(name)
	if err := c.settle(entity.KindSlug, name); err != nil {
		return err
	}
	return c.settle(entity.KindWorkspace, claim.GetWorkspaceId())
}
