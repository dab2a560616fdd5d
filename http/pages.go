package http

import (
	"cmp"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/pages"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// paged operations are brief ones for people in front of a browser: their refusals are pages too.
const paged = streaming + 1

const (
	signInPath  = "/sign-in"
	accountPath = "/account"
	// maxNext bounds the path that signing in leads to, and maxForm a form, in bytes.
	maxNext = 8 << 10
	maxForm = 64 << 10
)

// pageRoutes is the table of pages for people.
func (s *Server) pageRoutes() []route {
	const get, post = http.MethodGet, http.MethodPost
	return []route{
		{get, "/", public, false, "Lead to the account", onPage(s.openRoot), paged, false},
		{get, signInPath, public, false, "Show the form to sign in", onPage(s.showSignIn), paged, false},
		{post, signInPath, public, false, "Sign in with a password", onPage(s.openAccount), paged, false},
		{get, oidcPath, public, false, "Sign in with the OpenID Connect provider", onPage(s.openProvider), paged, false},
		{get, oidcPath + "/callback", public, false, "Come back from the OpenID Connect provider", onPage(s.closeProvider), paged, false},
		{get, forgottenPath, public, false, "Show the form for who forgot their password", onPage(s.showForgotten), paged, false},
		{post, forgottenPath, public, false, "Have a link mailed that sets a password", onPage(s.takeForgotten), paged, false},
		{post, "/sign-out", public, false, "Sign out", onPage(s.signOut), paged, false},
		{get, "/set-password", public, false, "Show the form to set a password", onPage(s.showSetPassword), paged, false},
		{post, "/set-password", public, false, "Set a password with a one-time link", onPage(s.setPassword), paged, false},
		{get, invitationPath + "{token}", public, false, "Show an invitation", onPage(s.showInvitation), paged, false},
		{post, invitationPath + "{token}", public, false, "Accept an invitation", onPage(s.takeInvitation), paged, false},
		{get, accountPath, human, false, "Show the account", onPage(s.showAccount), paged, false},
		{post, accountPath + "/sessions/{sessionId}/end", human, false, "End a browser session", onPage(s.closeSession), paged, false},
		{post, accountPath + "/grants/{grantId}/revoke", human, false, "Take an application's access back", onPage(s.closeGrant), paged, false},
		{post, accountPath + "/keys", human, false, "Issue an API key and show it", onPage(s.openKey), paged, false},
		{post, accountPath + "/keys/{keyId}/revoke", human, false, "Revoke an API key", onPage(s.closeKey), paged, false},
		{post, accountPath + "/password", human, false, "Begin to change the password", onPage(s.changePassword), paged, false},
	}
}

// sheet is what a page's handler answers with: a page by its name, with what it shows, or where to go on.
type sheet struct {
	name string
	data any
	// status is 200 where it is left out.
	status int
	// to is a path or a URL; where set there is no page.
	to string
}

// onPage is the adapter of pages. What another site's page has a browser send changes nothing, signed in or not.
func onPage(run func(*call) (sheet, error)) handler {
	return func(c *call) error {
		if err := c.sameOrigin(); err != nil {
			return err
		}
		s, err := run(c)
		switch {
		case err != nil:
			return err
		case s.to != "":
			c.lead(s.to)
		default:
			pages.Render(c.w, cmp.Or(s.status, http.StatusOK), s.name, s.data)
		}
		return nil
	}
}

// lead sends a browser on, with GET.
func (c *call) lead(to string) {
	pages.Guard(c.w.Header())
	c.w.Header().Set("Location", to)
	c.w.WriteHeader(http.StatusSeeOther)
}

// fail answers with an error. Who only has to sign in to see a page is sent to do so.
func (c *call) fail(err error) {
	if c.operation.manner == paged && refusal(err, "").Code == entity.Unauthorized {
		next := accountPath
		if c.r.Method == http.MethodGet {
			next = c.r.URL.RequestURI()
		}
		c.lead(signInFor(next))
		return
	}
	c.w.fail(err)
}

// signInFor is the path of signing in before going on to a path.
func signInFor(next string) string {
	return signInPath + "?" + url.Values{"next": {localPath(next)}}.Encode()
}

// localPath is text where it is a path of this server to every browser, which may take // and \ for the start of another
// one and pass over control characters; otherwise it is the account's.
func localPath(text string) string {
	parsed, err := url.Parse(text)
	foreign := err != nil || parsed.Host != "" || parsed.Scheme != "" || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//")
	if foreign || len(text) > maxNext || !utf8.ValidString(text) || strings.Contains(text, `\`) || strings.ContainsFunc(text, unicode.IsControl) {
		return accountPath
	}
	return text
}

// visitor is who is signed in at the browser; nil where nobody is.
func (c *call) visitor() (*credential, error) {
	err := c.identify()
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && refused.Code == entity.Unauthorized:
		return nil, nil
	case err != nil:
		return nil, err
	case c.caller.principal.GetKind() != wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION:
		c.caller, c.w.caller = nil, nil
		return nil, nil
	}
	return c.caller, nil
}

// form decodes the body of a form.
func (c *call) form() (url.Values, error) {
	media, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil, entity.Errorf(entity.UnsupportedMediaType, "the body must be application/x-www-form-urlencoded")
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxForm)
	err = c.r.ParseForm()
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, entity.Errorf(entity.PayloadTooLarge, "the form is larger than %d bytes", maxForm)
	case err != nil:
		return nil, invalid("the form cannot be read")
	}
	for name, values := range c.r.PostForm {
		if name != "scope" && len(values) > 1 {
			return nil, invalid("a field of the form is there twice")
		}
	}
	return c.r.PostForm, nil
}

// titles head the pages of refusals.
var titles = map[entity.Code]string{
	entity.NotFound:           "There is nothing here",
	entity.Forbidden:          "This is not allowed",
	entity.LinkInvalid:        "The link is no longer good",
	entity.InvitationConsumed: "The invitation was accepted",
	entity.InvitationRevoked:  "The invitation was taken back",
	entity.InvitationExpired:  "The invitation has expired",
	entity.WorkspaceSuspended: "The workspace is suspended",
	entity.RateLimited:        "Too many tries",
	entity.Unavailable:        "Not just now",
	entity.InvalidRequest:     "That cannot be done",
	entity.PayloadTooLarge:    "That is too much",
	entity.MethodNotAllowed:   "That cannot be done here",
}

// failPage is fail for who sees a page.
func (w *response) failPage(refused *entity.Error) {
	shown := pages.Problem{Title: cmp.Or(titles[refused.Code], "That did not work"), Text: sentence(refused.Message)}
	switch refused.Code {
	case entity.Internal:
		shown.Title, shown.Text, shown.Request = "Something failed here", "It is not your doing. Try again in a moment.", w.id
	case entity.NotFound:
		shown.Text = "The address is wrong, or what was here is gone."
		shown.Link, shown.LinkText = "/", "Go to your account"
	case entity.InvitationConsumed, entity.LinkInvalid:
		shown.Link, shown.LinkText = signInPath, "Sign in"
	case entity.RateLimited, entity.Unavailable:
		shown.Text += " Try again in " + waiting(refused.RetryAfter) + "."
	}
	pages.Render(w, statuses[refused.Code], "problem", shown)
}

// waiting is the Retry-After in words.
func waiting(d time.Duration) string {
	if s := seconds(d); s != "1" {
		return s + " seconds"
	}
	return "a second"
}

// sentence begins with a capital and ends with a full stop.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[size:], ".") + "."
}

// openRoot leads where people begin.
func (s *Server) openRoot(c *call) (sheet, error) { return sheet{to: accountPath}, nil }
