package browser

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// keyLifetimes has the lifetimes that the form for a new key offers, by the value of the field; 0: no expiry.
var keyLifetimes = map[string]time.Duration{
	"30": 30 * 24 * time.Hour, "90": 90 * 24 * time.Hour, "365": 365 * 24 * time.Hour, "never": 0,
}

// addKeys adds the newest keys that are not revoked.
func addKeys(c *server.Call, shown *pages.Account) error {
	keys, err := readLive(func(after string) ([]*userv1.ApiKey, bool, error) {
		found, err := server.Ask[*userv1.ApiKeyPage](c, api.CallerQuery(c, &userv1.ListApiKeys{After: after, Limit: user.MaxPage}))
		return found.GetKeys(), found.GetMore(), err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(keys, func(a, b *userv1.ApiKey) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), strings.Compare(b.GetId(), a.GetId()))
	})
	shown.MoreKeys = len(keys) > maxShownKeys
	keys = keys[:min(len(keys), maxShownKeys)]
	records := make([]api.APIKeyRecord, len(keys))
	for i, key := range keys {
		records[i] = api.ViewAPIKey(key)
	}
	unknown := api.AddLastUses(c, len(records), func(i int) *api.APIKeyRecord { return &records[i] })
	noteUnreached(c, &shown.IsIncomplete, unknown)
	described, err := api.DescribeKeyWorkspaces(c, keys)
	noteUnreached(c, &shown.IsIncomplete, err)
	for i, one := range records {
		shown.Keys = append(shown.Keys, pages.Key{
			ID: one.ID, Name: one.Name, Prefix: one.Prefix, CreatedAt: one.CreatedAt, ExpiresAt: one.ExpiresAt,
			LastUsedAt: one.LastUsedAt, IsUseUnknown: unknown != nil, Expired: one.ExpiresAt != 0 && c.Now().UnixMilli() >= one.ExpiresAt,
			Limits: describeLimits(keys[i].GetLimits(), described),
		})
	}
	return nil
}

// describeLimits returns the limits of a key as text: the capabilities, and the workspaces if the key does not reach all; "" for a key
// without limits. A workspace that is not described is shown with its id.
func describeLimits(limits *userv1.KeyLimits, described []*workspacev1.Description) string {
	if limits == nil {
		return ""
	}
	text := strings.Join(limits.GetCapabilities(), ", ")
	if len(limits.GetWorkspaceIds()) > 0 {
		in := api.ViewKeyWorkspaces(limits, described)
		slugs := make([]string, len(in))
		for i, one := range in {
			slugs[i] = cmp.Or(one.Slug, one.ID)
		}
		text += ", only in " + strings.Join(slugs, ", ")
	}
	if limits.GetReadOnly() {
		text += ", read only"
	}
	return text
}

// addKeyChoices adds what the form for a new key offers as limits, with the choices that were made before the form was refused.
func addKeyChoices(c *server.Call, shown *pages.Account) error {
	for _, capability := range entity.AllCapabilities() {
		shown.KeyForm.Scopes = append(shown.KeyForm.Scopes, pages.Choice{
			Value: capability, Label: oauth.DescribeScope(capability), Chosen: slices.Contains(shown.KeyForm.Chosen["scope"], capability),
		})
	}
	own, err := api.FetchWorkspaces(c)
	noteUnreached(c, &shown.IsIncomplete, err)
	shown.KeyForm.IsIncomplete = err != nil
	shown.KeyForm.AllWorkspaces = len(own)
	for _, d := range own[:min(len(own), user.MaxKeyWorkspaces)] {
		w := d.GetWorkspace()
		shown.KeyForm.Workspaces = append(shown.KeyForm.Workspaces, pages.Choice{
			Value: w.GetSlug(), Label: workspaceLabel(w.GetName(), w.GetSlug()), Chosen: slices.Contains(shown.KeyForm.Chosen["workspace"], w.GetSlug()),
		})
	}
	return nil
}

// openKey creates an API key and shows it. It is not shown again.
func (a accountPages) openKey(c *server.Call) (result, error) {
	if err := api.RefuseImpersonation(c); err != nil {
		return result{}, err
	}
	form, err := parseForm(c, "scope", "workspace")
	if err != nil {
		return result{}, err
	}
	in := api.APIKeyRequest{Name: form.Get("name")}
	lasts, known := keyLifetimes[form.Get("lasts")]
	if !known {
		return result{}, server.Invalid("lasts must be 30, 90, 365 or never")
	}
	if lasts != 0 {
		in.ExpiresAt = new(c.Now().Add(lasts).UnixMilli())
	}
	made, err := createKey(c, in, form)
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && (refused.Code == entity.InvalidRequest || refused.Code == entity.LimitReached):
		shown, err := a.buildAccountPage(c, pages.Account{KeyForm: pages.KeyForm{
			Name: api.Truncate(in.Name, 4*user.MaxNameLength), Lasts: form.Get("lasts"), Problem: sentence(refused.Message), Chosen: form,
		}})
		shown.status = server.Statuses[refused.Code]
		return shown, err
	case err != nil:
		return result{}, err
	}
	return result{page: made}, nil
}

// createKey creates the key that the form describes: with limits, or, if access is "all" or missing, without.
func createKey(c *server.Call, in api.APIKeyRequest, form url.Values) (pages.NewKey, error) {
	switch form.Get("access") {
	case "", "all":
		made, err := api.APIKeys{}.Create(c, in)
		return pages.NewKey{Name: made.Record.Name, Key: made.Key, ExpiresAt: made.Record.ExpiresAt}, err
	case "limited":
		if len(form["scope"]) == 0 {
			return pages.NewKey{}, server.Invalid("select at least one permission")
		}
		if form.Get("workspaces") == "incomplete" && len(form["workspace"]) == 0 {
			return pages.NewKey{}, server.Invalid("select a workspace: some of yours did not answer")
		}
		made, err := api.LimitedKeys{}.Create(c, api.LimitedKeyRequest{
			APIKeyRequest: in, Capabilities: form["scope"], Workspaces: form["workspace"], ReadOnly: form.Get("read") == "only",
		})
		return pages.NewKey{Name: made.Record.Name, Key: made.Key, ExpiresAt: made.Record.ExpiresAt, Limited: true}, err
	}
	return pages.NewKey{}, server.Invalid("access must be all or limited")
}

// closeKey revokes an API key of the visitor.
func (a accountPages) closeKey(c *server.Call) (result, error) {
	if !api.IsID(c.Variable("keyId"), user.KeyPrefix) {
		return result{}, server.ErrNotFound
	}
	if _, err := (api.APIKeys{}).Revoke(c, server.None{}); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=key"}, nil
}
