package http

import (
	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
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

// listing is the input of collections whose cursor is a place in their order.
type listing struct {
	after string
	limit int32
}

type collection[Item any] struct {
	Items      []Item  `json:"items"`
	NextCursor *string `json:"nextCursor"`
}

// latestTime is the specification's bound of timestamps.
const latestTime = 1<<53 - 1

func (s *Server) createAPIKey(c *call, in apiKeyRequest) (apiKeyCreated, error) {
	switch {
	case in.Name == "":
		return apiKeyCreated{}, invalid("name is required")
	case in.ExpiresAt != nil && (*in.ExpiresAt < 1 || *in.ExpiresAt > latestTime):
		return apiKeyCreated{}, invalid("expiresAt must be an integer from 1 to %d", int64(latestTime))
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

func (s *Server) decodeAPIKeyList(c *call) (listing, error) {
	q, err := parseQuery(c.r.URL.RawQuery, "cursor", "limit")
	if err != nil {
		return listing{}, err
	}
	in := listing{limit: q.limit()}
	q.cursor(func(cursor string) (err error) {
		in.after, err = s.cursors.place(cursor, apiKeyWalk(c))
		return err
	})
	return in, q.err
}

func apiKeyWalk(c *call) []byte { return walk("api-keys", c.caller.principal.GetUserId()) }

func (s *Server) listAPIKeys(c *call, in listing) (collection[apiKeyRecord], error) {
	page, err := ask[*userv1.ApiKeyPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(),
		Message: &userv1.ListApiKeys{After: in.after, Limit: in.limit},
	})
	if err != nil {
		return collection[apiKeyRecord]{}, err
	}
	list := collection[apiKeyRecord]{Items: make([]apiKeyRecord, len(page.GetKeys()))}
	for i, key := range page.GetKeys() {
		list.Items[i] = viewAPIKey(key)
	}
	if page.GetMore() && len(list.Items) > 0 {
		next := s.cursors.text(list.Items[len(list.Items)-1].ID, apiKeyWalk(c))
		list.NextCursor = &next
	}
	return list, c.addLastUses(list.Items)
}

// addLastUses asks each key's credential, which alone knows.
func (c *call) addLastUses(records []apiKeyRecord) error {
	var group errgroup.Group
	group.SetLimit(wide)
	for i := range records {
		group.Go(func() error {
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
	return group.Wait()
}

// revokeAPIKey answers when the key opens nothing here any more, streams included; elsewhere it is a matter of a second.
func (s *Server) revokeAPIKey(c *call, _ none) (apiKeyRevoked, error) {
	keyID, userID := c.variable("keyId"), c.caller.principal.GetUserId()
	if len(keyID) > len(keyKind)+ulidLength {
		return apiKeyRevoked{}, errNotFound
	}
	key, err := ask[*userv1.ApiKey](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, ID: s.options.NewID("cmd_"),
		Message: &userv1.RevokeApiKey{KeyId: keyID},
	})
	if err != nil {
		return apiKeyRevoked{}, err
	}
	if err := c.settle(entity.KindUser, userID); err != nil {
		return apiKeyRevoked{}, err
	}
	s.authenticator.known.forget(keyID)
	s.watch.end(keyID)
	return apiKeyRevoked{keyPrefix(keyID), key.GetRevokedAt()}, nil
}

func viewAPIKey(key *userv1.ApiKey) apiKeyRecord {
	return apiKeyRecord{
		ID:        key.GetId(),
		Prefix:    keyPrefix(key.GetId()),
		CreatedAt: key.GetCreatedAt(),
		Name:      key.GetName(),
		ExpiresAt: key.GetExpiresAt(),
		RevokedAt: key.GetRevokedAt(),
	}
}
