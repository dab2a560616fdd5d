package session

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// ErrNoAgent is the error for an agent that the workspace does not have.
var ErrNoAgent = entity.Errorf(entity.InvalidRequest, "agentId must be the id of an agent of the workspace")

// findAgent returns the anchor of the agent with an id, as the platform. Errors: not_found.
func (r Request) findAgent(ctx context.Context, id string) (*workspacev1.Anchor, error) {
	return ask[*workspacev1.Anchor](ctx, r, r.toWorkspace(entity.Platform(), &workspacev1.DescribeAgent{AgentId: id}))
}

// RefreshAgent returns an agent with the present content of its AGENT.md, which the workspace then stores; if that cannot be read, with
// the stored content.
func (r Request) RefreshAgent(ctx context.Context, anchor *workspacev1.Anchor) (*workspacev1.Anchor, error) {
	agent := anchor.GetAgent()
	text, err := r.service.Agents.Agent(ctx, r.workspaceID, anchor.GetPath())
	if err != nil || agent.GetName() == text.Name && agent.GetDescription() == text.Description && agent.GetTier() == text.Tier {
		return anchor, nil
	}
	update := r.toWorkspace(entity.Platform(), &workspacev1.UpdateAgent{
		AnchorId: anchor.GetId(), Path: anchor.GetPath(), Name: text.Name, Description: text.Description, Tier: text.Tier,
	})
	update.ID = r.service.NewID("cmd_")
	if _, err := ask[proto.Message](ctx, r, update); err != nil {
		return nil, err
	}
	return r.findAgent(ctx, agent.GetId())
}

// startAgent sets the values that a session takes from its agent: the folder and the tier. It reads the AGENT.md of the agent
// again.
func (r Request) startAgent(ctx context.Context, start *sessionv1.StartSession, agent *workspacev1.Anchor) error {
	agent, err := r.RefreshAgent(ctx, agent)
	if err != nil {
		return err
	}
	start.Cwd = agent.GetPath()
	if tier := agent.GetAgent().GetTier(); tier != workspacev1.Tier_TIER_UNSPECIFIED {
		start.DefaultTier = tier
	}
	return nil
}

// sessionTier returns the tier of a session's turns without an explicit or a sticky tier: the agent's, or else the workspace's.
func (r Request) sessionTier(ctx context.Context, s *sessionv1.Session) (workspacev1.Tier, error) {
	if s.GetAgentId() != "" {
		agent, err := r.findAgent(ctx, s.GetAgentId())
		switch tier := agent.GetAgent().GetTier(); {
		case err != nil && !entity.HasCode(err, entity.NotFound):
			return 0, err
		case tier != workspacev1.Tier_TIER_UNSPECIFIED:
			return tier, nil
		}
	}
	return r.workspaceTier(ctx)
}

// workspaceTier returns the default tier of the workspace.
func (r Request) workspaceTier(ctx context.Context) (workspacev1.Tier, error) {
	found, err := ask[*workspacev1.Description](ctx, r, r.toWorkspace(entity.Platform(), &workspacev1.DescribeWorkspace{}))
	return workspace.EffectiveTier(found.GetWorkspace()), err
}
