package api

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service/account"
)

// apiKeys serves the API keys of the caller.
type apiKeys struct{}

func (k apiKeys) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/user/api-keys", Scope: server.ScopeHuman, Summary: "List the caller's API keys",
			Handler: server.Answer(http.StatusOK, server.DecodePage, k.list)},
		{Method: http.MethodPost, Path: "/v1/user/api-keys", Scope: server.ScopeHuman, Summary: "Issue an API key",
			Handler: server.Answer(http.StatusCreated, decodeNewKey[apiKeyRequest], k.create)},
		{Method: http.MethodDelete, Path: "/v1/user/api-keys/{keyId}", Scope: server.ScopeHuman, Idempotent: true, Summary: "Revoke one of the caller's API keys",
			Handler: server.Answer(http.StatusOK, server.Nothing, k.revoke)},
	}
}

// apiKeyRequest is the body of a request for a new API key. ExpiresAt is in milliseconds since the Unix epoch; nil: never.
type apiKeyRequest struct {
	Name      string `json:"name"`
	ExpiresAt *int64 `json:"expiresAt"`
}

// apiKeyRecord is an API key as JSON, without its secret.
type apiKeyRecord struct {
	ID         string `json:"id"`
	Prefix     string `json:"prefix"`
	CreatedAt  int64  `json:"createdAt"`
	Name       string `json:"name,omitzero"`
	ExpiresAt  int64  `json:"expiresAt,omitzero"`
	LastUsedAt int64  `json:"lastUsedAt,omitzero"`
	RevokedAt  int64  `json:"revokedAt,omitzero"`
}

type apiKeyCreated struct {
	Key    string       `json:"key"`
	Record apiKeyRecord `json:"record"`
}

type apiKeyRevoked struct {
	Prefix    string `json:"prefix"`
	RevokedAt int64  `json:"revokedAt"`
}

// decodeNewKey refuses impersonations before it validates the input.
func decodeNewKey[In any](c *server.Call) (in In, err error) {
	if err := account.RefuseImpersonation(c); err != nil {
		return in, err
	}
	return server.Body[In](c)
}

// create issues an API key for the caller. The key is valid when create returns.
func (k apiKeys) create(c *server.Call, in apiKeyRequest) (apiKeyCreated, error) {
	issued, err := account.IssueOwnKey(c, account.NewKey{Name: in.Name, ExpiresAt: in.ExpiresAt})
	if err != nil {
		return apiKeyCreated{}, err
	}
	return apiKeyCreated{issued.Text, viewAPIKey(issued.ApiKey, 0)}, nil
}

func (k apiKeys) list(c *server.Call, in server.Listing) (server.Collection[apiKeyRecord], error) {
	found, err := server.Ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(),
		Message: &userv1.ListApiKeys{After: in.After, Limit: in.Limit},
	})
	if err != nil {
		return server.Collection[apiKeyRecord]{}, err
	}
	uses, err := account.LastUses(c, found.GetKeys())
	items := make([]apiKeyRecord, len(found.GetKeys()))
	for i, key := range found.GetKeys() {
		items[i] = viewAPIKey(key, uses[i])
	}
	return server.Page(c, in, items, nextID(found.GetKeys(), found.GetMore())), err
}

// revoke revokes a key of the caller. Errors: not_found.
func (k apiKeys) revoke(c *server.Call, _ server.None) (apiKeyRevoked, error) {
	key, err := account.RevokeKey(c, c.Variable("keyId"))
	if err != nil {
		return apiKeyRevoked{}, err
	}
	return apiKeyRevoked{user.ShownPrefix(key.GetId(), key.GetLimits() != nil), key.GetRevokedAt()}, nil
}

// viewAPIKey returns a key as JSON.
func viewAPIKey(key *userv1.ApiKey, lastUsedAt int64) apiKeyRecord {
	return apiKeyRecord{
		ID:         key.GetId(),
		Prefix:     user.ShownPrefix(key.GetId(), key.GetLimits() != nil),
		CreatedAt:  key.GetCreatedAt(),
		Name:       key.GetName(),
		ExpiresAt:  key.GetExpiresAt(),
		RevokedAt:  key.GetRevokedAt(),
		LastUsedAt: lastUsedAt,
	}
}
