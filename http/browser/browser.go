// Package browser serves the pages for people: signing in, the account, invitations, passwords, and the consent page for
// OAuth clients. Package pages renders them.
//
// A page is an operation with HTML as its responses. It works without scripts, and a form that succeeds redirects. The
// browser has the key of its session in a cookie; requests that a page of another site makes it send are refused
// (adaptPage).
//
// # Signing in
//
//  1. signInPages.show shows the form. The parameter next is the path to continue with; localPath accepts paths of this
//     server only.
//  2. signInPages.open reads the form and calls authenticate. That counts the attempt (SignInAttempts), looks up the
//     account by its email address and verifies the password (PasswordHasher). Unknown addresses and wrong passwords take
//     equally long and get the same response.
//  3. Alternatively provider.leave redirects to the OpenID Connect provider, with its state in a sealed cookie.
//     provider.callback checks that state, exchanges the code for a verified email address (exchangeCode), and finds the
//     account (findActiveUser).
//  4. startSession sends StartBrowserSession to the account, with the hash of the password or the provider's subject. The
//     account refuses it if the password was replaced in the meantime, or if it is linked to another subject.
//  5. The reaction of the account registers the session's credential; startSession waits for it (Settle). It then ends
//     the browser's previous session and sets the cookie.
//  6. The browser is redirected to next, or shown a page that goes on to next, if next may redirect to another site
//     (leavesSite). From then on server.Call authenticates its requests by the cookie.
//
// A person who forgot the password has a link mailed (forgotten.go). An invited person without an account gets one on
// the page of the invitation (invitation.go); package service/invitation describes the flow of an invitation. Both set a password with
// signInPages.setPassword, which continues with step 4.
package browser

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/service/account"
)

const (
	signInPath  = server.SignInPath
	accountPath = "/account"
	// maxNext bounds the path to continue with after signing in, in bytes: it may be the path of a launch, which has 8 KiB and may be three
	// times as long when it is escaped. maxForm bounds a form. A form has the path to continue with, escaped again.
	maxNext = 25 << 10
	maxForm = 64 << 10
)

// Options are the dependencies of the pages. Server, Links and OAuth are required.
type Options struct {
	Server *server.Server
	Links  *account.Links
	OAuth  *oauth.Provider
	// OIDC is the provider that people can sign in with instead of a password; nil: none.
	OIDC *OIDC
	// People lists the users; nil: there are none that were linked to identities at a provider.
	People People
}

// Pages serves the pages. Its fields have the state of its limits.
type Pages struct {
	Attempts *SignInAttempts
	Hasher   *PasswordHasher
	Resets   *PasswordResets

	options Options
}

// New returns pages with limits that are not used up. Errors: the options of the OpenID Connect provider are invalid.
func New(o Options) (*Pages, error) {
	return &Pages{Attempts: NewSignInAttempts(), Hasher: NewPasswordHasher(), Resets: NewPasswordResets(), options: o}, o.OIDC.Check()
}

// Drain waits for the password resets in flight. When ctx ends it cancels them and returns an error that says so.
func (p *Pages) Drain(ctx context.Context) error {
	if canceled := p.Resets.drain(ctx); canceled > 0 {
		return fmt.Errorf("%d password resets were cut off at the drain deadline, and may have sent no link", canceled)
	}
	return nil
}

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
		newProvider(o, core).routes(),
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

// result is the result of a page's handler: a page or a redirect.
type result struct {
	page pages.Page
	// status is the HTTP status; 0: 200.
	status int
	// redirectTo is the path or URL of a redirect; "" for a page.
	redirectTo string
}

// adaptPage returns the handler of a page. It refuses requests that a page of another site made the browser send.
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
			pages.Render(c.Response, cmp.Or(s.status, http.StatusOK), s.page)
		}
		return nil
	}
}

// redirect redirects a browser, which follows with GET.
func redirect(w *server.Response, to string) {
	pages.Guard(w.Header())
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// signInPathFor returns the path of the sign-in page that continues with next.
func signInPathFor(next string) string {
	return signInPath + "?" + url.Values{"next": {localPath(next)}}.Encode()
}

// localPath returns text if every browser takes it for a path of this server, and otherwise the path of the account.
// Browsers may take // and \ for the beginning of another host, and ignore control characters.
func localPath(text string) string {
	parsed, err := url.Parse(text)
	foreign := err != nil || parsed.Host != "" || parsed.Scheme != "" || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//")
	if foreign || len(text) > maxNext || !utf8.ValidString(text) || strings.Contains(text, `\`) || strings.ContainsFunc(text, unicode.IsControl) {
		return accountPath
	}
	return text
}

// findVisitor returns the credential of the browser's session; nil if the visitor is not signed in. Errors: rate_limited, unavailable.
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

// parseForm parses the body of a form. Only the fields in repeated may occur more than once. Errors: invalid_request, payload_too_large,
// unsupported_media_type, rate_limited, unavailable.
func parseForm(c *server.Call, repeated ...string) (url.Values, error) {
	if !c.HasForm() {
		return nil, entity.Errorf(entity.UnsupportedMediaType, "the body must be application/x-www-form-urlencoded")
	}
	form, err := c.ReadForm(maxForm)
	if err != nil {
		return nil, err
	}
	for name, values := range form {
		if len(values) > 1 && !slices.Contains(repeated, name) {
			return nil, server.Invalid("a field of the form occurs twice")
		}
	}
	return form, nil
}

// problemTitles has the titles of pages that show an error, by its code.
var problemTitles = map[entity.Code]string{
	entity.NotFound:           "Page not found",
	entity.Forbidden:          "Not allowed",
	entity.LinkInvalid:        "This link is no longer valid",
	entity.InvitationConsumed: "This invitation was already accepted",
	entity.InvitationRevoked:  "This invitation was revoked",
	entity.InvitationExpired:  "This invitation has expired",
	entity.WorkspaceSuspended: "The workspace is suspended",
	entity.RateLimited:        "Too many attempts",
	entity.Unavailable:        "Temporarily unavailable",
	entity.InvalidRequest:     "Invalid request",
	entity.PayloadTooLarge:    "The request is too large",
	entity.MethodNotAllowed:   "Invalid request",
}

// refusePage answers an error with a page. Visitors who have to sign in are redirected to the sign-in page.
func refusePage(w *server.Response, refused *entity.Error) {
	if refused.Code == entity.Unauthorized {
		next := accountPath
		if w.Request.Method == http.MethodGet {
			next = w.Request.URL.RequestURI()
		}
		redirect(w, signInPathFor(next))
		return
	}
	shown := pages.Problem{Title: cmp.Or(problemTitles[refused.Code], "The request failed"), Text: sentence(refused.Message)}
	switch refused.Code {
	case entity.Internal:
		shown.Title, shown.Text, shown.Request = "The server failed", "This is not your fault. Try again in a moment.", w.ID
	case entity.NotFound:
		shown.Text = "The address is wrong, or the page no longer exists."
		shown.Link, shown.LinkText = "/", "Go to your account"
	case entity.InvitationConsumed, entity.LinkInvalid:
		shown.Link, shown.LinkText = signInPath, "Sign in"
	case entity.RateLimited, entity.Unavailable:
		shown.Text += " Try again in " + retryText(refused.RetryAfter) + "."
	}
	pages.Render(w, answer.Statuses[refused.Code], shown)
}

// retryText returns the time until a retry as text.
func retryText(d time.Duration) string {
	if s := answer.RetrySeconds(d); s != "1" {
		return s + " seconds"
	}
	return "a second"
}

// sentence returns an error message as a sentence.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[size:], ".") + "."
}

// truncate returns the longest valid beginning of a text with at most a number of bytes.
func truncate(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// callerQuery returns a query to the visitor's account.
func callerQuery(c *server.Call, m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(), Message: m}
}
