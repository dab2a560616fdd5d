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
			Message: &workspacev1.RenameWorkspace{Name: name},
		})
		return done, err
	}
	if err := c.checkLetGo(in.Slug); err != nil {
		return workspaceRenamed{}, err
	}
	if err := c.claimSlug(in.Slug, &slugv1.ClaimSlug{
		WorkspaceId: c.workspace.id, Rename: &slugv1.Rename{Principal: c.caller.principal, Name: name},
	}); err != nil {
		return workspaceRenamed{}, err
	}
	s.workspaces.forget(now.GetSlug())
	s.workspaces.forget(c.workspace.slug)
	return done, c.renamedTo(in.Slug)
}

// checkLetGo has a rename wait that comes back to a slug which a rename under way is about to give up: a claim to what
// is still held would come to nothing, and the slug be given up all the same.
func (c *call) checkLetGo(name string) error {
	found, err := ask[*slugv1.Slug](c, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	if err == nil && found.GetWorkspaceId() == c.workspace.id {
		return errOverloaded
	}
	return err
}

// renamedTo tells what became of a claim to a slug: the workspace's, or else refused by it. Where another rename came
// behind this one, or what refused it has changed since, it is to be tried again.
func (c *call) renamedTo(name string) error {
	c.server.workspaces.forget(name)
	now, err := c.describeWorkspace()
	if err != nil || now.GetSlug() == name {
		return err
	}
	if err := c.authorize(); err != nil {
		return err
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
