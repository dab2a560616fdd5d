package api

import (
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// LimitedKeys serves the API keys of the caller that have limits. They are an extension: the operations of the specification take and
// return no limits. APIKeys lists them too, without their limits, and revokes them.
type LimitedKeys struct{}

func (k LimitedKeys) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/user/limited-keys", Scope: server.ScopeHuman, Summary: "List the caller's limited API keys",
			Handler: server.Answer(http.StatusOK, server.DecodePage, k.list)},
		{Method: http.MethodPost, Path: "/v1/user/limited-keys", Scope: server.ScopeHuman, Summary: "Issue a limited API key",
			Handler: server.Answer(http.StatusCreated, decodeNewKey[LimitedKeyRequest], k.Create)},
	}
}

// LimitedKeyRequest is the body of a request for a new key with limits. Workspaces has the slugs of the workspaces that the key reaches;
// nil: all workspaces of the caller, also those that the caller joins later.
type LimitedKeyRequest struct {
	APIKeyRequest
	Capabilities []string `json:"capabilities"`
	Workspaces   []string `json:"workspaces"`
	ReadOnly     bool     `json:"readOnly"`
}

// LimitedKeyRecord is a limited API key as JSON, without its secret. Workspaces is left out if the key reaches all workspaces of the
// caller.
type LimitedKeyRecord struct {
	APIKeyRecord
	Capabilities []string           `json:"capabilities"`
	Workspaces   []KeyWorkspaceView `json:"workspaces,omitzero"`
	ReadOnly     bool               `json:"readOnly"`
}

// KeyWorkspaceView is a workspace that a limited key reaches. Slug and Name are empty if the caller is no longer a member.
type KeyWorkspaceView struct {
	ID   string `json:"id"`
	Slug string `json:"slug,omitzero"`
	Name string `json:"name,omitzero"`
}

type limitedKeyCreated struct {
	Key    string           `json:"key"`
	Record LimitedKeyRecord `json:"record"`
}

// Create issues a limited API key for the caller. The key is valid when Create returns. Errors: invalid_request, limit_reached.
func (k LimitedKeys) Create(c *server.Call, in LimitedKeyRequest) (limitedKeyCreated, error) {
	switch {
	case len(in.Capabilities) == 0:
		return limitedKeyCreated{}, server.Invalid("capabilities is required: name at least one")
	case in.Workspaces != nil && len(in.Workspaces) == 0:
		return limitedKeyCreated{}, server.Invalid("workspaces must not be empty; leave it out for all of your workspaces")
	}
	limits := &userv1.KeyLimits{Capabilities: slices.Sorted(slices.Values(in.Capabilities)), ReadOnly: in.ReadOnly}
	var own []*workspacev1.Description
	if in.Workspaces != nil {
		var err error
		if own, err = FetchWorkspaces(c); err != nil {
			return limitedKeyCreated{}, err
		}
		if limits.WorkspaceIds, err = idsOf(own, in.Workspaces); err != nil {
			return limitedKeyCreated{}, err
		}
	}
	text, key, err := in.issue(c, limits)
	if err != nil {
		return limitedKeyCreated{}, err
	}
	return limitedKeyCreated{text, viewLimitedKey(key, own)}, nil // nothing may fail here: the answer alone has the secret
}

// FetchWorkspaces returns the caller's workspaces, in the order in which the caller joined them.
func FetchWorkspaces(c *server.Call) ([]*workspacev1.Description, error) {
	person, err := DescribeCaller(c)
	if err != nil {
		return nil, err
	}
	return DescribeWorkspaces(c, ReachableWorkspaces(c.Caller.Principal, person))
}

// idsOf returns the ids of the workspaces with the slugs. Errors: invalid_request for a slug of none of them.
func idsOf(workspaces []*workspacev1.Description, slugs []string) ([]string, error) {
	ids := map[string]string{}
	for _, d := range workspaces {
		ids[d.GetWorkspace().GetSlug()] = d.GetWorkspace().GetId()
	}
	found := make([]string, len(slugs))
	for i, slug := range slugs {
		if found[i] = ids[slug]; found[i] == "" {
			return nil, user.ErrKeyWorkspaces
		}
	}
	return found, nil
}

func (k LimitedKeys) list(c *server.Call, in server.Listing) (server.Collection[LimitedKeyRecord], error) {
	found, err := server.Ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(),
		Message: &userv1.ListApiKeys{After: in.After, Limit: in.Limit, Limited: true},
	})
	if err != nil {
		return server.Collection[LimitedKeyRecord]{}, err
	}
	items := make([]LimitedKeyRecord, len(found.GetKeys()))
	described, err := DescribeKeyWorkspaces(c, found.GetKeys())
	if err != nil {
		return server.Collection[LimitedKeyRecord]{}, err
	}
	for i, key := range found.GetKeys() {
		items[i] = viewLimitedKey(key, described)
	}
	err = AddLastUses(c, len(items), func(i int) *APIKeyRecord { return &items[i].APIKeyRecord })
	return server.Page(c, in, items, NextID(found.GetKeys(), found.GetMore())), err
}

// viewLimitedKey returns a limited key as JSON. described has the workspaces of the key that the caller sees.
func viewLimitedKey(key *userv1.ApiKey, described []*workspacev1.Description) LimitedKeyRecord {
	limits := key.GetLimits()
	record := LimitedKeyRecord{APIKeyRecord: ViewAPIKey(key), Capabilities: limits.GetCapabilities(), ReadOnly: limits.GetReadOnly()}
	if len(limits.GetWorkspaceIds()) > 0 {
		record.Workspaces = ViewKeyWorkspaces(limits, described)
	}
	return record
}

// DescribeKeyWorkspaces describes the workspaces that the limits of keys name and that the caller sees. It asks each workspace once. With an
// error it returns those that were reached.
func DescribeKeyWorkspaces(c *server.Call, keys []*userv1.ApiKey) ([]*workspacev1.Description, error) {
	var ids []string
	for _, key := range keys {
		ids = append(ids, key.GetLimits().GetWorkspaceIds()...)
	}
	slices.Sort(ids)
	return DescribeWorkspaces(c, slices.Compact(ids))
}

// ViewKeyWorkspaces returns the workspaces that the limits of a key name, with the slugs and names of those that are described.
func ViewKeyWorkspaces(limits *userv1.KeyLimits, described []*workspacev1.Description) []KeyWorkspaceView {
	views := make([]KeyWorkspaceView, len(limits.GetWorkspaceIds()))
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
