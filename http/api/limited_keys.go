package api

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service/account"
)

// limitedKeys serves the API keys of the caller that have limits. They are an extension: the operations of the specification take and
// return no limits. apiKeys lists them too, without their limits, and revokes them.
type limitedKeys struct{}

func (k limitedKeys) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/user/limited-keys", Scope: server.ScopeHuman, Summary: "List the caller's limited API keys",
			Handler: server.Answer(http.StatusOK, server.DecodePage, k.list)},
		{Method: http.MethodPost, Path: "/v1/user/limited-keys", Scope: server.ScopeHuman, Summary: "Issue a limited API key",
			Handler: server.Answer(http.StatusCreated, decodeNewKey[limitedKeyRequest], k.create)},
	}
}

// limitedKeyRequest is the body of a request for a new key with limits. Workspaces has the slugs of the workspaces that the key reaches;
// nil: all workspaces of the caller, also workspaces that the caller joins later.
type limitedKeyRequest struct {
	apiKeyRequest
	Capabilities []string `json:"capabilities"`
	Workspaces   []string `json:"workspaces"`
	ReadOnly     bool     `json:"readOnly"`
}

// limitedKeyRecord is a limited API key as JSON, without its secret. Workspaces is left out if the key reaches all workspaces of the
// caller.
type limitedKeyRecord struct {
	apiKeyRecord
	Capabilities []string           `json:"capabilities"`
	Workspaces   []keyWorkspaceView `json:"workspaces,omitzero"`
	ReadOnly     bool               `json:"readOnly"`
}

// keyWorkspaceView is a workspace that a limited key reaches. Slug and Name are empty if the caller is no longer a member.
type keyWorkspaceView struct {
	ID   string `json:"id"`
	Slug string `json:"slug,omitzero"`
	Name string `json:"name,omitzero"`
}

type limitedKeyCreated struct {
	Key    string           `json:"key"`
	Record limitedKeyRecord `json:"record"`
}

// create issues a limited API key for the caller. The key is valid when create returns. Errors: invalid_request, limit_reached.
func (k limitedKeys) create(c *server.Call, in limitedKeyRequest) (limitedKeyCreated, error) {
	issued, err := account.IssueOwnKey(c, account.NewKey{Name: in.Name, ExpiresAt: in.ExpiresAt, Limits: &account.NewLimits{
		Capabilities: in.Capabilities, Workspaces: in.Workspaces, ReadOnly: in.ReadOnly,
	}})
	if err != nil {
		return limitedKeyCreated{}, err
	}
	return limitedKeyCreated{issued.Text, viewLimitedKey(issued.ApiKey, 0, issued.Workspaces)}, nil // nothing may fail here: the answer alone has the secret
}

func (k limitedKeys) list(c *server.Call, in server.Listing) (server.Collection[limitedKeyRecord], error) {
	found, err := server.Ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(),
		Message: &userv1.ListApiKeys{After: in.After, Limit: in.Limit, Limited: true},
	})
	if err != nil {
		return server.Collection[limitedKeyRecord]{}, err
	}
	described, err := account.DescribeKeyWorkspaces(c, found.GetKeys())
	if err != nil {
		return server.Collection[limitedKeyRecord]{}, err
	}
	uses, err := account.LastUses(c, found.GetKeys())
	items := make([]limitedKeyRecord, len(found.GetKeys()))
	for i, key := range found.GetKeys() {
		items[i] = viewLimitedKey(key, uses[i], described)
	}
	return server.Page(c, in, items, nextID(found.GetKeys(), found.GetMore())), err
}

// viewLimitedKey returns a limited key as JSON. described has the workspaces of the key that the caller sees.
func viewLimitedKey(key *userv1.ApiKey, lastUsedAt int64, described []*workspacev1.Description) limitedKeyRecord {
	limits := key.GetLimits()
	record := limitedKeyRecord{apiKeyRecord: viewAPIKey(key, lastUsedAt), Capabilities: limits.GetCapabilities(), ReadOnly: limits.GetReadOnly()}
	if len(limits.GetWorkspaceIds()) > 0 {
		record.Workspaces = viewKeyWorkspaces(limits, described)
	}
	return record
}

// viewKeyWorkspaces returns the workspaces that the limits of a key name, with the slugs and names of the described workspaces.
func viewKeyWorkspaces(limits *userv1.KeyLimits, described []*workspacev1.Description) []keyWorkspaceView {
	views := make([]keyWorkspaceView, len(limits.GetWorkspaceIds()))
	for i, id := range limits.GetWorkspaceIds() {
		views[i].ID = id
		for _, d := range described {
			if d.GetWorkspace().GetId() == id {
				views[i].Slug, views[i].Name = d.GetWorkspace().GetSlug(), d.GetWorkspace().GetName()
			}
		}
	}
	return views
}
