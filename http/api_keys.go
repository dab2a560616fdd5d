package http

import (
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

type apiKeyRequest struct {
	Name      string `json:"name"`
	ExpiresAt *int64 `json:"expiresAt"`
}

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

// decodeAPIKey refuses an impersonation before it looks at what is sent.
func decodeAPIKey(c *call) (apiKeyRequest, error) {
	if err := c.asThemselves(); err != nil {
		return apiKeyRequest{}, err
	}
	return body[apiKeyRequest](c)
}

// asThemselves refuses an impersonation what would outlive it, or change how the person gets in. Errors: forbidden.
func (c *call) asThemselves() error {
	if c.caller.principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION {
		return errForbidden
	}
	return nil
}

func (s *Server) createAPIKey(c *call, in apiKeyRequest) (apiKeyCreated, error) {
	switch {
	case in.Name == "":
		return apiKeyCreated{}, invalid("name is required")
	case in.ExpiresAt != nil && (*in.ExpiresAt < 1 || *in.ExpiresAt > entity.MaxTime):
		return apiKeyCreated{}, invalid("expiresAt must be an integer from 1 to %d", int64(entity.MaxTime))
	}
	var expiresAt int64
	if in.ExpiresAt != nil {
		expiresAt = *in.ExpiresAt
	}
	text, key, err := c.issueKey(entity.Command{Identity: c.caller.principal.GetUserId()}, in.Name, expiresAt)
	if err != nil {
		return apiKeyCreated{}, err
	}
	return apiKeyCreated{text, viewAPIKey(key)}, nil
}

// issueKey makes a key for the user that the command names, and waits until it opens doors.
func (c *call) issueKey(command entity.Command, name string, expiresAt int64) (string, *userv1.ApiKey, error) {
	keyID := c.server.options.NewID(keyKind)
	text, hash := newKey(keyStart, keyID)
	command.Kind, command.ID = entity.KindUser, c.server.options.NewID("cmd_")
	command.Message = &userv1.IssueApiKey{KeyId: keyID, Name: name, SecretSha256: hash, ExpiresAt: expiresAt}
	key, err := ask[*userv1.ApiKey](c, command)
	if err != nil {
		return "", nil, err
	}
	return text, key, c.settle(entity.KindUser, command.Identity)
}

func (s *Server) listAPIKeys(c *call, in listing) (collection[apiKeyRecord], error) {
	found, err := ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(),
		Message: &userv1.ListApiKeys{After: in.after, Limit: in.limit},
	})
	if err != nil {
		return collection[apiKeyRecord]{}, err
	}
	items := make([]apiKeyRecord, len(found.GetKeys()))
	for i, key := range found.GetKeys() {
		items[i] = viewAPIKey(key)
	}
	return page(c, in, items, idAfter(found.GetKeys(), found.GetMore())), c.addLastUses(items)
}

// addLastUses asks each key's credential, which alone knows.
func (c *call) addLastUses(records []apiKeyRecord) error {
	return each(len(records), func(i int) error {
		found, err := ask[*credentialv1.Credential](c, entity.Command{
			Kind: entity.KindCredential, Identity: records[i].ID, Principal: entity.Platform(),
			Message: &credentialv1.DescribeCredential{},
		})
		if hidden(err) { // issued a moment ago
			return nil
		}
		records[i].LastUsedAt = found.GetLastUsedAt()
		return err
	})
}

// revokeAPIKey answers when the key opens nothing here any more, streams included; elsewhere it is a matter of a second.
func (s *Server) revokeAPIKey(c *call, _ none) (apiKeyRevoked, error) {
	keyID := c.variable("keyId")
	if len(keyID) > len(keyKind)+ulidLength {
		return apiKeyRevoked{}, errNotFound
	}
	key, err := ask[*userv1.ApiKey](c, c.changeOwn(&userv1.RevokeApiKey{KeyId: keyID}))
	if err != nil {
		return apiKeyRevoked{}, err
	}
	if err := c.settleOwn(); err != nil {
		return apiKeyRevoked{}, err
	}
	s.forgetCredential(keyID)
	return apiKeyRevoked{user.ShownPrefix(keyID), key.GetRevokedAt()}, nil
}

func viewAPIKey(key *userv1.ApiKey) apiKeyRecord {
	return apiKeyRecord{
		ID:        key.GetId(),
		Prefix:    user.ShownPrefix(key.GetId()),
		CreatedAt: key.GetCreatedAt(),
		Name:      key.GetName(),
		ExpiresAt: key.GetExpiresAt(),
		RevokedAt: key.GetRevokedAt(),
	}
}
