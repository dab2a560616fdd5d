package browser

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
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
	// sessionTime is how long a browser stays signed in.
	sessionTime = 30 * 24 * time.Hour
	// userAgentBytes is what is kept of what a browser says it is.
	userAgentBytes = 200
)

// signIn starts a session of a person, by what let them in, and has the browser keep its key. The browser's session before
// it ends. Errors: unauthorized where the password was replaced meanwhile, forbidden for another subject than the person's.
func startSession(c *server.Call, userID string, by *userv1.StartBrowserSession) error {
	before, err := findVisitor(c) // who cannot be told, or asks too often, starts none
	if err != nil {
		return err
	}
	id := c.NewID(user.KeyPrefix)
	text, hash := server.NewKey(server.SessionStart, id)
	by.Session = &userv1.BrowserSession{
		Id: id, SecretSha256: hash, ExpiresAt: c.Now().Add(sessionTime).UnixMilli(),
		UserAgent: api.Truncate(c.Request.UserAgent(), userAgentBytes), Address: c.Address().String(),
	}
	if _, err := server.Ask[proto.Message](c, api.PlatformCommand(c, entity.KindUser, userID, by)); err != nil {
		return err
	}
	if err := c.Settle(entity.KindUser, userID); err != nil {
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

// setCookie has the browser keep a text for a time; without one it forgets it. Lax: a link from elsewhere finds its
// visitor signed in, a form from elsewhere does not.
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

// endSession answers when the session opens nothing here any more; elsewhere it is a matter of a second. One that has
// ended is no error.
func endSession(c *server.Call, as *wirev1.Principal, userID, sessionID string) error {
	_, err := server.Ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: as, ID: c.NewID("cmd_"),
		Message: &userv1.EndBrowserSession{SessionId: sessionID},
	})
	if err != nil && !server.HasCode(err, entity.NotFound) {
		return err
	}
	if err := c.Settle(entity.KindUser, userID); err != nil {
		return err
	}
	c.EndCredential(sessionID)
	return nil
}

// endOwnSession ends one of the visitor's.
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
	if !api.IsID(id, user.KeyPrefix) {
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

// browser is what people call what a browser says it is; where it is none of these, what it says.
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
