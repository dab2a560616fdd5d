package browser

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// sessionPages ends browser sessions.
type sessionPages struct{}

func (s sessionPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodPost, "/sign-out", server.ScopePublic, "Sign out", s.signOut),
		page(http.MethodPost, accountPath+"/sessions/{sessionId}/end", server.ScopeHuman, "End a browser session", s.end),
	}
}

const (
	// sessionTime is the lifetime of a session.
	sessionTime = 30 * 24 * time.Hour
	// userAgentBytes bounds the User-Agent that is stored of a session.
	userAgentBytes = 200
)

// startSession starts a session of an account and sets its cookie. by names the password or the linked identity that the
// person signed in with. The browser's previous session ends. Errors: unauthorized if the password was replaced in the
// meantime, forbidden if the account is linked to another subject.
func startSession(c *server.Call, userID string, by *userv1.StartBrowserSession) error {
	before, err := findVisitor(c) // also refuses a visitor above the rate limit
	if err != nil {
		return err
	}
	id := c.NewID(user.KeyPrefix)
	text, hash := keys.New(server.SessionStart, id)
	by.Session = &userv1.BrowserSession{
		Id: id, SecretSha256: hash, ExpiresAt: c.Now().Add(sessionTime).UnixMilli(),
		UserAgent: truncate(c.Request.UserAgent(), userAgentBytes), Address: c.Address().String(),
	}
	_, err = account.IssueSecret[proto.Message](c, service.PlatformCommand(c, entity.KindUser, userID, by),
		service.PlatformCommand(c, entity.KindUser, userID, &userv1.EndBrowserSession{SessionId: id}))
	if err != nil {
		return err
	}
	if before != nil {
		if err := endOwnSession(c, before.Principal.GetCredentialId()); err != nil {
			return err
		}
	}
	setCookie(c, c.CookieName(), text, sessionTime)
	return nil
}

// setCookie sets a cookie for a time; an empty value deletes it. With SameSite=Lax, a visitor who follows a link from
// another site is signed in, but a form of another site is sent without the cookie.
func setCookie(c *server.Call, name, value string, age time.Duration) {
	seconds := int(age / time.Second)
	if value == "" {
		seconds = -1
	}
	http.SetCookie(c.Response, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		Secure: strings.HasPrefix(name, "__Host-"), SameSite: http.SameSiteLaxMode,
	})
}

// endSession ends a session of an account; ending it again is no error. When it returns, this member refuses the session's key; other
// members do so within a second. A sessionID that is no open session of the account has no effect: it may be the id of another person's
// key, and the streams and transfers of that key must go on.
func endSession(c *server.Call, as *wirev1.Principal, userID, sessionID string) error {
	_, err := server.Ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: as, ID: c.NewID("cmd_"),
		Message: &userv1.EndBrowserSession{SessionId: sessionID},
	})
	if err != nil && !entity.HasCode(err, entity.NotFound) {
		return err
	}
	isOpen := err == nil
	if err := c.Settle(entity.KindUser, userID); err != nil {
		return err
	}
	if isOpen || sessionID == as.GetCredentialId() {
		c.EndCredential(sessionID)
	}
	return nil
}

// endOwnSession ends a session of the caller.
func endOwnSession(c *server.Call, sessionID string) error {
	return endSession(c, c.Caller.Principal, c.Caller.Principal.GetUserId(), sessionID)
}

// signOut ends the browser's session, if there is one.
func (sessionPages) signOut(c *server.Call) (result, error) {
	form, err := parseForm(c)
	if err != nil {
		return result{}, err
	}
	visitor, err := findVisitor(c)
	if err != nil {
		return result{}, err
	}
	if visitor != nil {
		if err := endOwnSession(c, visitor.Principal.GetCredentialId()); err != nil {
			return result{}, err
		}
	}
	setCookie(c, c.CookieName(), "", 0)
	if next := form.Get("next"); next != "" {
		return result{redirectTo: localPath(next)}, nil
	}
	return result{redirectTo: signInPath}, nil
}

// end ends one of the visitor's sessions.
func (sessionPages) end(c *server.Call) (result, error) {
	id := c.Variable("sessionId")
	if !entity.IsIDOf(id, user.KeyPrefix) {
		return result{}, server.ErrNotFound
	}
	if err := endOwnSession(c, id); err != nil {
		return result{}, err
	}
	if id == c.Caller.Principal.GetCredentialId() {
		setCookie(c, c.CookieName(), "", 0)
		return result{redirectTo: signInPath}, nil
	}
	return result{redirectTo: accountPath + "?done=session"}, nil
}

// describeBrowser returns a short name for a User-Agent, such as "Firefox on Linux", or the User-Agent if it is unknown.
func describeBrowser(agent string) string {
	name, system := "", ""
	for _, known := range [][2]string{{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}} {
		if name == "" && strings.Contains(agent, known[0]) {
			name = known[1]
		}
	}
	for _, known := range [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}} {
		if system == "" && strings.Contains(agent, known[0]) {
			system = known[1]
		}
	}
	switch {
	case name != "" && system != "":
		return name + " on " + system
	case name != "":
		return name
	}
	return agent
}
