package http

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// workspace is what a slug in a path stands for.
type workspace struct {
	id, slug string
	cursor   activity.Cursor
}

// knownSlugs bounds how many slugs are remembered.
const knownSlugs = 50_000

// admit authenticates the request and holds it against the operation's scope. What a capability in the workspace
// allows is refused by the entity that is asked, or by authorize where none is.
func (c *call) admit() error {
	if c.operation.scope == public || c.operation.scope == operator {
		return nil
	}
	caller, err := c.server.authenticator.authenticate(c.r, c.w.overDrive())
	if err != nil {
		return err
	}
	c.caller, c.w.caller = caller, caller
	limits := c.server.options.Limits
	if wait := caller.rate.take(c.server.now(), limits.Rate, limits.Burst); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests with this credential", RetryAfter: wait}
	}
	if c.operation.scope == human && !entity.Human(caller.principal) {
		return errForbidden
	}
	if c.operation.scope.capability() == "" {
		return nil
	}
	c.workspace, err = c.server.findWorkspace(c.ctx, c.variable("workspaceSlug"))
	return err
}

// authorize asks the workspace whether the caller may use a capability.
func (c *call) authorize(capability string) error {
	_, err := ask[*workspacev1.Authorized](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.workspace.id,
		Message: &workspacev1.Authorize{Capability: capability},
	})
	return err
}

func (s *Server) findWorkspace(ctx context.Context, name string) (*workspace, error) {
	if slug.Check(name) != nil { // no entity is woken for a name that no workspace can have
		return nil, errNotFound
	}
	return s.workspaces.lookup(ctx, name)
}

func (s *Server) resolveSlug(ctx context.Context, name string, old *workspace) (*workspace, error) {
	found, err := asked[*slugv1.Slug](s.options.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	}))
	switch {
	case err != nil:
		return nil, err
	case found.GetWorkspaceId() == "":
		return nil, errNotFound
	case old != nil && old.id == found.GetWorkspaceId():
		return old, nil
	}
	id := found.GetWorkspaceId()
	return &workspace{id, name, activity.NewCursor(s.options.Secret, id)}, nil
}
