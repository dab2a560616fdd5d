package session

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Start is a request to start a session with a prompt.
type Start struct {
	// Input is the prompt. Its tier becomes the sticky tier of the session.
	Input
	// ParentID is the parent of the new session; empty: it has no parent.
	ParentID string
	// AgentID is the agent; empty: the default one.
	AgentID string
	// Title is the title; empty: the beginning of the prompt.
	Title string
	// Mode is the mode; unspecified: the parent's, or else auto.
	Mode sessionv1.Mode
	// Cwd is the working directory as the client has written it; nil: the parent's, or else the agent's.
	Cwd *string
	// Audience is the audience; nil: the parent's, or else the workspace. Its members must be members of the workspace.
	Audience *sessionv1.Audience
}

// Start creates a session, or finds the one that an earlier request with the same id has created. Errors: not_found if the caller does
// not see the parent, forbidden, also if the parent confirms and the child would not, invalid_request, invalid_cwd with a reason,
// request_id_reused, insufficient_storage, the errors of the rules.
func (r Request) Start(ctx context.Context, in Start) (Accepted, error) {
	if err := r.authorize(ctx); err != nil {
		return Accepted{}, err
	}
	id := r.service.NewID(session.IDPrefix)
	if in.GetClientRequestId() != "" {
		id = r.derivedID(in.Input)
		if earlier, found, err := r.findRequest(ctx, id, in.Input); found || err != nil {
			return earlier, err
		}
	}
	start, err := r.prepareStart(ctx, in)
	if err != nil {
		return Accepted{}, err
	}
	// The deletion of the parent deletes an admitted child, also if it was not created.
	if in.ParentID != "" {
		_, err := ask[*sessionv1.Description](ctx, r, r.command(in.ParentID, &sessionv1.AdmitChild{ChildId: id, Mode: start.GetMode()}))
		if err != nil {
			return Accepted{}, err
		}
	}
	return r.accept(ctx, id, in.Input, r.command(id, start))
}

// derivedID returns the id of the session that the caller starts with a request that has an id.
func (r Request) derivedID(in Input) string {
	return session.DerivedID(r.workspaceID, session.SenderOf(r.caller.Principal), in.GetClientRequestId())
}

// prepareStart returns the command that starts a session: it validates what the request refers to, and takes from the agent and the
// parent what the request omits.
func (r Request) prepareStart(ctx context.Context, in Start) (*sessionv1.StartSession, error) {
	start := &sessionv1.StartSession{
		ParentId: in.ParentID, AgentId: in.AgentID, Title: in.Title, Mode: in.Mode, Tier: in.GetTier(), Audience: in.Audience, Prompt: in.Input.Input,
	}
	parent, err := r.findParent(ctx, in.ParentID)
	if err != nil {
		return nil, err
	}
	if start.DefaultTier, err = r.workspaceTier(ctx); err != nil {
		return nil, err
	}
	if in.AgentID != "" {
		agent, err := r.findAgent(ctx, in.AgentID)
		if entity.HasCode(err, entity.NotFound) {
			return nil, ErrNoAgent
		} else if err != nil {
			return nil, err
		}
		if err := r.startAgent(ctx, start, agent); err != nil {
			return nil, err
		}
	}
	if parent != nil {
		inherit(start, parent)
	}
	if in.Cwd != nil {
		if start.Cwd, err = r.service.ResolveCwd(ctx, r.workspaceID, *in.Cwd); err != nil {
			return nil, err
		}
	}
	if start.Mode == sessionv1.Mode_MODE_UNSPECIFIED {
		start.Mode = sessionv1.Mode_MODE_AUTO
	}
	if err := r.CheckMembers(ctx, "memberUserIds", in.Audience.GetUserIds()); err != nil {
		return nil, err
	}
	if err := r.checkReferences(ctx, in.Input); err != nil {
		return nil, err
	}
	return start, session.CheckStart(start)
}

// findParent returns the session with an id, as the caller; nil if the id is empty.
func (r Request) findParent(ctx context.Context, id string) (*sessionv1.Session, error) {
	if id == "" {
		return nil, nil
	}
	found, err := r.describe(ctx, id)
	return found.GetSession(), err
}

// inherit sets the values that a child takes from its parent if the request omits them: the working directory, the sticky tier, the
// mode and the audience.
func inherit(start *sessionv1.StartSession, parent *sessionv1.Session) {
	start.Cwd = parent.GetCwd()
	if start.GetTier() == workspacev1.Tier_TIER_UNSPECIFIED {
		start.Tier = parent.GetTier()
	}
	if start.GetMode() == sessionv1.Mode_MODE_UNSPECIFIED {
		start.Mode = parent.GetMode()
	}
	if start.GetAudience() == nil {
		start.Audience = parent.GetAudience()
	}
}
