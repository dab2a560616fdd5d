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
	switch c.operation.scope {
	case operator, probe:
		return nil
	case public:
		return c.stranger()
	}
	if err := c.identify(); err != nil {
		return err
	}
	if c.operation.scope == human && !entity.Human(c.caller.principal) {
		return errForbidden
	}
	if !c.operation.inWorkspace {
		return nil
	}
	var err error
	c.workspace, err = c.server.findWorkspace(c.ctx, c.variable("workspaceSlug"))
	c.w.workspace = c.workspace
	return err
}

// identify authenticates the request and counts it against its credential's rate.
func (c *call) identify() error {
	k, err := c.presented()
	if err != nil {
		return err
	}
	caller, err := c.server.authenticator.authenticate(c.ctx, k, c.stranger)
	if err != nil {
		return err
	}
	c.caller, c.w.caller = caller, caller
	limits := c.server.options.Limits
	if wait := caller.rate.take(c.server.now(), limits.Rate, limits.Burst); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests with this credential", RetryAfter: wait}
	}
	return nil
}

// authorize asks the workspace whether the caller has what the operation needs.
func (c *call) authorize() error {
	_, err := c.authorized()
	return err
}

// authorized is authorize, and returns the caller's role and capabilities.
func (c *call) authorized() (*workspacev1.Authorized, error) {
	return ask[*workspacev1.Authorized](c, c.operation.authorization(c.workspace.id))
}

// authorization is the question to a workspace whether a caller has what the operation needs.
func (op *operation) authorization(workspaceID string) entity.Command {
	return entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID,
		Message: &workspacev1.Authorize{Any: op.need.Any, Changes: op.need.Changes},
	}
}

// confirm authenticates and authorizes the caller again, past what is remembered of the credential.
func (c *call) confirm() error {
	if err := c.server.authenticator.current(c.ctx, c.caller); err != nil {
		return err
	}
	return c.authorize()
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
