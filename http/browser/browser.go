// Package browser serves the pages for people in front of a browser: signing in, the account, invitations, passwords, and the
// question what an OAuth client may do. How they look is package pages.
//
// A page is an operation whose answers and refusals are HTML. It works without scripts, and continues with a redirect. A
// browser holds a session's key in a cookie, and changes nothing at the request of another site's page.
package browser

import (
	"cmp"
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	signInPath  = "/sign-in"
	accountPath = "/account"
	// maxNext bounds the path that signing in leads to, and maxForm a form, in bytes.
	maxNext = 8 << 10
	maxForm = 64 << 10
)

// Options are what the pages need besides entities. Server, Links and OAuth are required.
type Options struct {
	Server *server.Server
	Links  *api.Links
	OAuth  *oauth.Provider
	// OIDC is the provider with which people may sign in beside a password; nil: none.
	OIDC *OIDC
}

// Pages serves the pages for people. Its fields have the state of its limits.
type Pages struct {
	Attempts *SignInAttempts
	Hasher   *PasswordHasher
	Resets   *PasswordResets

	options Options
}

// New makes pages of which no limit is used up. Errors: options of an OpenID Connect provider that are incomplete.
func New(o Options) (*Pages, error) {
	return &Pages{Attempts: NewSignInAttempts(), Hasher: NewPasswordHasher(), Resets: NewPasswordResets(), options: o}, o.OIDC.Check()
}

// Drain waits for the mail that is being prepared. When ctx ends it cuts that off and returns the context's error.
func (p *Pages) Drain(ctx context.Context) error { return p.Resets.drain(ctx) }

// Routes returns the table of the pages.
func (p *Pages) Routes() []server.Route {
	o := p.options
	core := o.Server.Options()
	signIn := &signInPages{o.Links, o.OIDC, p.Attempts, p.Hasher}
	return slices.Concat(
		[]server.Route{page(http.MethodGet, "/", server.ScopePublic, "Redirect to the account", func(*server.Call) (result, error) {
			return result{redirectTo: accountPath}, nil
		})},
		signIn.routes(),
		newProvider(o.OIDC, core.Secret, core.Clock, o.Server.Link(oidcPath+callbackPath)).routes(),
		forgottenPages{o.Links, p.Resets}.routes(),
		sessionPages{}.routes(),
		invitationPages{}.routes(),
		accountPages{o.Links, signIn}.routes(),
		consentPages{o.OAuth}.routes(),
	)
}

// page returns the route of a page.
func page(method, path string, scope server.Scope, summary string, run func(*server.Call) (result, error)) server.Route {
	return server.Route{Method: method, Path: path, Scope: scope, Summary: summary, Handler: adaptPage(run), Refuse: refusePage}
}

// sheet is what a page's handler answers with: a page by its name, with what it shows, or where to go on.
type result struct {
	page string
	data any
	// status is 200 where it is left out.
	status int
	// to is a path or a URL; where set there is no page.
	redirectTo string
}

// onPage is the adapter of pages. What another site's page has a browser send changes nothing, signed in or not.
func adaptPage(run func(*server.Call) (result, error)) server.Handler {
	return func(c *server.Call) error {
		if err := c.CheckSameOrigin(); err != nil {
			return err
		}
		s, err := run(c)
		switch {
		case err != nil:
			return err
		case s.redirectTo != "":
			redirect(c.Response, s.redirectTo)
		default:
			pages.Render(c.Response, cmp.Or(s.status, http.StatusOK), s.page, s.data)
		}
		return nil
	}
}

// lead redirects a browser, with GET.
func redirect(w *server.Response, to string) {
	pages.Guard(w.Header())
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// signInFor is the path of signing in before going on to a path.
func signInPathFor(next string) string {
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
func findVisitor(c *server.Call) (*server.Credential, error) {
	identified, err := c.TryAuthenticate()
	switch {
	case !identified:
		return nil, err
	case c.Caller.Principal.GetKind() != wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION:
		c.ClearCaller()
		return nil, nil
	}
	return c.Caller, nil
}

// form decodes the body of a form.
func parseForm(c *server.Call) (url.Values, error) {
	media, _, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil, entity.Errorf(entity.UnsupportedMediaType, "the body must be application/x-www-form-urlencoded")
	}
	c.Request.Body = http.MaxBytesReader(c.Response, c.Request.Body, maxForm)
	err = c.Request.ParseForm()
	var limit *http.MaxBytesError
	switch {
	case errors.As(err, &limit):
		return nil, entity.Errorf(entity.PayloadTooLarge, "the form is larger than %d bytes", maxForm)
	case err != nil:
		return nil, server.Invalid("the form cannot be read")
	}
	for name, values := range c.Request.PostForm {
		if name != "scope" && len(values) > 1 {
			return nil, server.Invalid("a field of the form is there twice")
		}
	}
	return c.Request.PostForm, nil
}

// titles head the pages of refusals.
var problemTitles = map[entity.Code]string{
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

// refusePage answers a refusal with a page. A visitor who only has to sign in is led to do so.
func refusePage(w *server.Response, refused *entity.Error) {
	if refused.Code == entity.Unauthorized {
		next := accountPath
		if w.Request.Method == http.MethodGet {
			next = w.Request.URL.RequestURI()
		}
		redirect(w, signInPathFor(next))
		return
	}
	shown := pages.Problem{Title: cmp.Or(problemTitles[refused.Code], "That did not work"), Text: sentence(refused.Message)}
	switch refused.Code {
	case entity.Internal:
		shown.Title, shown.Text, shown.Request = "Something failed here", "It is not your doing. Try again in a moment.", w.ID
	case entity.NotFound:
		shown.Text = "The address is wrong, or what was here is gone."
		shown.Link, shown.LinkText = "/", "Go to your account"
	case entity.InvitationConsumed, entity.LinkInvalid:
		shown.Link, shown.LinkText = signInPath, "Sign in"
	case entity.RateLimited, entity.Unavailable:
		shown.Text += " Try again in " + retryText(refused.RetryAfter) + "."
	}
	pages.Render(w, server.Statuses[refused.Code], "problem", shown)
}

// waiting is the Retry-After in words.
func retryText(d time.Duration) string {
	if s := server.RetrySeconds(d); s != "1" {
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
