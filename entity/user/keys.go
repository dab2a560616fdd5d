package user

import (
	"crypto/sha256"
	"strings"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// Limits of API keys.
const (
	// MaxKeys is how many keys that still open something a person may have.
	MaxKeys = 1000
	// MaxPage is the most keys of one page.
	MaxPage = 100
)

var (
	errNoSuchKey   = entity.Errorf(entity.NotFound, "no such API key")
	errTooManyKeys = entity.Errorf(entity.LimitReached, "at most %d API keys can be valid at a time", MaxKeys)
	errPageLimit   = entity.Errorf(entity.InvalidRequest, "limit must be 1 to %d", MaxPage)
)

// ShownPrefix is what is shown of a key for its holder to recognise it.
func ShownPrefix(keyID string) string {
	id := strings.TrimPrefix(keyID, KeyPrefix)
	return KeyStart + id[:min(8, len(id))]
}

func issueKey(call entity.Call, s *userv1.User, c *userv1.IssueApiKey) ([]userv1.Event, error) {
	// Before the validation: a repeated command stays true when its key has expired meanwhile.
	if _, issued := s.GetApiKeys()[c.GetKeyId()]; issued {
		return nil, nil
	}
	if err := checkKey(call, c); err != nil {
		return nil, err
	}
	if usableKeys(s, call.At()) >= MaxKeys {
		return nil, errTooManyKeys
	}
	by, impersonator := asked(call)
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
	if err := CheckLabel(c.GetName()); err != nil {
		return err
	}
	switch at := c.GetExpiresAt(); {
	case at != 0 && at <= call.At():
		return errExpiryPast
	case at > entity.MaxTime:
		return errExpiryLate
	case !isULID(c.GetKeyId(), KeyPrefix):
		return errKeyID
	case len(c.GetSecretSha256()) != sha256.Size:
		return errSecret
	}
	return nil
}

func revokeKey(call entity.Call, s *userv1.User, c *userv1.RevokeApiKey) ([]userv1.Event, error) {
	key, issued := s.GetApiKeys()[c.GetKeyId()]
	switch {
	case !issued:
		return nil, errNoSuchKey
	case key.GetRevokedAt() != 0:
		return nil, nil
	}
	by, impersonator := asked(call)
	return []userv1.Event{&userv1.ApiKeyRevoked{
		KeyId: c.GetKeyId(), At: call.At(), UserId: call.Identity, WorkspaceIds: workspaceIDs(s),
		Name: key.GetName(), By: by, ImpersonatorId: impersonator,
	}}, nil
}

// keysAfter forgets the keys that were revoked or expired longest ago, where there are too many.
func keysAfter(s *userv1.User, one *userv1.ApiKey, at int64) map[string]*userv1.ApiKey {
	return forget(entity.With(s.GetApiKeys(), one.GetId(), one), one.GetId(), func(key *userv1.ApiKey) int64 {
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
	keys, more := pageOf(s.GetApiKeys(), c)
	page := &userv1.ApiKeyPage{More: more}
	for _, key := range keys {
		page.Keys = append(page.Keys, shownKey(key))
	}
	return page
}

func usableKeys(s *userv1.User, at int64) int {
	count := 0
	for _, key := range s.GetApiKeys() {
		if key.GetRevokedAt() == 0 && (key.GetExpiresAt() == 0 || key.GetExpiresAt() > at) {
			count++
		}
	}
	return count
}

// shownKey is a key without the hash of its secret.
func shownKey(key *userv1.ApiKey) *userv1.ApiKey {
	shown := copyOfKey(key)
	shown.SecretSha256 = nil
	return shown
}

func copyOfKey(key *userv1.ApiKey) *userv1.ApiKey {
	return &userv1.ApiKey{
		Id:           key.GetId(),
		Name:         key.GetName(),
		SecretSha256: key.GetSecretSha256(),
		CreatedAt:    key.GetCreatedAt(),
		ExpiresAt:    key.GetExpiresAt(),
		RevokedAt:    key.GetRevokedAt(),
	}
}
