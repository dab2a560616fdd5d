package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

// agents serves the agents of a workspace: folders of its drive with an AGENT.md, each bound by an anchor. The workspace stores
// the content of AGENT.md as it was last read: when the agent was registered, when it was requested alone, or when a session of
// it started.
type agents struct {
	files    Skills
	sessions *sessionservice.Service
}

func (a agents) routes() []server.Route {
	const (
		path  = server.WorkspacePath + "/agents"
		agent = path + "/{agentSlug}"
	)
	return []server.Route{
		{Method: http.MethodGet, Path: path, Scope: server.ScopeListAgents, Summary: "List the workspace's agents",
			Handler: server.Answer(http.StatusOK, server.DecodePage, a.list)},
		{Method: http.MethodPost, Path: path, Scope: server.ScopeManageAgents, Summary: "Register an agent",
			Handler: server.Answer(http.StatusCreated, server.Checked(checkAgent), a.register)},
		{Method: http.MethodGet, Path: agent, Scope: server.ScopeListAgents, Summary: "Read an agent",
			Handler: server.Answer(http.StatusOK, server.Nothing, a.read)},
		{Method: http.MethodDelete, Path: agent, Scope: server.ScopeManageAgents, Idempotent: true, Summary: "Remove an agent",
			Handler: server.Answer(http.StatusOK, server.Nothing, a.remove)},
	}
}

type agentView struct {
	ID          string `json:"id"`
	Slug        string `json:"slug"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Path        string `json:"path"`
	Tier        string `json:"tier,omitzero"`
	AnchorID    string `json:"anchorId"`
	AnchorState string `json:"anchorState"`
	CreatedAt   int64  `json:"createdAt"`
	UpdatedAt   int64  `json:"updatedAt"`
}

type agentRequest struct {
	Path string  `json:"path"`
	Slug *string `json:"slug"`
}

type agentAnswer struct {
	Agent agentView `json:"agent"`
}

type agentRemoved struct {
	Removed bool `json:"removed"`
}

func checkAgent(in *agentRequest) error {
	if err := server.CheckPath("path", in.Path); err != nil {
		return err
	}
	if in.Slug == nil {
		return nil
	}
	if err := slug.CheckForm(*in.Slug); err != nil {
		return err
	}
	return nil
}

func (a agents) list(c *server.Call, in server.Listing) (server.Collection[agentView], error) {
	if err := settleAnchors(c); err != nil {
		return server.Collection[agentView]{}, err
	}
	return server.ReadList(c, entity.KindWorkspace, workspace.AgentsList, in, viewAgent)
}

// register binds an agent to a folder with an AGENT.md. Errors: invalid_request if the folder has none or it is malformed,
// slug_taken, anchor_conflict, limit_reached.
func (a agents) register(c *server.Call, in agentRequest) (agentAnswer, error) {
	if err := settleAnchors(c); err != nil {
		return agentAnswer{}, err
	}
	// The position is read before the drive, so that the anchor follows a rename between the two.
	seq, err := fetchLastSeq(c)
	if err != nil {
		return agentAnswer{}, err
	}
	text, err := a.files.Agent(c.Context, c.Workspace.ID, in.Path)
	if err != nil {
		return agentAnswer{}, asInvalidPath(err)
	}
	chosen := slugOf(text.Name)
	if in.Slug != nil {
		chosen = *in.Slug
	} else if err := slug.CheckForm(chosen); err != nil {
		return agentAnswer{}, server.Invalid("slug is required, because none can be made of the agent's name")
	}
	anchor, err := server.Ask[*workspacev1.Anchor](c, workspaceCommand(c, &workspacev1.RegisterAgent{
		AnchorId: c.NewID("anc_"), Path: in.Path, Seq: seq, Agent: &workspacev1.Agent{
			Id: c.NewID(workspace.AgentPrefix), Slug: chosen, Name: text.Name, Description: text.Description, Tier: text.Tier,
		},
	}))
	if err != nil {
		return agentAnswer{}, err
	}
	return agentAnswer{viewAgent(anchor)}, nil
}

// asInvalidPath returns the error of reading an AGENT.md as one of the request that names its folder.
func asInvalidPath(err error) error {
	var refused *entity.Error
	if entity.IsHidden(err) || entity.HasCode(err, entity.InvalidRequest) {
		if errors.As(err, &refused) {
			return server.Invalid("path: %s", refused.Message)
		}
	}
	return err
}

// slugOf returns the slug that an agent with a name gets if the request has none. It may be no valid slug.
func slugOf(name string) string {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	text := strings.Join(parts, "-")
	return strings.TrimRight(text[:min(len(text), slug.MaxLength)], "-")
}

// read returns an agent with the present content of its AGENT.md; if that cannot be read, with the stored content.
func (a agents) read(c *server.Call, _ server.None) (agentAnswer, error) {
	if err := settleAnchors(c); err != nil {
		return agentAnswer{}, err
	}
	anchor, err := describeAgent(c, c.Variable("agentSlug"))
	if err != nil {
		return agentAnswer{}, err
	}
	anchor, err = a.sessions.For(c.Sender(), c.Workspace.ID).RefreshAgent(c.Context, anchor)
	return agentAnswer{viewAgent(anchor)}, err
}

func (a agents) remove(c *server.Call, _ server.None) (agentRemoved, error) {
	done, err := server.Ask[*workspacev1.Removed](c, workspaceCommand(c, &workspacev1.RemoveAgent{Slug: c.Variable("agentSlug")}))
	return agentRemoved{done.GetRemoved()}, err
}

// describeAgent returns the anchor of the agent with a slug, as the caller. Errors: not_found.
func describeAgent(c *server.Call, slug string) (*workspacev1.Anchor, error) {
	return server.Ask[*workspacev1.Anchor](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.Workspace.ID, Message: &workspacev1.DescribeAgent{Slug: slug},
	})
}

func viewAgent(a *workspacev1.Anchor) agentView {
	agent := a.GetAgent()
	return agentView{
		ID: agent.GetId(), Slug: agent.GetSlug(), Name: agent.GetName(), Description: agent.GetDescription(), Path: a.GetPath(),
		Tier: tierNames[agent.GetTier()], AnchorID: a.GetId(), AnchorState: anchorStateNames[a.GetState()],
		CreatedAt: a.GetCreatedAt(), UpdatedAt: a.GetUpdatedAt(),
	}
}

// agentSettings returns the settings of an agent's anchor in the list of anchors.
func agentSettings(a *workspacev1.Agent) jsontext.Value {
	settings, err := json.Marshal(struct {
		AgentID     string `json:"agentId"`
		Slug        string `json:"slug"`
		Name        string `json:"name"`
		Description string `json:"description"`
		Tier        string `json:"tier,omitzero"`
	}{a.GetId(), a.GetSlug(), a.GetName(), a.GetDescription(), tierNames[a.GetTier()]})
	if err != nil {
		return nil // only for text that is not UTF-8, which the rules refuse
	}
	return settings
}
