package http

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	rules "github.com/atelier-run/atelier/entity/workspace"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type renameRequest struct {
	Slug                       string  `json:"slug"`
	PublicURLBreakAcknowledged *bool   `json:"publicUrlBreakAcknowledged"`
	Name                       *string `json:"name"`
}

type workspaceRenamed struct {
	OK               bool `json:"ok"`
	BreaksPublicURLs bool `json:"breaksPublicUrls"`
}

func checkRename(in *renameRequest) error {
	switch {
	case in.Slug == "":
		return invalid("slug is required")
	case in.PublicURLBreakAcknowledged == nil:
		return invalid("publicUrlBreakAcknowledged is required")
	case !*in.PublicURLBreakAcknowledged:
		return invalid("publicUrlBreakAcknowledged must be true")
	}
	if err := slug.Check(in.Slug); err != nil {
		return err
	}
	if in.Name == nil {
		return nil
	}
	if err := rules.CheckName(*in.Name); err != nil {
		return err
	}
	return nil
}

// renameWorkspace claims the new slug; that the workspace gets it, and gives the old one up, follows from that. Where the
// slug is the workspace's already, only the name changes.
func (s *Server) renameWorkspace(c *call, in renameRequest) (workspaceRenamed, error) {
	done := workspaceRenamed{true, true}
	if err := c.authorize(); err != nil {
		return workspaceRenamed{}, err
	}
	now, err := c.describeWorkspace()
	if err != nil {
		return workspaceRenamed{}, err
	}
	name := ""
	if in.Name != nil {
		name = *in.Name
	}
	if in.Slug == now.GetSlug() {
		_, err := ask[proto.Message](c, entity.Command{
			Kind: entity.KindWorkspace, Identity: c.workspace.id, ID: s.options.NewID("cmd_"),
			Message: &workspacev1.RenameWorkspace{Slug: in.Slug, Name: name, NameOnly: true},
		})
		return done, err
	}
	claim := s.options.NewID("cmd_")
	if err := c.claimSlug(in.Slug, &slugv1.ClaimSlug{
		WorkspaceId: c.workspace.id, Rename: &slugv1.Rename{Id: claim, Principal: c.caller.principal, Name: name},
	}); err != nil {
		return workspaceRenamed{}, err
	}
	s.workspaces.forget(now.GetSlug())
	s.workspaces.forget(c.workspace.slug)
	return done, c.renamedBy(claim, in.Slug)
}

// renamedBy tells what became of a claim to a slug: taken, though another rename may have followed it already, or refused
// by the workspace. Behind a later claim to the same slug it is not known any more.
func (c *call) renamedBy(claim, name string) error {
	c.server.workspaces.forget(name)
	found, err := ask[*slugv1.Slug](c, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	switch {
	case err != nil:
		return err
	case found.GetRefusedClaimId() == claim:
		if err := c.authorize(); err != nil {
			return err
		}
	case found.GetClaimId() == claim:
		return nil
	}
	return errOverloaded
}

// describeWorkspace is the path's workspace as the platform sees it, for who has been let in.
func (c *call) describeWorkspace() (*workspacev1.Workspace, error) {
	return c.workspaceOf(c.workspace.id)
}

func (c *call) workspaceOf(id string) (*workspacev1.Workspace, error) {
	found, err := ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: id, Principal: entity.Platform(), Message: &workspacev1.DescribeWorkspace{},
	})
	return found.GetWorkspace(), err
}
