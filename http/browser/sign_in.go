package browser

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	"github.com/atelier-run/atelier/limit"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service/account"
)

// signInPages signs people in with a password, and sets passwords with one-time links. The package comment describes the
// whole flow.
type signInPages struct {
	links    *account.Links
	provider *OIDC
	attempts *SignInAttempts
	hasher   *PasswordHasher
}

func (s *signInPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, signInPath, server.ScopePublic, "Show the sign-in form", s.show),
		page(http.MethodPost, signInPath, server.ScopePublic, "Sign in with a password", s.open),
		page(http.MethodGet, account.SetPasswordPath, server.ScopePublic, "Show the form to set a password", s.showSetPassword),
		page(http.MethodPost, account.SetPasswordPath, server.ScopePublic, "Set a password with a one-time link", s.setPassword),
	}
}

// wrongPassword is shown after every failed attempt. It is the same text for an unknown account, so that an attempt does not
// show whether an account exists.
const wrongPassword = "The email or the password is wrong."

// show shows the form, or redirects a signed-in visitor.
func (s *signInPages) show(c *server.Call) (result, error) {
	next := localPath(c.Request.URL.Query().Get("next"))
	visitor, err := findVisitor(c)
	switch {
	case err != nil:
		return result{}, err
	case visitor != nil:
		return result{redirectTo: next}, nil
	}
	return result{page: s.signInForm(pages.SignIn{Next: next})}, nil
}

// signInForm adds the alternatives to a password.
func (s *signInPages) signInForm(shown pages.SignIn) pages.SignIn {
	shown.Provider, shown.OffersReset = s.provider.name(), s.links.SendsMail()
	return shown
}

// open signs a person in with a password.
func (s *signInPages) open(c *server.Call) (result, error) {
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	next := localPath(form.Get("next"))
	userID, hash, err := s.authenticate(c, form.Get("email"), form.Get("password"))
	switch {
	case err != nil:
		return result{}, err
	case userID == "":
		return result{status: http.StatusForbidden, page: s.signInForm(pages.SignIn{
			Email: truncate(form.Get("email"), email.MaxLength), Next: next, Problem: wrongPassword,
		})}, nil
	}
	if err := startSession(c, userID, &userv1.StartBrowserSession{PasswordHash: hash}); err != nil {
		return result{}, err
	}
	address, _ := account.CanonicalEmail(form.Get("email"))
	setCookie(c, knownBrowserCookie(c), c.SealCursor(knownBrowserText, knownBrowserBinding(address)), knownTime)
	if leavesSite(next) {
		// The policy of the page with the form does not let the form lead to another site. A page can.
		c.Response.Header().Set("Refresh", "0; url="+next)
		return result{page: pages.Continue{Next: next}}, nil
	}
	return result{redirectTo: next}, nil
}

// leavesSite reports whether a path may redirect to another site: launching an app redirects to the app's host, and an authorization
// request that is refused to the client.
func leavesSite(path string) bool {
	return strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, oauth.AuthorizePath)
}

// A known browser is a browser that the owner of an email address has signed in with. It has a cookie with a text that only
// this server can make. The cookie gives no access; see SignInAttempts.
const (
	knownBrowserText = "known"
	knownTime        = 365 * 24 * time.Hour
)

func knownBrowserCookie(c *server.Call) string { return c.CookieName() + "-known" }

func knownBrowserBinding(address string) []byte { return server.Binding("browser", address) }

// isKnownBrowser reports whether the owner of an email address has signed in with this browser before.
func isKnownBrowser(c *server.Call, address string) bool {
	cookie, err := c.Request.Cookie(knownBrowserCookie(c))
	if err != nil {
		return false
	}
	text, err := c.OpenCursor(cookie.Value, knownBrowserBinding(address))
	return err == nil && text == knownBrowserText
}

// authenticate returns the account with an email address and password, and the hash of the password; "" if there is none.
// Unknown addresses take as long as wrong passwords. Errors: rate_limited, unavailable.
func (s *signInPages) authenticate(c *server.Call, address, password string) (userID, hash string, err error) {
	address, badAddress := account.CanonicalEmail(address)
	if err := s.attempts.Take(c.Now(), c.Address(), address, isKnownBrowser(c, address)); err != nil {
		return "", "", err
	}
	var known *userv1.Password
	if badAddress == nil {
		if userID, known, err = account.LookUpPassword(c, address); err != nil {
			return "", "", err
		}
	}
	matches, err := s.hasher.matches(c.Context, known.GetHash(), password[:min(len(password), maxPasswordBytes)])
	if err != nil || !matches || known.GetDisabled() {
		return "", "", err
	}
	return userID, known.GetHash(), nil
}

var errLinkInvalid = entity.Errorf(entity.LinkInvalid, "the link was used, was replaced by a newer one, or has expired; request a new one")

// openPasswordLink returns the account that a one-time link is for, and the hash of the link's secret. Errors: link_invalid.
func openPasswordLink(c *server.Call, token string) (userID string, hash []byte, err error) {
	userID, secret, ok := account.SplitLink(token)
	if !ok {
		return "", nil, errLinkInvalid
	}
	hash = keys.Hash(secret)
	found, err := account.DescribePassword(c, userID)
	switch {
	case err != nil:
		return "", nil, err
	case found.GetDisabled(), !user.LinkOpens(found.GetLink(), hash, c.Now().UnixMilli()):
		return "", nil, errLinkInvalid
	}
	return userID, hash, nil
}

func (s *signInPages) showSetPassword(c *server.Call) (result, error) {
	token := c.Request.URL.Query().Get("token")
	userID, _, err := openPasswordLink(c, token)
	if err != nil {
		return result{}, err
	}
	return buildPasswordPage(c, userID, token, "")
}

// buildPasswordPage returns the form that sets a password.
func buildPasswordPage(c *server.Call, userID, token, problem string) (result, error) {
	person, err := account.Describe(c, userID)
	if err != nil {
		return result{}, err
	}
	shown := result{page: pages.SetPassword{
		Email: person.GetEmail(), Token: token, MinLength: minPasswordLength, MaxLength: maxPasswordLength, Problem: problem,
	}}
	if problem != "" {
		shown.status = http.StatusBadRequest
	}
	return shown, nil
}

// setPassword sets a password with a one-time link, ends all sessions of the account, and signs the visitor in.
func (s *signInPages) setPassword(c *server.Call) (result, error) {
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	token, password := form.Get("token"), form.Get("password")
	userID, link, err := openPasswordLink(c, token)
	if err != nil {
		return result{}, err
	}
	problem := describePasswordProblem(password)
	if problem == "" && normalize(password) != normalize(form.Get("again")) {
		problem = "The two passwords differ."
	}
	if problem != "" {
		return buildPasswordPage(c, userID, token, problem)
	}
	hash, err := s.hasher.Hash(c.Context, password)
	if err != nil {
		return result{}, err
	}
	if err := account.ReplacePassword(c, userID, link, hash); err != nil {
		return result{}, err
	}
	if err := startSession(c, userID, &userv1.StartBrowserSession{PasswordHash: hash}); err != nil {
		return result{}, err
	}
	return result{redirectTo: accountPath + "?done=password"}, nil
}

// SignInAttempts limits attempts to sign in. The strictest limit is for a network together with an email address, so that an
// attacker locks out no other network. The wider limits are for attacks from many networks or on many accounts. An attacker with
// many networks could use up the limit of an email address; therefore it does not count attempts from a known browser of its
// owner.
//
// The memory is fixed; keys with colliding hashes share a bucket.
type SignInAttempts struct {
	// pairs has the email address as the subject of each client.
	pairs    limit.ClientBuckets
	emails   limit.Buckets[string]
	networks limit.ClientBuckets
}

var (
	attemptsPerPair    = limit.Allowance{Burst: 10, Interval: 10 * time.Second}
	attemptsPerEmail   = limit.Allowance{Burst: 300, Interval: 500 * time.Millisecond}
	attemptsPerNetwork = limit.Allowance{Burst: 100, Interval: time.Second}
)

// NewSignInAttempts returns limits that are not used up.
func NewSignInAttempts() *SignInAttempts {
	return &SignInAttempts{limit.NewClientBuckets(), limit.NewBuckets[string](), limit.NewClientBuckets()}
}

// Take counts an attempt. known reports that it comes from a known browser of the address's owner. An attempt that the
// strictest limit refuses does not count against the others. Errors: rate_limited.
func (a *SignInAttempts) Take(now time.Time, source netip.Addr, email string, known bool) error {
	wait := a.pairs.Take(now, limit.Client{Address: source, Subject: email}, attemptsPerPair)
	if wait == 0 {
		wait = a.networks.Take(now, limit.Client{Address: source}, attemptsPerNetwork)
	}
	if wait == 0 && !known {
		wait = a.emails.Take(now, email, attemptsPerEmail)
	}
	if wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "there were too many attempts to sign in", RetryAfter: wait}
	}
	return nil
}
