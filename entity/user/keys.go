package user

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxKeys is the greatest number of usable API keys of a user.
	MaxKeys = 1000
	// KeyPrefix is the prefix of the id of a key. A ULID follows.
	KeyPrefix = "key_"
	// KeyStart is the prefix of a key in the form in which its holder presents it. The id follows, without KeyPrefix.
	KeyStart = "atl_"
)

var (
	errNoSuchKey   = entity.Errorf(entity.NotFound, "no such API key")
	errTooManyKeys = entity.Errorf(entity.LimitReached, "at most %d API keys can be valid at a time", MaxKeys)
	errKeyID       = entity.Errorf(entity.InvalidRequest, "keyId must be %s and a lower-case ULID", KeyPrefix)
)

// ShownPrefix returns the first characters of a key, by which its holder recognises it in lists.
func ShownPrefix(keyID string) string {
	id := strings.TrimPrefix(keyID, KeyPrefix)
	return KeyStart + id[:min(8, len(id))]
}

// issueKey adds an API key. It has no effect if the key exists. Errors: invalid_request, limit_reached.
func issueKey(call entity.Call, s *userv1.User, c *userv1.IssueApiKey) ([]userv1.Event, error) {
	// This precedes the validation, so that a repeated command succeeds even if the key has expired in the meantime.
	if _, issued := s.GetApiKeys()[c.GetKeyId()]; issued {
		return nil, nil
	}
	if err := checkKey(call, c); err != nil {
		return nil, err
	}
	if countUsableKeys(s, call.At()) >= MaxKeys {
		return nil, errTooManyKeys
	}
	by, impersonator := requester(call)
	return []userv1.Event{&userv1.ApiKeyIssued{
		UserId: call.Identity, WorkspaceIds: workspaceIDs(s), By: by, ImpersonatorId: impersonator,
		Key: &userv1.ApiKey{
			Id:           c.GetKeyId(),
			Name:         c.GetName(),
			SecretSha256: c.GetSecretSha256(),
			CreatedAt:    call.At(),
			ExpiresAt:    c.GetExpiresAt(),
		},
	}}, nil
}

func checkKey(call entity.Call, c *userv1.IssueApiKey) error {
	if err := entity.CheckLabel(c.GetName()); err != nil {
		return err
	}
	switch at := c.GetExpiresAt(); {
	case at != 0 && at <= call.At():
		return errExpiryPast
	case at > entity.MaxTime:
		return errExpiryLate
	case !hasULID(c.GetKeyId(), KeyPrefix):
		return errKeyID
	case !entity.IsSHA256(c.GetSecretSha256()):
		return errSecret
	}
	return nil
}

// revokeKey revokes an API key. It has no effect if the key is revoked. Errors: not_found.
func revokeKey(call entity.Call, s *userv1.User, c *userv1.RevokeApiKey) ([]userv1.Event, error) {
	key, issued := s.GetApiKeys()[c.GetKeyId()]
	switch {
	case !issued:
		return nil, errNoSuchKey
	case key.GetRevokedAt() != 0:
		return nil, nil
	}
	by, impersonator := requester(call)
	return []userv1.Event{&userv1.ApiKeyRevoked{
		KeyId: c.GetKeyId(), At: call.At(), UserId: call.Identity, WorkspaceIds: workspaceIDs(s),
		Name: key.GetName(), By: by, ImpersonatorId: impersonator,
	}}, nil
}

// keysAfter returns the API keys after one was added or changed at a time, without the oldest of too many ended keys.
func keysAfter(s *userv1.User, changed *userv1.ApiKey, at int64) map[string]*userv1.ApiKey {
	return dropOldestEnded(entity.With(s.GetApiKeys(), changed.GetId(), changed), changed.GetId(), func(key *userv1.ApiKey) int64 {
		switch {
		case key.GetRevokedAt() != 0:
			return key.GetRevokedAt()
		case key.GetExpiresAt() <= at:
			return key.GetExpiresAt()
		}
		return 0
	})
}

func pageOfKeys(s *userv1.User, c *userv1.ListApiKeys) *userv1.ApiKeyPage {
	keys, more := page(s.GetApiKeys(), c)
	reply := &userv1.ApiKeyPage{More: more}
	for _, key := range keys {
		reply.Keys = append(reply.Keys, keyWithoutSecret(key))
	}
	return reply
}

func countUsableKeys(s *userv1.User, at int64) int {
	count := 0
	for _, key := range s.GetApiKeys() {
		if key.GetRevokedAt() == 0 && (key.GetExpiresAt() == 0 || key.GetExpiresAt() > at) {
			count++
		}
	}
	return count
}

// keyWithoutSecret returns a copy of a key without the hash of its secret.
func keyWithoutSecret(key *userv1.ApiKey) *userv1.ApiKey {
	shown := entity.ShallowCopy(key)
	shown.SecretSha256 = nil
	return shown
}
