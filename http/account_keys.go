package http

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/pages"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// keyTime is how long a key may be made to last by the values of its form; 0: for ever.
var keyTime = map[string]time.Duration{
	"30": 30 * 24 * time.Hour, "90": 90 * 24 * time.Hour, "365": 365 * 24 * time.Hour, "never": 0,
}

// addKeys lists the newest keys that are not revoked. Entities know them oldest first alone, and are asked for all.
func (c *call) addKeys(shown *pages.Account) error {
	var keys []*userv1.ApiKey
	for after, more := "", true; more; {
		found, err := ask[*userv1.ApiKeyPage](c, c.ofOwn(&userv1.ListApiKeys{After: after, Limit: user.MaxPage}))
		if err != nil {
			return err
		}
		keys = append(keys, found.GetKeys()...)
		after = idAfter(found.GetKeys(), found.GetMore())
		more = after != ""
	}
	keys = slices.DeleteFunc(keys, func(key *userv1.ApiKey) bool { return key.GetRevokedAt() != 0 })
	slices.SortFunc(keys, func(a, b *userv1.ApiKey) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), strings.Compare(b.GetId(), a.GetId()))
	})
	shown.MoreKeys = len(keys) > shownKeys
	records := make([]apiKeyRecord, min(len(keys), shownKeys))
	for i := range records {
		records[i] = viewAPIKey(keys[i])
	}
	err := c.addLastUses(records)
	for _, one := range records {
		shown.Keys = append(shown.Keys, pages.Key{
			ID: one.ID, Name: one.Name, Prefix: one.Prefix, CreatedAt: one.CreatedAt, ExpiresAt: one.ExpiresAt,
			LastUsedAt: one.LastUsedAt, Expired: one.ExpiresAt != 0 && c.server.now().UnixMilli() >= one.ExpiresAt,
		})
	}
	return err
}

// openKey makes an API key and shows it, this once.
func (s *Server) openKey(c *call) (sheet, error) {
	if err := c.asThemselves(); err != nil {
		return sheet{}, err
	}
	form, err := c.form()
	if err != nil {
		return sheet{}, err
	}
	in := apiKeyRequest{Name: form.Get("name")}
	lasts, known := keyTime[form.Get("lasts")]
	if !known {
		return sheet{}, invalid("lasts must be 30, 90, 365 or never")
	}
	if lasts != 0 {
		in.ExpiresAt = new(s.now().Add(lasts).UnixMilli())
	}
	made, err := s.createAPIKey(c, in)
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && (refused.Code == entity.InvalidRequest || refused.Code == entity.LimitReached):
		shown, err := c.accountSheet(pages.Account{
			KeyName: cut(in.Name, 4*user.MaxNameLength), KeyLasts: form.Get("lasts"), KeyProblem: sentence(refused.Message),
		})
		shown.status = statuses[refused.Code]
		return shown, err
	case err != nil:
		return sheet{}, err
	}
	return sheet{name: "key", data: pages.NewKey{Name: made.Record.Name, Key: made.Key, ExpiresAt: made.Record.ExpiresAt}}, nil
}

// closeKey revokes one of the visitor's keys.
func (s *Server) closeKey(c *call) (sheet, error) {
	if !isID(c.variable("keyId"), keyKind) {
		return sheet{}, errNotFound
	}
	if _, err := s.revokeAPIKey(c, none{}); err != nil {
		return sheet{}, err
	}
	return sheet{to: accountPath + "?done=key"}, nil
}
