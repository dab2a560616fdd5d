package user

import (
	"crypto/sha256"
	"maps"
	"slices"

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
	return []userv1.Event{&userv1.ApiKeyIssued{
		UserId: call.Identity,
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
	if err := checkKeyName(c.GetName()); err != nil {
		return err
	}
	switch at := c.GetExpiresAt(); {
	case at != 0 && at <= call.At():
		return errExpiryPast
	case at > MaxTime:
		return errExpiryLate
	case !isKeyID(c.GetKeyId()):
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
	return []userv1.Event{&userv1.ApiKeyRevoked{KeyId: c.GetKeyId(), At: call.At()}}, nil
}

func checkPage(c *userv1.ListApiKeys) error {
	if c.GetLimit() < 1 || c.GetLimit() > MaxPage {
		return errPageLimit
	}
	return nil
}

// pageOfKeys walks by key id, which is the order of creation.
func pageOfKeys(s *userv1.User, c *userv1.ListApiKeys) *userv1.ApiKeyPage {
	ids := slices.Sorted(maps.Keys(s.GetApiKeys()))
	from, found := slices.BinarySearch(ids, c.GetAfter())
	if found {
		from++
	}
	ids = ids[from:]
	page := &userv1.ApiKeyPage{More: len(ids) > int(c.GetLimit())}
	for _, id := range ids[:min(len(ids), int(c.GetLimit()))] {
		page.Keys = append(page.Keys, shownKey(s.GetApiKeys()[id]))
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

// with is a map with one entry more or replaced, and leaves its argument alone.
func with[V any](m map[string]V, key string, value V) map[string]V {
	next := make(map[string]V, len(m)+1)
	maps.Copy(next, m)
	next[key] = value
	return next
}
