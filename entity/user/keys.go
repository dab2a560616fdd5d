package user

import (
	"maps"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxKeys is the greatest number of usable API keys of a user.
	MaxKeys = 1000
	// KeyPrefix is the prefix of the id of a key. A ULID follows.
	KeyPrefix = "key_"
	// KeyStart is the prefix of a key in the form in which its holder presents it, and LimitedKeyStart the prefix of a key with limits.
	// The id follows, without KeyPrefix.
	KeyStart        = "atl_"
	LimitedKeyStart = "atllim_"
	// MaxKeyWorkspaces is the greatest number of workspaces that a key can be limited to.
	MaxKeyWorkspaces = 100
)

var (
	errNoSuchKey   = entity.Errorf(entity.NotFound, "no such API key")
	errTooManyKeys = entity.Errorf(entity.LimitReached, "at most %d API keys can be valid at a time", MaxKeys)
	errKeyScopes   = entity.Errorf(entity.InvalidRequest, "capabilities must be different ones of %s", strings.Join(entity.AllCapabilities(), ", "))
	errKeyID       = entity.Errorf(entity.InvalidRequest, "keyId must be %s and a lower-case ULID", KeyPrefix)
)

// ErrKeyWorkspaces is the error of a key that is limited to a workspace that its person is no member of, or that does not exist.
var ErrKeyWorkspaces = entity.Errorf(entity.InvalidRequest, "workspaces must be at most %d different workspaces of yours", MaxKeyWorkspaces)

// ShownPrefix returns the first characters of a key. The holder of the key recognises it by them in lists.
func ShownPrefix(keyID string, limited bool) string {
	id := strings.TrimPrefix(keyID, KeyPrefix)
	return StartOfKey(limited) + id[:min(8, len(id))]
}

// StartOfKey returns KeyStart, or LimitedKeyStart for a key with limits.
func StartOfKey(limited bool) string {
	if limited {
		return LimitedKeyStart
	}
	return KeyStart
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
	if err := checkLimits(s, c.GetLimits()); err != nil {
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
			Limits:       c.GetLimits(),
		},
	}}, nil
}

// checkLimits validates the limits of a key, which may be nil. Each workspace must be one of the user's, so that a user cannot learn by
// a key whether another workspace exists. Errors: invalid_request.
func checkLimits(s *userv1.User, l *userv1.KeyLimits) error {
	if l == nil {
		return nil
	}
	capabilities, workspaces := l.GetCapabilities(), l.GetWorkspaceIds()
	isUnknown := func(c string) bool { return !slices.Contains(entity.AllCapabilities(), c) }
	isElsewhere := func(id string) bool { _, joined := s.GetWorkspaces()[id]; return !joined }
	switch {
	case len(capabilities) == 0, hasRepetition(capabilities), slices.ContainsFunc(capabilities, isUnknown):
		return errKeyScopes
	case len(workspaces) > MaxKeyWorkspaces, hasRepetition(workspaces), slices.ContainsFunc(workspaces, isElsewhere):
		return ErrKeyWorkspaces
	}
	return nil
}

func hasRepetition(texts []string) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(texts)))) != len(texts)
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
		Name: key.GetName(), By: by, ImpersonatorId: impersonator, Limited: key.GetLimits() != nil,
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
	all := s.GetApiKeys()
	if c.GetLimited() {
		all = maps.Clone(all)
		maps.DeleteFunc(all, func(_ string, key *userv1.ApiKey) bool { return key.GetLimits() == nil })
	}
	keys, more := page(all, c)
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
