package http

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
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
	if err := c.claimSlug(in.Slug, &slugv1.ClaimSlug{
		WorkspaceId: id, WorkspaceName: in.Name, CreatorId: creator.GetId(),
		CreatorEmail: creator.GetEmail(), CreatorName: creator.GetName(),
		ImpersonatorId: c.caller.principal.GetImpersonatorId(),
	}); err != nil {
		return none, err
	}
	return workspaceCreated{id, in.Slug, statusNames[workspacev1.Status_STATUS_PROVISIONING]}, nil
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
