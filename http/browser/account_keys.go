package browser

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service/account"
)

// keyLifetimes has the lifetimes that the form for a new key offers, by the value of the field; 0: no expiry.
var keyLifetimes = map[string]time.Duration{
	"30": 30 * 24 * time.Hour, "90": 90 * 24 * time.Hour, "365": 365 * 24 * time.Hour, "never": 0,
}

// addKeys adds the newest keys that are not revoked.
func addKeys(c *server.Call, shown *pages.Account) error {
	keys, err := readLive(func(after string) ([]*userv1.ApiKey, bool, error) {
		found, err := server.Ask[*userv1.ApiKeyPage](c, callerQuery(c, &userv1.ListApiKeys{After: after, Limit: user.MaxPage}))
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
	uses, unknown := account.LastUses(c, keys)
	noteUnreached(c, &shown.IsIncomplete, unknown)
	described, err := account.DescribeKeyWorkspaces(c, keys)
	noteUnreached(c, &shown.IsIncomplete, err)
	for i, one := range keys {
		shown.Keys = append(shown.Keys, pages.Key{
			ID: one.GetId(), Name: one.GetName(), Prefix: user.ShownPrefix(one.GetId(), one.GetLimits() != nil),
			CreatedAt: one.GetCreatedAt(), ExpiresAt: one.GetExpiresAt(), LastUsedAt: uses[i], IsUseUnknown: unknown != nil,
			Expired: one.GetExpiresAt() != 0 && c.Now().UnixMilli() >= one.GetExpiresAt(),
			Limits:  describeLimits(one.GetLimits(), described),
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
		slugs := slices.Clone(limits.GetWorkspaceIds())
		for _, d := range described {
			if i := slices.Index(slugs, d.GetWorkspace().GetId()); i >= 0 {
				slugs[i] = d.GetWorkspace().GetSlug()
			}
		}
		text += ", only in " + strings.Join(slugs, ", ")
	}
	if limits.GetReadOnly() {
		text += ", read only"
	}
	return text
}

// addKeyChoices adds the limits that the form for a new key offers, with the choices that were made before the form was refused.
func addKeyChoices(c *server.Call, shown *pages.Account) error {
	for _, capability := range entity.AllCapabilities() {
		shown.KeyForm.Scopes = append(shown.KeyForm.Scopes, pages.Choice{
			Value: capability, Label: oauth.DescribeScope(capability), Chosen: slices.Contains(shown.KeyForm.Chosen["scope"], capability),
		})
	}
	own, err := account.Workspaces(c)
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
	if err := account.RefuseImpersonation(c); err != nil {
		return result{}, err
	}
	form, err := parseForm(c, "scope", "workspace")
	if err != nil {
		return result{}, err
	}
	in := account.NewKey{Name: form.Get("name")}
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
			Name: truncate(in.Name, 4*user.MaxNameLength), Lasts: form.Get("lasts"), Problem: sentence(refused.Message), Chosen: form,
		}})
		shown.status = answer.Statuses[refused.Code]
		return shown, err
	case err != nil:
		return result{}, err
	}
	return result{page: made}, nil
}

// createKey creates the key that the form describes: with limits, or, if access is "all" or missing, without.
func createKey(c *server.Call, in account.NewKey, form url.Values) (pages.NewKey, error) {
	switch form.Get("access") {
	case "", "all":
	case "limited":
		if len(form["scope"]) == 0 {
			return pages.NewKey{}, server.Invalid("select at least one permission")
		}
		if form.Get("workspaces") == "incomplete" && len(form["workspace"]) == 0 {
			return pages.NewKey{}, server.Invalid("select a workspace: some of yours did not answer")
		}
		in.Limits = &account.NewLimits{Capabilities: form["scope"], Workspaces: form["workspace"], ReadOnly: form.Get("read") == "only"}
	default:
		return pages.NewKey{}, server.Invalid("access must be all or limited")
	}
	made, err := account.IssueOwnKey(c, in)
	return pages.NewKey{Name: made.GetName(), Key: made.Text, ExpiresAt: made.GetExpiresAt(), Limited: in.Limits != nil}, err
}

// closeKey revokes an API key of the visitor.
func (a accountPages) closeKey(c *server.Call) (result, error) {
	if !entity.IsIDOf(c.Variable("keyId"), user.KeyPrefix) {
		return result{}, server.ErrNotFound
	}
	if _, err := account.RevokeKey(c, c.Variable("keyId")); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=key"}, nil
}
