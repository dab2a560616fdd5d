package http

import (
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/pages"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// wrongPassword is the one answer to every try that fails, whatever was wrong.
const wrongPassword = "The email or the password is wrong."

// showSignIn is the form, or leads on who is signed in.
func (s *Server) showSignIn(c *call) (sheet, error) {
	next := localPath(c.r.URL.Query().Get("next"))
	visitor, err := c.visitor()
	switch {
	case err != nil:
		return sheet{}, err
	case visitor != nil:
		return sheet{to: next}, nil
	}
	return sheet{name: "sign-in", data: s.signInForm(pages.SignIn{Next: next})}, nil
}

// signInForm adds the ways in that there are beside a password that one knows.
func (s *Server) signInForm(shown pages.SignIn) pages.SignIn {
	shown.Provider, shown.Forgotten = s.options.OIDC.name(), s.options.Mail != nil
	return shown
}

// openAccount signs a person in with a password.
func (s *Server) openAccount(c *call) (sheet, error) {
	form, err := c.form()
	if err != nil {
		return sheet{}, err
	}
	next := localPath(form.Get("next"))
	userID, hash, err := c.personWith(form.Get("email"), form.Get("password"))
	switch {
	case err != nil:
		return sheet{}, err
	case userID == "":
		return sheet{name: "sign-in", status: http.StatusForbidden, data: s.signInForm(pages.SignIn{
			Email: cut(form.Get("email"), email.MaxLength), Next: next, Problem: wrongPassword,
		})}, nil
	}
	if err := c.signIn(userID, &userv1.StartBrowserSession{PasswordHash: hash}); err != nil {
		return sheet{}, err
	}
	address, _ := checkEmail(form.Get("email"))
	c.setCookie(c.server.knownCookie(), c.server.cursors.text(knownBrowser, knownTo(address)), knownTime)
	return sheet{to: next}, nil
}

// A browser that somebody signed in with keeps a text that only this server makes, and that opens nothing.
const (
	knownBrowser = "known"
	knownTime    = 365 * 24 * time.Hour
)

func (s *Server) knownCookie() string { return s.cookieName() + "-known" }

func knownTo(address string) []byte { return walk("browser", address) }

// isKnown tells whether the person of an address signed in with the browser before.
func (c *call) isKnown(address string) bool {
	cookie, err := c.r.Cookie(c.server.knownCookie())
	if err != nil {
		return false
	}
	text, err := c.server.cursors.place(cookie.Value, knownTo(address))
	return err == nil && text == knownBrowser
}

// personWith is whose the address and the password are, with the password's hash; "" where they are nobody's. An address
// that is nobody's costs a guess as much as a wrong password.
func (c *call) personWith(address, password string) (userID, hash string, err error) {
	address, badAddress := checkEmail(address)
	if err := c.server.guesses.try(c.server.now(), c.address(), address, c.isKnown(address)); err != nil {
		return "", "", err
	}
	var known *userv1.Password
	if badAddress == nil {
		if userID, err = c.personAt(address); err != nil {
			return "", "", err
		}
	}
	if userID != "" {
		if known, err = c.passwordOf(userID); err != nil {
			return "", "", err
		}
	}
	matches, err := c.server.passwords.matches(c.ctx, known.GetHash(), password[:min(len(password), 4*mostPassword+1)])
	if err != nil || !matches || known.GetDisabled() {
		return "", "", err
	}
	return userID, known.GetHash(), nil
}

// resolveEmail is whose an address is, and which workspaces invited it.
func (c *call) resolveEmail(address string) (*emailv1.Email, error) {
	return ask[*emailv1.Email](c, entity.Command{
		Kind: entity.KindEmail, Identity: address, Principal: entity.Platform(), Message: &emailv1.ResolveEmail{},
	})
}

// personAt is whose an address is; "" where it is nobody's.
func (c *call) personAt(address string) (string, error) {
	found, err := c.resolveEmail(address)
	return found.GetUserId(), err
}

// passwordOf is how a person proves who they are; zero where there is no such person.
func (c *call) passwordOf(userID string) (*userv1.Password, error) {
	found, err := ask[*userv1.Password](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribePassword{},
	})
	if hidden(err) {
		return &userv1.Password{}, nil
	}
	return found, err
}

var errLink = entity.Errorf(entity.LinkInvalid, "it was used, or replaced by a newer one, or its time is over; ask for a new one")

// linked is whose a one-time link is. Errors: link_invalid.
func (c *call) linked(token string) (userID string, hash []byte, err error) {
	parts := tokenParts(token, 2)
	if parts == nil {
		return "", nil, errLink
	}
	userID, hash = "usr_"+parts[0], hashOf(parts[1])
	found, err := c.passwordOf(userID)
	switch {
	case err != nil:
		return "", nil, err
	case found.GetDisabled(), !user.LinkOpens(found.GetLink(), hash, c.server.now().UnixMilli()):
		return "", nil, errLink
	}
	return userID, hash, nil
}

func (s *Server) showSetPassword(c *call) (sheet, error) {
	token := c.r.URL.Query().Get("token")
	userID, _, err := c.linked(token)
	if err != nil {
		return sheet{}, err
	}
	return c.passwordSheet(userID, token, "")
}

// passwordSheet is the form that sets a password.
func (c *call) passwordSheet(userID, token, problem string) (sheet, error) {
	person, err := c.describe(userID)
	if err != nil {
		return sheet{}, err
	}
	shown := sheet{name: "set-password", data: pages.SetPassword{
		Email: person.GetEmail(), Token: token, Least: leastPassword, Most: mostPassword, Problem: problem,
	}}
	if problem != "" {
		shown.status = http.StatusBadRequest
	}
	return shown, nil
}

// setPassword uses a one-time link up: everybody who was signed in as the person is signed out, and the visitor is in.
func (s *Server) setPassword(c *call) (sheet, error) {
	form, err := c.form()
	if err != nil {
		return sheet{}, err
	}
	token, password := form.Get("token"), form.Get("password")
	userID, link, err := c.linked(token)
	if err != nil {
		return sheet{}, err
	}
	problem := passwordProblem(password)
	if problem == "" && password != form.Get("again") {
		problem = "The two are not the same."
	}
	if problem != "" {
		return c.passwordSheet(userID, token, problem)
	}
	hash, err := s.passwords.hash(c.ctx, password)
	if err != nil {
		return sheet{}, err
	}
	if err := c.replacePassword(userID, link, hash); err != nil {
		return sheet{}, err
	}
	if err := c.signIn(userID, &userv1.StartBrowserSession{PasswordHash: hash}); err != nil {
		return sheet{}, err
	}
	return sheet{to: accountPath + "?done=password"}, nil
}

// replacePassword answers when the sessions that it ends open nothing here any more.
func (c *call) replacePassword(userID string, link []byte, hash string) error {
	open, err := c.sessionsOf(userID)
	if err != nil {
		return err
	}
	if _, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"),
		Message: &userv1.SetPassword{LinkSecretSha256: link, PasswordHash: hash},
	}); err != nil {
		return err
	}
	if err := c.settle(entity.KindUser, userID); err != nil {
		return err
	}
	for _, session := range open {
		c.server.forgetCredential(session.GetId())
	}
	return nil
}
