package browser

import (
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// accountPages shows people their account: sessions, API keys, and the access that they granted to applications.
type accountPages struct {
	links  *account.Links
	signIn *signInPages
}

func (a accountPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, accountPath, server.ScopeHuman, "Show the account", a.show),
		page(http.MethodPost, accountPath+"/grants/{grantId}/revoke", server.ScopeHuman, "Revoke an application's access", a.closeGrant),
		page(http.MethodPost, accountPath+"/keys", server.ScopeHuman, "Issue an API key and show it", a.openKey),
		page(http.MethodPost, accountPath+"/keys/{keyId}/revoke", server.ScopeHuman, "Revoke an API key", a.closeKey),
		page(http.MethodPost, accountPath+"/password", server.ScopeHuman, "Start a password change", a.changePassword),
	}
}

// maxShownGrants and maxShownKeys bound the lists of the account page.
const (
	maxShownGrants = 50
	maxShownKeys   = 50
)

// noticeTexts has the notices of the account page. The parameter done names one of them, so that a link cannot make the page
// show any other text.
var noticeTexts = map[string]string{
	"session":  "The session has ended.",
	"grant":    "The application no longer has access.",
	"key":      "The key was revoked.",
	"password": "Your password is set.",
	"joined":   "You are now a member of the workspace.",
}

// show shows the account.
func (a accountPages) show(c *server.Call) (result, error) {
	return a.buildAccountPage(c, pages.Account{Notice: noticeTexts[c.Request.URL.Query().Get("done")]})
}

// buildAccountPage adds everything about the visitor's account to shown, and returns the account page.
func (a accountPages) buildAccountPage(c *server.Call, shown pages.Account) (result, error) {
	person, err := server.Ask[*userv1.User](c, callerQuery(c, &userv1.DescribeUser{}))
	if err != nil {
		return result{}, err
	}
	password, err := account.DescribePassword(c, person.GetId())
	if err != nil {
		return result{}, err
	}
	shown.Name, shown.Email = person.GetName(), person.GetEmail()
	shown.HasPassword, shown.OffersReset = password.GetHash() != "", a.links.SendsMail()
	for _, add := range []func(*server.Call, *pages.Account) error{addSessions, addKeys, addKeyChoices, addGrants} {
		if err := add(c, &shown); err != nil {
			return result{}, err
		}
	}
	return result{page: shown}, nil
}

func addSessions(c *server.Call, shown *pages.Account) error {
	found, err := server.Ask[*userv1.BrowserSessions](c, callerQuery(c, &userv1.ListBrowserSessions{}))
	for _, one := range found.GetSessions() {
		shown.Sessions = append(shown.Sessions, pages.Session{
			ID: one.GetId(), Browser: describeBrowser(one.GetUserAgent()), Address: one.GetAddress(), StartedAt: one.GetCreatedAt(),
			ExpiresAt: one.GetExpiresAt(), Current: one.GetId() == c.Caller.Principal.GetCredentialId(),
		})
	}
	return err
}

// readLive returns the keys or grants of an account that are not revoked, oldest first. read returns the page after an id. All pages
// are read, because the newest items are on the last one.
func readLive[Item interface {
	GetId() string
	GetRevokedAt() int64
}](read func(after string) (page []Item, more bool, err error)) ([]Item, error) {
	var live []Item
	for after := ""; ; {
		page, more, err := read(after)
		if err != nil {
			return nil, err
		}
		for _, one := range page {
			if one.GetRevokedAt() == 0 {
				live = append(live, one)
			}
		}
		if !more || len(page) == 0 {
			return live, nil
		}
		after = page[len(page)-1].GetId()
	}
}

// addGrants adds the newest live grants.
func addGrants(c *server.Call, shown *pages.Account) error {
	live, err := readLive(func(after string) ([]*userv1.Grant, bool, error) {
		found, err := server.Ask[*userv1.GrantPage](c, callerQuery(c, &userv1.ListGrants{After: after, Limit: user.MaxPage}))
		return found.GetGrants(), found.GetMore(), err
	})
	if err != nil {
		return err
	}
	live, err = account.LiveGrants(c, live)
	noteUnreached(c, &shown.IsIncomplete, err)
	slices.Reverse(live)
	shown.MoreGrants = len(live) > maxShownGrants
	live = live[:min(len(live), maxShownGrants)]
	shown.Grants = make([]pages.Grant, len(live))
	noteUnreached(c, &shown.IsIncomplete, service.ForEach(len(live), func(i int) error {
		one := live[i]
		slug, name, err := account.GrantedIn(c, one)
		shown.Grants[i] = pages.Grant{
			ID: one.GetId(), Client: one.GetClientName(), Host: one.GetRedirectHost(), Workspace: workspaceLabel(name, slug),
			Scopes: one.GetScopes(), CreatedAt: one.GetCreatedAt(),
		}
		return err
	}))
	return nil
}

// noteUnreached notes that a page is incomplete, if err says that workspaces, keys or grants were not reached. The page is shown without
// their details: the account page is also where a person revokes keys and grants, and one workspace is not to close the others.
func noteUnreached(c *server.Call, isIncomplete *bool, err error) {
	if err != nil {
		*isIncomplete = true
		c.Log().Warn("reading details for a page failed", "error", err)
	}
}

// closeGrant revokes a grant of the visitor.
func (a accountPages) closeGrant(c *server.Call) (result, error) {
	if !entity.IsIDOf(c.Variable("grantId"), user.GrantPrefix) {
		return result{}, server.ErrNotFound
	}
	if _, err := account.RevokeGrant(c, c.Variable("grantId")); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=grant"}, nil
}

// changePassword redirects to the form for a new password if the current one is correct. A session alone is not enough,
// because it may be stolen. An attempt counts like an attempt to sign in.
func (a accountPages) changePassword(c *server.Call) (result, error) {
	if err := account.RefuseImpersonation(c); err != nil {
		return result{}, err
	}
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	person, err := account.DescribeCaller(c)
	if err != nil {
		return result{}, err
	}
	userID, _, err := a.signIn.authenticate(c, person.GetEmail(), form.Get("current"))
	switch {
	case err != nil:
		return result{}, err
	case userID == "" || userID != person.GetId():
		shown, err := a.buildAccountPage(c, pages.Account{PasswordProblem: "The password is wrong."})
		shown.status = http.StatusForbidden
		return shown, err
	}
	return redirectToSetPassword(c, userID, nil)
}
