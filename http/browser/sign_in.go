package browser

import (
	"net/http"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// signInPages signs people in with a password, and sets passwords with one-time links.
type signInPages struct {
	links     *api.Links
	provider  *OIDC
	guesses   *Guesses
	passwords *Passwords
}

func (s *signInPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, signInPath, server.ScopePublic, "Show the sign-in form", s.show),
		page(http.MethodPost, signInPath, server.ScopePublic, "Sign in with a password", s.open),
		page(http.MethodGet, api.SetPasswordPath, server.ScopePublic, "Show the form to set a password", s.showSetPassword),
		page(http.MethodPost, api.SetPasswordPath, server.ScopePublic, "Set a password with a one-time link", s.setPassword),
	}
}

// wrongPassword is the one answer to every try that fails, whatever was wrong.
const wrongPassword = "The email or the password is wrong."

// show is the form, or leads on who is signed in.
func (s *signInPages) show(c *server.Call) (sheet, error) {
	next := localPath(c.Request.URL.Query().Get("next"))
	visitor, err := visitor(c)
	switch {
	case err != nil:
		return sheet{}, err
	case visitor != nil:
		return sheet{to: next}, nil
	}
	return sheet{name: "sign-in", data: s.signInForm(pages.SignIn{Next: next})}, nil
}

// signInForm adds the ways in that there are beside a password that one knows.
func (s *signInPages) signInForm(shown pages.SignIn) pages.SignIn {
	shown.Provider, shown.Forgotten = s.provider.name(), s.links.ByMail()
	return shown
}

// open signs a person in with a password.
func (s *signInPages) open(c *server.Call) (sheet, error) {
	form, err := form(c)
	if err != nil {
		return sheet{}, err
	}
	next := localPath(form.Get("next"))
	userID, hash, err := s.authenticate(c, form.Get("email"), form.Get("password"))
	switch {
	case err != nil:
		return sheet{}, err
	case userID == "":
		return sheet{name: "sign-in", status: http.StatusForbidden, data: s.signInForm(pages.SignIn{
			Email: api.Cut(form.Get("email"), email.MaxLength), Next: next, Problem: wrongPassword,
		})}, nil
	}
	if err := signIn(c, userID, &userv1.StartBrowserSession{PasswordHash: hash}); err != nil {
		return sheet{}, err
	}
	address, _ := api.CheckEmail(form.Get("email"))
	setCookie(c, knownCookie(c), c.SealCursor(knownBrowser, knownTo(address)), knownTime)
	return sheet{to: next}, nil
}

// A browser that somebody signed in with keeps a text that only this server makes, and that opens nothing.
const (
	knownBrowser = "known"
	knownTime    = 365 * 24 * time.Hour
)

func knownCookie(c *server.Call) string { return c.CookieName() + "-known" }

func knownTo(address string) []byte { return server.Binding("browser", address) }

// isKnown tells whether the person of an address signed in with the browser before.
func isKnown(c *server.Call, address string) bool {
	cookie, err := c.Request.Cookie(knownCookie(c))
	if err != nil {
		return false
	}
	text, err := c.OpenCursor(cookie.Value, knownTo(address))
	return err == nil && text == knownBrowser
}

// authenticate returns the person whose address and password these are, and the password's hash; "" if there is none. An
// address that no account has takes as long as a wrong password. Errors: rate_limited, unavailable.
func (s *signInPages) authenticate(c *server.Call, address, password string) (userID, hash string, err error) {
	address, badAddress := api.CheckEmail(address)
	if err := s.guesses.Try(c.Now(), c.Address(), address, isKnown(c, address)); err != nil {
		return "", "", err
	}
	var known *userv1.Password
	if badAddress == nil {
		if userID, err = api.PersonAt(c, address); err != nil {
			return "", "", err
		}
	}
	if userID != "" {
		if known, err = api.PasswordOf(c, userID); err != nil {
			return "", "", err
		}
	}
	matches, err := s.passwords.matches(c.Context, known.GetHash(), password[:min(len(password), 4*mostPassword+1)])
	if err != nil || !matches || known.GetDisabled() {
		return "", "", err
	}
	return userID, known.GetHash(), nil
}

var errLink = entity.Errorf(entity.LinkInvalid, "it was used, or replaced by a newer one, or its time is over; ask for a new one")

// linked is whose a one-time link is. Errors: link_invalid.
func linked(c *server.Call, token string) (userID string, hash []byte, err error) {
	parts := api.TokenParts(token, 2)
	if parts == nil {
		return "", nil, errLink
	}
	userID, hash = "usr_"+parts[0], server.Hash(parts[1])
	found, err := api.PasswordOf(c, userID)
	switch {
	case err != nil:
		return "", nil, err
	case found.GetDisabled(), !user.LinkOpens(found.GetLink(), hash, c.Now().UnixMilli()):
		return "", nil, errLink
	}
	return userID, hash, nil
}

func (s *signInPages) showSetPassword(c *server.Call) (sheet, error) {
	token := c.Request.URL.Query().Get("token")
	userID, _, err := linked(c, token)
	if err != nil {
		return sheet{}, err
	}
	return passwordSheet(c, userID, token, "")
}

// passwordSheet is the form that sets a password.
func passwordSheet(c *server.Call, userID, token, problem string) (sheet, error) {
	person, err := api.Describe(c, userID)
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
func (s *signInPages) setPassword(c *server.Call) (sheet, error) {
	form, err := form(c)
	if err != nil {
		return sheet{}, err
	}
	token, password := form.Get("token"), form.Get("password")
	userID, link, err := linked(c, token)
	if err != nil {
		return sheet{}, err
	}
	problem := passwordProblem(password)
	if problem == "" && password != form.Get("again") {
		problem = "The two are not the same."
	}
	if problem != "" {
		return passwordSheet(c, userID, token, problem)
	}
	hash, err := s.passwords.Hash(c.Context, password)
	if err != nil {
		return sheet{}, err
	}
	if err := replacePassword(c, userID, link, hash); err != nil {
		return sheet{}, err
	}
	if err := signIn(c, userID, &userv1.StartBrowserSession{PasswordHash: hash}); err != nil {
		return sheet{}, err
	}
	return sheet{to: accountPath + "?done=password"}, nil
}

// replacePassword answers when the sessions that it ends open nothing here any more.
func replacePassword(c *server.Call, userID string, link []byte, hash string) error {
	open, err := api.SessionsOf(c, userID)
	if err != nil {
		return err
	}
	if _, err := server.Ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.NewID("cmd_"),
		Message: &userv1.SetPassword{LinkSecretSha256: link, PasswordHash: hash},
	}); err != nil {
		return err
	}
	if err := c.Settle(entity.KindUser, userID); err != nil {
		return err
	}
	for _, session := range open {
		c.EndCredential(session.GetId())
	}
	return nil
}

// Guesses limits tries to sign in. The strict limit is on an address of the network with one of a person, so that who
// guesses keeps nobody out but themselves; the wide ones slow down who guesses from many networks, or about many people.
// From many networks somebody could use a person's up, and keep them out: it does not count for a browser that the person
// signed in with before.
// The memory is fixed, however many of either there are: those whose hashes meet share a bucket.
type Guesses struct {
	pairs   server.Buckets[guesser]
	people  server.Buckets[string]
	sources server.Buckets[netip.Prefix]
}

// guesser is who guesses about whom.
type guesser struct {
	from  netip.Prefix
	email string
}

var (
	perPair   = server.Allowance{Burst: 10, Each: 10 * time.Second}
	perPerson = server.Allowance{Burst: 300, Each: 500 * time.Millisecond}
	perSource = server.Allowance{Burst: 100, Each: time.Second}
)

func NewGuesses() *Guesses {
	return &Guesses{server.NewBuckets[guesser](), server.NewBuckets[string](), server.NewBuckets[netip.Prefix]()}
}

// Try counts a try, or refuses it; known tells that it comes from a browser of that person. What the strict limit refuses
// costs the wide ones nothing.
func (g *Guesses) Try(now time.Time, source netip.Addr, email string, known bool) error {
	from := server.Network(source)
	wait := g.pairs.Take(now, guesser{from, email}, perPair)
	if wait == 0 {
		wait = g.sources.Take(now, from, perSource)
	}
	if wait == 0 && !known {
		wait = g.people.Take(now, email, perPerson)
	}
	if wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "there were too many tries to sign in", RetryAfter: wait}
	}
	return nil
}
