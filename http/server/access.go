package server

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/limit"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Workspace is the workspace that the slug in a path names.
type Workspace struct {
	ID, Slug string
	Cursor   activity.Cursor
}

// maxSlugs bounds the cache of slugs.
const maxSlugs = 50_000

// admit is the first step of authorization (see the package comment). It authenticates the request, unless the operation is
// public, and resolves the slug in its path. Capabilities are checked later, by the entity that receives the command or by
// Authorize. Errors: unauthorized, forbidden, not_found, rate_limited.
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

// authenticate sets Caller to the credential of the request and counts the request against the credential's rate. Errors:
// unauthorized, rate_limited.
func (c *Call) authenticate() error {
	k, err := c.readKey()
	if err != nil {
		return err
	}
	caller, err := c.server.authenticator.authenticate(c.Context, k, c.limitAddress)
	if err != nil {
		return err
	}
	if !c.server.authenticator.isFor(caller, c.Response.resource()) {
		return ErrUnauthorized
	}
	c.Caller, c.Response.caller = caller, caller
	if err := c.slots.pass(caller); err != nil {
		return err
	}
	limits := c.server.options.Limits
	if wait := caller.rate.Take(c.server.now(), limit.PerSecond(limits.Rate, limits.Burst)); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many requests with this credential", RetryAfter: wait}
	}
	return nil
}

// Authorize asks the workspace in the path whether the caller has the access that Route.Scope requires. Errors: not_found if
// the caller is not a member, forbidden, workspace_suspended, workspace_closed.
func (c *Call) Authorize() error {
	_, err := c.FetchAuthorization()
	return err
}

// FetchAuthorization is Authorize, and returns the caller's role and capabilities.
func (c *Call) FetchAuthorization() (*workspacev1.Authorized, error) {
	return Ask[*workspacev1.Authorized](c, c.operation.authorizeCommand(c.Workspace.ID))
}

// authorizeCommand returns the command that asks a workspace whether a caller has the access that the operation requires.
func (op *operation) authorizeCommand(workspaceID string) entity.Command {
	return entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID,
		Message: &workspacev1.Authorize{Any: op.need.Any, Changes: op.need.Changes, Personal: op.need.Personal},
	}
}

// Reauthenticate verifies, without the cache, that the caller's credential is still valid. Errors: unauthorized.
func (c *Call) Reauthenticate() error {
	return c.server.authenticator.revalidate(c.Context, c.Caller)
}

// ActAs makes a credential the caller of an operation that needs none, and sets its workspace: the request has a token that was
// made for both. It looks up the credential without the cache. Errors: unauthorized if the credential is no longer valid.
func (c *Call) ActAs(credentialID, workspaceID string) error {
	found, err := c.server.authenticator.fetch(c.Context, credentialID, nil)
	if err == nil && found.expired(c.Now()) {
		err = ErrUnauthorized
	}
	if err != nil {
		return unauthorizedIfUnknown(err)
	}
	c.Caller, c.Response.caller = found, found
	c.Workspace = &Workspace{ID: workspaceID, Cursor: activity.NewCursor(c.server.options.Secret, workspaceID)}
	return nil
}

// findWorkspace returns the workspace that a slug names, at most a second old. Errors: not_found.
func (s *Server) findWorkspace(ctx context.Context, name string) (*Workspace, error) {
	if slug.Check(name) != nil { // activate no entity for a name that no workspace can have
		return nil, ErrNotFound
	}
	return s.workspaces.Lookup(ctx, name)
}

// resolveSlug looks up a slug. It returns old if the slug still names the same workspace. Errors: not_found.
func (s *Server) resolveSlug(ctx context.Context, name string, old *Workspace) (*Workspace, error) {
	found, err := entity.AskAsPlatform[*slugv1.Slug](ctx, s.options.Asker, entity.KindSlug, name, &slugv1.ResolveSlug{})
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

// ResolveSlug returns the workspace that a slug names now, without the cache. Errors: not_found.
func (c *Call) ResolveSlug(name string) (*Workspace, error) {
	return c.server.resolveSlug(c.Context, name, nil)
}

// TryAuthenticate authenticates a request of a public operation. It returns false and no error if the request has no
// credential, or an invalid one. Errors: rate_limited, unavailable.
func (c *Call) TryAuthenticate() (bool, error) {
	err := c.authenticate()
	if entity.HasCode(err, entity.Unauthorized) {
		return false, nil
	}
	return err == nil, err
}

// ClearCaller makes the call one without a caller again.
func (c *Call) ClearCaller() { c.Caller, c.Response.caller = nil, nil }
