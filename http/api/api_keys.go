package api

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// APIKeys serves the API keys of the caller.
type APIKeys struct{}

func (k APIKeys) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/user/api-keys", Scope: server.ScopeHuman, Summary: "List the caller's API keys",
			Handler: server.Answer(http.StatusOK, server.DecodePage, k.list)},
		{Method: http.MethodPost, Path: "/v1/user/api-keys", Scope: server.ScopeHuman, Summary: "Issue an API key",
			Handler: server.Answer(http.StatusCreated, decodeNewKey[APIKeyRequest], k.Create)},
		{Method: http.MethodDelete, Path: "/v1/user/api-keys/{keyId}", Scope: server.ScopeHuman, Idempotent: true, Summary: "Revoke one of the caller's API keys",
			Handler: server.Answer(http.StatusOK, server.Nothing, k.Revoke)},
	}
}

// APIKeyRequest is the body of a request for a new API key. ExpiresAt is in milliseconds since the Unix epoch; nil: never.
type APIKeyRequest struct {
	Name      string `json:"name"`
	ExpiresAt *int64 `json:"expiresAt"`
}

// APIKeyRecord is an API key as JSON, without its secret.
type APIKeyRecord struct {
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
	Record APIKeyRecord `json:"record"`
}

type apiKeyRevoked struct {
	Prefix    string `json:"prefix"`
	RevokedAt int64  `json:"revokedAt"`
}

// decodeNewKey refuses impersonations before it validates the input.
func decodeNewKey[In any](c *server.Call) (in In, err error) {
	if err := RefuseImpersonation(c); err != nil {
		return in, err
	}
	return server.Body[In](c)
}

// RefuseImpersonation refuses callers who impersonate somebody. It is for operations with an effect that would outlast the
// impersonation, or that change how the person signs in. Errors: forbidden.
func RefuseImpersonation(c *server.Call) error {
	if c.Caller.Principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION {
		return server.ErrForbidden
	}
	return nil
}

// Create issues an API key for the caller. The key is valid when Create returns.
func (k APIKeys) Create(c *server.Call, in APIKeyRequest) (apiKeyCreated, error) {
	text, key, err := in.issue(c, nil)
	if err != nil {
		return apiKeyCreated{}, err
	}
	return apiKeyCreated{text, ViewAPIKey(key)}, nil
}

// issue issues an API key for the caller; limits is nil for a key that can do everything that the caller can. Errors: those of IssueKey.
func (in APIKeyRequest) issue(c *server.Call, limits *userv1.KeyLimits) (string, *userv1.ApiKey, error) {
	switch {
	case in.Name == "":
		return "", nil, server.Invalid("name is required")
	case in.ExpiresAt != nil && (*in.ExpiresAt < 1 || *in.ExpiresAt > entity.MaxTime):
		return "", nil, server.Invalid("expiresAt must be an integer from 1 to %d", int64(entity.MaxTime))
	}
	issued := &userv1.IssueApiKey{Name: in.Name, Limits: limits}
	if in.ExpiresAt != nil {
		issued.ExpiresAt = *in.ExpiresAt
	}
	return IssueKey(c, entity.Command{Identity: c.Caller.Principal.GetUserId()}, issued)
}

// IssueKey issues an API key for the user that the command names, and waits until it is valid (IssueSecret). It sets the id and the secret
// of issued, and returns the key's text, which is not stored. Errors: limit_reached, invalid_request.
func IssueKey(c *server.Call, command entity.Command, issued *userv1.IssueApiKey) (string, *userv1.ApiKey, error) {
	issued.KeyId = c.NewID(user.KeyPrefix)
	text, hash := keys.New(user.StartOfKey(issued.GetLimits() != nil), issued.GetKeyId())
	issued.SecretSha256 = hash
	command.Kind, command.ID, command.Message = entity.KindUser, c.NewID("cmd_"), issued
	withdraw := command
	withdraw.Message = &userv1.RevokeApiKey{KeyId: issued.GetKeyId()}
	key, err := IssueSecret[*userv1.ApiKey](c, command, withdraw)
	return text, key, err
}

func (k APIKeys) list(c *server.Call, in server.Listing) (server.Collection[APIKeyRecord], error) {
	found, err := server.Ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(),
		Message: &userv1.ListApiKeys{After: in.After, Limit: in.Limit},
	})
	if err != nil {
		return server.Collection[APIKeyRecord]{}, err
	}
	items := make([]APIKeyRecord, len(found.GetKeys()))
	for i, key := range found.GetKeys() {
		items[i] = ViewAPIKey(key)
	}
	return server.Page(c, in, items, NextID(found.GetKeys(), found.GetMore())), AddLastUses(c, len(items), func(i int) *APIKeyRecord { return &items[i] })
}

// AddLastUses sets LastUsedAt of n records, to which at returns pointers: only the entity of a credential knows its last use.
func AddLastUses(c *server.Call, n int, at func(int) *APIKeyRecord) error {
	return server.ForEach(n, func(i int) error {
		found, err := server.Ask[*credentialv1.Credential](c, entity.Command{
			Kind: entity.KindCredential, Identity: at(i).ID, Principal: entity.Platform(),
			Message: &credentialv1.DescribeCredential{},
		})
		if IsHidden(err) { // the credential is not registered yet
			return nil
		}
		at(i).LastUsedAt = found.GetLastUsedAt()
		return err
	})
}

// Revoke revokes a key of the caller. When it returns, this member refuses the key and has ended its streams; other members
// do so within a second. Errors: not_found.
func (k APIKeys) Revoke(c *server.Call, _ server.None) (apiKeyRevoked, error) {
	keyID := c.Variable("keyId")
	if len(keyID) > len(user.KeyPrefix)+entity.ULIDLength {
		return apiKeyRevoked{}, server.ErrNotFound
	}
	key, err := server.Ask[*userv1.ApiKey](c, callerCommand(c, &userv1.RevokeApiKey{KeyId: keyID}))
	if err != nil {
		return apiKeyRevoked{}, err
	}
	if err := settleCaller(c); err != nil {
		return apiKeyRevoked{}, err
	}
	c.EndCredential(keyID)
	return apiKeyRevoked{user.ShownPrefix(keyID, key.GetLimits() != nil), key.GetRevokedAt()}, nil
}

// ViewAPIKey returns a key as JSON.
func ViewAPIKey(key *userv1.ApiKey) APIKeyRecord {
	return APIKeyRecord{
		ID:        key.GetId(),
		Prefix:    user.ShownPrefix(key.GetId(), key.GetLimits() != nil),
		CreatedAt: key.GetCreatedAt(),
		Name:      key.GetName(),
		ExpiresAt: key.GetExpiresAt(),
		RevokedAt: key.GetRevokedAt(),
	}
}
