package http

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/pages"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// shownGrants and shownKeys are how many the account page lists.
const (
	shownGrants = 50
	shownKeys   = 50
)

// notices say what was just done. A path names one, and no other text of a path is shown.
var notices = map[string]string{
	"session":  "The session has ended.",
	"grant":    "The application has no access any more.",
	"key":      "The key opens nothing any more.",
	"password": "Your password is set.",
	"joined":   "You are a member of the workspace now.",
}

// showAccount is who the visitor is and what they hold.
func (s *Server) showAccount(c *call) (sheet, error) {
	return c.accountSheet(pages.Account{Notice: notices[c.r.URL.Query().Get("done")]})
}

// accountSheet fills in what the account page shows of the visitor.
func (c *call) accountSheet(shown pages.Account) (sheet, error) {
	person, err := ask[*userv1.User](c, c.ofOwn(&userv1.DescribeUser{}))
	if err != nil {
		return sheet{}, err
	}
	password, err := c.passwordOf(person.GetId())
	if err != nil {
		return sheet{}, err
	}
	shown.Name, shown.Email = person.GetName(), person.GetEmail()
	shown.HasPassword, shown.Forgotten = password.GetHash() != "", c.server.options.Mail != nil
	for _, add := range []func(*pages.Account) error{c.addSessions, c.addKeys, c.addGrants} {
		if err := add(&shown); err != nil {
			return sheet{}, err
		}
	}
	return sheet{name: "account", data: shown}, nil
}

// ofOwn asks about the caller.
func (c *call) ofOwn(m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(), Message: m}
}

func (c *call) addSessions(shown *pages.Account) error {
	found, err := ask[*userv1.BrowserSessions](c, c.ofOwn(&userv1.ListBrowserSessions{}))
	for _, one := range found.GetSessions() {
		shown.Sessions = append(shown.Sessions, pages.Session{
			ID: one.GetId(), Browser: browser(one.GetUserAgent()), Address: one.GetAddress(), StartedAt: one.GetCreatedAt(),
			ExpiresAt: one.GetExpiresAt(), Current: one.GetId() == c.caller.principal.GetCredentialId(),
		})
	}
	return err
}

func (c *call) addGrants(shown *pages.Account) error {
	found, err := ask[*userv1.GrantPage](c, c.ofOwn(&userv1.ListGrants{Limit: shownGrants}))
	shown.MoreGrants = found.GetMore()
	for _, one := range found.GetGrants() {
		if one.GetRevokedAt() == 0 {
			shown.Grants = append(shown.Grants, pages.Grant{
				ID: one.GetId(), Client: one.GetClientName(), Host: one.GetRedirectHost(), Scopes: one.GetScopes(),
				CreatedAt: one.GetCreatedAt(),
			})
		}
	}
	return err
}

// closeGrant takes back what the visitor allowed an application.
func (s *Server) closeGrant(c *call) (sheet, error) {
	if !isID(c.variable("grantId"), grantKind) {
		return sheet{}, errNotFound
	}
	if _, err := s.revokeGrant(c, none{}); err != nil {
		return sheet{}, err
	}
	return sheet{to: accountPath + "?done=grant"}, nil
}

// changePassword leads who knows their password to setting another one. A session alone is not enough: it may be stolen.
// A try counts, and costs, what one to sign in does.
func (s *Server) changePassword(c *call) (sheet, error) {
	if err := c.asThemselves(); err != nil {
		return sheet{}, err
	}
	form, err := c.form()
	if err != nil {
		return sheet{}, err
	}
	person, err := c.describeCaller()
	if err != nil {
		return sheet{}, err
	}
	userID, _, err := c.personWith(person.GetEmail(), form.Get("current"))
	switch {
	case err != nil:
		return sheet{}, err
	case userID == "" || userID != person.GetId():
		shown, err := c.accountSheet(pages.Account{PasswordProblem: "The password is wrong."})
		shown.status = http.StatusForbidden
		return shown, err
	}
	return c.toPassword(userID, nil)
}
