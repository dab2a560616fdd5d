package client

import (
	"context"
	"net/http"
)

// Agent is a folder of a workspace's drive with an AGENT.md, which says how its sessions work.
type Agent struct {
	ID          string `json:"id"`
	Slug        string `json:"slug"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Path        string `json:"path"`
	// Tier is empty if AGENT.md has none.
	Tier     string `json:"tier,omitempty"`
	AnchorID string `json:"anchorId"`
	// AnchorState is active, broken or orphaned.
	AnchorState string `json:"anchorState"`
	CreatedAt   int64  `json:"createdAt"`
	UpdatedAt   int64  `json:"updatedAt"`
}

// NewAgent is the input of RegisterAgent.
type NewAgent struct {
	// Path is a folder with an AGENT.md.
	Path string `json:"path"`
	// Slug is optional: the server makes one of the agent's name.
	Slug string `json:"slug,omitempty"`
}

type agentAnswer struct {
	Agent Agent `json:"agent"`
}

// Agents returns the agents of a workspace, in the order of registration.
func (c *Client) Agents(slug string) Collection[Agent] {
	return Collection[Agent]{c, workspacePath(slug, "/agents"), nil}
}

// Agent returns the agent with a slug. Codes: not_found.
func (c *Client) Agent(ctx context.Context, slug, agentSlug string) (Agent, error) {
	found, err := call[agentAnswer](ctx, c, request{method: http.MethodGet, path: agentPath(slug, agentSlug)})
	return found.Agent, err
}

// RegisterAgent makes a folder of the drive an agent. Codes: slug_taken, anchor_conflict, limit_reached.
func (c *Client) RegisterAgent(ctx context.Context, slug string, in NewAgent) (Agent, error) {
	made, err := call[agentAnswer](ctx, c, request{method: http.MethodPost, path: workspacePath(slug, "/agents"), in: in})
	return made.Agent, err
}

// RemoveAgent removes the agent with a slug; its folder and its sessions stay. It reports whether there was one.
func (c *Client) RemoveAgent(ctx context.Context, slug, agentSlug string) (removed bool, err error) {
	done, err := call[removedAnswer](ctx, c, request{method: http.MethodDelete, path: agentPath(slug, agentSlug), idempotent: true})
	return done.Removed, err
}

func agentPath(slug, agentSlug string) string {
	return workspacePath(slug, "/agents/"+segment(agentSlug))
}
