package browser

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// accountPages shows people what they hold: sessions, keys, and the access that they granted to applications.
type accountPages struct {
	links  *api.Links
	signIn *signInPages
}

func (a accountPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, accountPath, server.ScopeHuman, "Show the account", a.show),
		page(http.MethodPost, accountPath+"/grants/{grantId}/revoke", server.ScopeHuman, "Revoke an application's access", a.closeGrant),
		page(http.MethodPost, accountPath+"/keys", server.ScopeHuman, "Issue an API key and show it", a.openKey),
		page(http.MethodPost, accountPath+"/keys/{keyId}/revoke", server.ScopeHuman, "Revoke an API key", a.closeKey),
		page(http.MethodPost, accountPath+"/password", server.ScopeHuman, "Begin to change the password", a.changePassword),
	}
}

// shownGrants and shownKeys are how many the account page lists.
const (
	maxShownGrants = 50
	maxShownKeys   = 50
)

// notices say what was just done. A path names one, and no other text of a path is shown.
var noticeTexts = map[string]string{
	"session":  "The session has ended.",
	"grant":    "The application has no access any more.",
	"key":      "The key opens nothing any more.",
	"password": "Your password is set.",
	"joined":   "You are a member of the workspace now.",
}

// show is who the visitor is and what they hold.
func (a accountPages) show(c *server.Call) (result, error) {
	return a.sheet(c, pages.Account{Notice: noticeTexts[c.Request.URL.Query().Get("done")]})
}

// sheet fills in what the account page shows of the visitor.
func (a accountPages) sheet(c *server.Call, shown pages.Account) (result, error) {
	person, err := server.Ask[*userv1.User](c, api.CallerQuery(c, &userv1.DescribeUser{}))
	if err != nil {
		return result{}, err
	}
	password, err := api.DescribePassword(c, person.GetId())
	if err != nil {
		return result{}, err
	}
	shown.Name, shown.Email = person.GetName(), person.GetEmail()
	shown.HasPassword, shown.OffersReset = password.GetHash() != "", a.links.SendsMail()
	for _, add := range []func(*server.Call, *pages.Account) error{addSessions, addKeys, addGrants} {
		if err := add(c, &shown); err != nil {
			return result{}, err
		}
	}
	return result{page: "account", data: shown}, nil
}

func addSessions(c *server.Call, shown *pages.Account) error {
	found, err := server.Ask[*userv1.BrowserSessions](c, api.CallerQuery(c, &userv1.ListBrowserSessions{}))
	for _, one := range found.GetSessions() {
		shown.Sessions = append(shown.Sessions, pages.Session{
			ID: one.GetId(), Browser: describeBrowser(one.GetUserAgent()), Address: one.GetAddress(), StartedAt: one.GetCreatedAt(),
			ExpiresAt: one.GetExpiresAt(), Current: one.GetId() == c.Caller.Principal.GetCredentialId(),
		})
	}
	return err
}

func addGrants(c *server.Call, shown *pages.Account) error {
	found, err := server.Ask[*userv1.GrantPage](c, api.CallerQuery(c, &userv1.ListGrants{Limit: maxShownGrants}))
	if err != nil {
		return err
	}
	var live []*userv1.Grant
	for _, one := range found.GetGrants() {
		if one.GetRevokedAt() == 0 {
			live = append(live, one)
		}
	}
	shown.MoreGrants, shown.Grants = found.GetMore(), make([]pages.Grant, len(live))
	return server.ForEach(len(live), func(i int) error {
		one := live[i]
		in, err := api.GrantedIn(c, one)
		shown.Grants[i] = pages.Grant{
			ID: one.GetId(), Client: one.GetClientName(), Host: one.GetRedirectHost(), Workspace: workspaceLabel(in.Name, in.Slug),
			Scopes: one.GetScopes(), CreatedAt: one.GetCreatedAt(),
		}
		return err
	})
}

// closeGrant takes back what the visitor allowed an application.
func (a accountPages) closeGrant(c *server.Call) (result, error) {
	if !api.IsID(c.Variable("grantId"), user.GrantPrefix) {
		return result{}, server.ErrNotFound
	}
	if _, err := (api.Grants{}).Revoke(c, server.None{}); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=grant"}, nil
}

// changePassword leads who knows their password to setting another one. A session alone is not enough: it may be stolen.
// A try counts, and costs, what one to sign in does.
func (a accountPages) changePassword(c *server.Call) (result, error) {
	if err := api.RefuseImpersonation(c); err != nil {
		return result{}, err
	}
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	person, err := api.DescribeCaller(c)
	if err != nil {
		return result{}, err
	}
	userID, _, err := a.signIn.authenticate(c, person.GetEmail(), form.Get("current"))
	switch {
	case err != nil:
		return result{}, err
	case userID == "" || userID != person.GetId():
		shown, err := a.sheet(c, pages.Account{PasswordProblem: "The password is wrong."})
		shown.status = http.StatusForbidden
		return shown, err
	}
	return redirectToSetPassword(c, userID, nil)
}

// keyTime is how long a key may be made to last by the values of its form; 0: for ever.
var keyLifetimes = map[string]time.Duration{
	"30": 30 * 24 * time.Hour, "90": 90 * 24 * time.Hour, "365": 365 * 24 * time.Hour, "never": 0,
}

// addKeys lists the newest keys that are not revoked. Entities know them oldest first alone, and are asked for all.
func addKeys(c *server.Call, shown *pages.Account) error {
	var keys []*userv1.ApiKey
	for after, more := "", true; more; {
		found, err := server.Ask[*userv1.ApiKeyPage](c, api.CallerQuery(c, &userv1.ListApiKeys{After: after, Limit: user.MaxPage}))
		if err != nil {
			return err
		}
		keys = append(keys, found.GetKeys()...)
		after = api.NextID(found.GetKeys(), found.GetMore())
		more = after != ""
	}
	keys = slices.DeleteFunc(keys, func(key *userv1.ApiKey) bool { return key.GetRevokedAt() != 0 })
	slices.SortFunc(keys, func(a, b *userv1.ApiKey) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), strings.Compare(b.GetId(), a.GetId()))
	})
	shown.MoreKeys = len(keys) > maxShownKeys
	records := make([]api.APIKeyRecord, min(len(keys), maxShownKeys))
	for i := range records {
		records[i] = api.ViewAPIKey(keys[i])
	}
	err := api.AddLastUses(c, records)
	for _, one := range records {
		shown.Keys = append(shown.Keys, pages.Key{
			ID: one.ID, Name: one.Name, Prefix: one.Prefix, CreatedAt: one.CreatedAt, ExpiresAt: one.ExpiresAt,
			LastUsedAt: one.LastUsedAt, Expired: one.ExpiresAt != 0 && c.Now().UnixMilli() >= one.ExpiresAt,
		})
	}
	return err
}

// openKey makes an API key and shows it, this once.
func (a accountPages) openKey(c *server.Call) (result, error) {
	if err := api.RefuseImpersonation(c); err != nil {
		return result{}, err
	}
	form, err := parseForm(c)
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
	made, err := api.APIKeys{}.Create(c, in)
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && (refused.Code == entity.InvalidRequest || refused.Code == entity.LimitReached):
		shown, err := a.sheet(c, pages.Account{
			KeyName: api.Truncate(in.Name, 4*user.MaxNameLength), KeyLasts: form.Get("lasts"), KeyProblem: sentence(refused.Message),
		})
		shown.status = server.Statuses[refused.Code]
		return shown, err
	case err != nil:
		return result{}, err
	}
	return result{page: "key", data: pages.NewKey{Name: made.Record.Name, Key: made.Key, ExpiresAt: made.Record.ExpiresAt}}, nil
}

// closeKey revokes one of the visitor's keys.
func (a accountPages) closeKey(c *server.Call) (result, error) {
	if !api.IsID(c.Variable("keyId"), user.KeyPrefix) {
		return result{}, server.ErrNotFound
	}
	if _, err := (api.APIKeys{}).Revoke(c, server.None{}); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=key"}, nil
}
