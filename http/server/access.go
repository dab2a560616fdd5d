package server

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/slug"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Workspace is what a slug in a path stands for.
type Workspace struct {
	ID, Slug string
	Cursor   activity.Cursor
}

// knownSlugs bounds how many slugs are remembered.
const maxSlugs = 50_000

// admit authenticates the request and holds it against the operation's scope. What a capability in the workspace
// allows is refused by the entity that is asked, or by authorize where none is.
func (c *Call) admit() error {
	switch c.operation.Scope {
	case ScopeOperator, ScopeProbe:
		return nil
	case ScopePublic:
		return c.limitAddress()
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	if c.operation.Scope == ScopeHuman && !entity.Human(c.Caller.Principal) {
		return ErrForbidden
	}
	if !c.operation.inWorkspace {
		return nil
	}
	var err error
	c.Workspace, err = c.server.findWorkspace(c.Context, c.Variable("workspaceSlug"))
	c.Response.workspace = c.Workspace
	return err
}

// identify authenticates the request and counts it against its credential's rate.
func (c *Call) authenticate() error {
	k, err := c.readKey()
	if err != nil {
		return err
	}
	caller, err := c.server.authenticator.authenticate(c.Context, k, c.limitAddress)
	if err != nil {
		return err
	}
	c.Caller, c.Response.caller = caller, caller
	limits := c.server.options.Limits
	if wait := caller.rate.Take(c.server.now(), limits.Rate, limits.Burst); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests with this credential", RetryAfter: wait}
	}
	return nil
}

// Authorize asks the workspace whether the caller has what the operation needs.
func (c *Call) Authorize() error {
	_, err := c.FetchAuthorization()
	return err
}

// Authorized is authorize, and returns the caller's role and capabilities.
func (c *Call) FetchAuthorization() (*workspacev1.Authorized, error) {
	return Ask[*workspacev1.Authorized](c, c.operation.authorizeCommand(c.Workspace.ID))
}

// authorization is the question to a workspace whether a caller has what the operation needs.
func (op *operation) authorizeCommand(workspaceID string) entity.Command {
	return entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID,
		Message: &workspacev1.Authorize{Any: op.need.Any, Changes: op.need.Changes},
	}
}

// Confirm authenticates and authorizes the caller again, past what is remembered of the credential.
func (c *Call) Reauthorize() error {
	if err := c.server.authenticator.revalidate(c.Context, c.Caller); err != nil {
		return err
	}
	return c.Authorize()
}

func (s *Server) findWorkspace(ctx context.Context, name string) (*Workspace, error) {
	if slug.Check(name) != nil { // no entity is woken for a name that no workspace can have
		return nil, ErrNotFound
	}
	return s.workspaces.lookup(ctx, name)
}

func (s *Server) resolveSlug(ctx context.Context, name string, old *Workspace) (*Workspace, error) {
	found, err := typed[*slugv1.Slug](s.options.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindSlug, Identity: name, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	}))
	switch {
	case err != nil:
		return nil, err
	case found.GetWorkspaceId() == "":
		return nil, ErrNotFound
	case old != nil && old.ID == found.GetWorkspaceId():
		return old, nil
	}
	id := found.GetWorkspaceId()
	return &Workspace{id, name, activity.NewCursor(s.options.Secret, id)}, nil
}

// ResolveSlug returns the workspace that a slug names now, without what is remembered. Errors: not_found.
func (c *Call) ResolveSlug(name string) (*Workspace, error) {
	return c.server.resolveSlug(c.Context, name, nil)
}

// Identified authenticates the request if it carries a valid credential. It returns false if the request carries none, or one
// that is invalid.
func (c *Call) TryAuthenticate() (bool, error) {
	err := c.authenticate()
	if HasCode(err, entity.Unauthorized) {
		return false, nil
	}
	return err == nil, err
}

// ForgetCaller makes the call one without a caller again.
func (c *Call) ClearCaller() { c.Caller, c.Response.caller = nil, nil }
