package workspace

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/skill"
	"github.com/atelier-run/atelier/entity/slug"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	// AgentPrefix is the start of the id of an agent.
	AgentPrefix = "agt_"
	// RootOwner is the owner of the default session of the drive's root. No agent has it as its slug.
	RootOwner = "root"
)

var (
	errNoAgent        = entity.Errorf(entity.NotFound, "no such agent")
	errNoAgentID      = entity.Errorf(entity.InvalidRequest, "agentId is empty")
	errAgentSlugTaken = entity.Errorf(entity.SlugTaken, "another agent has the slug, or it is reserved")
)

// registerAgent binds a new agent to its folder. It has no effect if the anchor exists. Errors: invalid_request, slug_taken,
// anchor_conflict, limit_reached.
func registerAgent(call entity.Call, s *workspacev1.Workspace, c *workspacev1.RegisterAgent) ([]workspacev1.Event, error) {
	if _, exists := s.GetAnchors()[c.GetAnchorId()]; exists {
		return nil, nil
	}
	if err := checkNewAgent(c); err != nil {
		return nil, err
	}
	const kind = workspacev1.AnchorKind_ANCHOR_KIND_AGENT
	switch {
	case len(s.GetAnchors()) >= MaxAnchors:
		return nil, errTooManyAnchors
	case c.GetAgent().GetSlug() == RootOwner, agentBySlug(s, c.GetAgent().GetSlug()) != nil:
		return nil, errAgentSlugTaken
	case conflictingAnchor(s, c.GetAnchorId(), kind, c.GetPath()) != nil:
		return nil, errPathTaken
	}
	return []workspacev1.Event{&workspacev1.AnchorCreated{Anchor: &workspacev1.Anchor{
		Id: c.GetAnchorId(), Path: c.GetPath(), Kind: kind, State: active, Agent: c.GetAgent(),
		CreatedAt: call.At(), UpdatedAt: call.At(), Position: call.Version, Seq: c.GetSeq(),
	}}}, nil
}

func checkNewAgent(c *workspacev1.RegisterAgent) error {
	switch {
	case c.GetAnchorId() == "":
		return errNoAnchorID
	case c.GetAgent().GetId() == "":
		return errNoAgentID
	}
	if err := checkPath(c.GetPath()); err != nil {
		return err
	}
	if err := slug.CheckForm(c.GetAgent().GetSlug()); err != nil {
		return err
	}
	return checkAgentText(c.GetAgent())
}

// checkAgentText validates the name, the description and the tier of an agent. Errors: invalid_request.
func checkAgentText(a *workspacev1.Agent) error {
	if err := entity.CheckText("name", a.GetName(), 1, skill.MaxName); err != nil {
		return err
	}
	if err := entity.CheckText("description", a.GetDescription(), 1, skill.MaxDescription); err != nil {
		return err
	}
	if _, known := workspacev1.Tier_name[int32(a.GetTier())]; !known {
		return errTier
	}
	return nil
}

// removeAgent removes the anchor of an agent; Evolve also removes the pointer to its default session. It has no effect if
// no agent has the slug.
func removeAgent(call entity.Call, s *workspacev1.Workspace, c *workspacev1.RemoveAgent) []workspacev1.Event {
	anchor := agentBySlug(s, c.GetSlug())
	if anchor == nil {
		return nil
	}
	return []workspacev1.Event{&workspacev1.AnchorRemoved{AnchorId: anchor.GetId(), At: call.At()}}
}

// applyAnchorRemoved removes an anchor, and for an agent the pointer to its default session.
func applyAnchorRemoved(next *workspacev1.Workspace, e *workspacev1.AnchorRemoved) {
	agentID := next.GetAnchors()[e.GetAnchorId()].GetAgent().GetId()
	next.Anchors = entity.Without(next.GetAnchors(), e.GetAnchorId())
	if _, found := next.GetDefaultSessions()[agentID]; found {
		next.DefaultSessions = entity.Without(next.GetDefaultSessions(), agentID)
	}
}

// updateAgent records the present content of AGENT.md. Errors: invalid_request.
func updateAgent(call entity.Call, s *workspacev1.Workspace, c *workspacev1.UpdateAgent) ([]workspacev1.Event, error) {
	was := anchorAt(s, c.GetAnchorId(), c.GetPath()).GetAgent()
	if was == nil {
		return nil, nil
	}
	is := withText(was, c.GetName(), c.GetDescription(), c.GetTier())
	if proto.Equal(was, is) {
		return nil, nil
	}
	if err := checkAgentText(is); err != nil {
		return nil, err
	}
	return []workspacev1.Event{&workspacev1.AgentUpdated{
		AnchorId: c.GetAnchorId(), Name: c.GetName(), Description: c.GetDescription(), Tier: c.GetTier(), At: call.At(),
	}}, nil
}

func applyAgentUpdated(a *workspacev1.Anchor, e *workspacev1.AgentUpdated) {
	a.Agent, a.UpdatedAt = withText(a.GetAgent(), e.GetName(), e.GetDescription(), e.GetTier()), e.GetAt()
}

// withText returns a copy of an agent with the content of its AGENT.md.
func withText(a *workspacev1.Agent, name, description string, tier workspacev1.Tier) *workspacev1.Agent {
	next := entity.ShallowCopy(a)
	next.Name, next.Description, next.Tier = name, description, tier
	return next
}

// describedAgent returns the anchor of the agent that a query names, or nil.
func describedAgent(s *workspacev1.Workspace, c *workspacev1.DescribeAgent) *workspacev1.Anchor {
	if c.GetSlug() != "" {
		return agentBySlug(s, c.GetSlug())
	}
	return agentByID(s, c.GetAgentId())
}

// agentBySlug returns the anchor of the agent with a slug, and agentByID the anchor of the agent with an id; nil if there is none.
func agentBySlug(s *workspacev1.Workspace, slug string) *workspacev1.Anchor {
	for _, a := range s.GetAnchors() {
		if a.GetAgent() != nil && a.GetAgent().GetSlug() == slug {
			return a
		}
	}
	return nil
}

func agentByID(s *workspacev1.Workspace, id string) *workspacev1.Anchor {
	for _, a := range s.GetAnchors() {
		if a.GetAgent() != nil && a.GetAgent().GetId() == id {
			return a
		}
	}
	return nil
}
